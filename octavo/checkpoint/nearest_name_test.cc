#include "octavo/checkpoint/nearest_name.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace octavo {
namespace {

std::vector<std::string> llama(int layers) {
  std::vector<std::string> modules = {"model.embed_tokens", "model.norm", "lm_head"};
  for (int layer = 0; layer < layers; ++layer) {
    for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "mlp.gate_proj", "mlp.up_proj",
                             "mlp.experts.3.up_proj"})
      modules.push_back(fmt::format("model.layers.{}.{}", layer, name));
  }
  return modules;
}

struct Case {
  const char* name;
  const char* nearest;
};

TEST(NearestName, SegmentsThenEdits) {
  NearestName nearest(llama(12));
  const Case cases[] = {
      {"model.layers.7.mlp.gate_prj", "model.layers.7.mlp.gate_proj"},
      {"model.language_model.layers.11.self_attn.qproj", "model.layers.11.self_attn.q_proj"},
      {"mlp.up_projj", "model.layers.0.mlp.up_proj"},
      {"lm_heads", "lm_head"},
      {"layers.3.mlp.experts.3.up_proj.x", "model.layers.3.mlp.experts.3.up_proj"},
      // The layer that is named is none.
      {"model.layers.40.mlp.gate_prj", "model.layers.0.mlp.gate_proj"},
      // Another container, the same kind of module.
      {"transformer.layers.2.attention.k_proj", "model.layers.2.self_attn.k_proj"},
      {"model.layers.2.mlp.up_pro*", "model.layers.2.mlp.up_proj"},
      {"visual", ""},
      {"vision_tower.encoder.patch", ""},
      {"", ""},
      {"*", ""},
      {"12", ""},
  };
  for (const Case& c : cases) EXPECT_EQ(nearest.find(c.name), c.nearest) << c.name;
}

TEST(NearestName, AModelOfNoModules) { EXPECT_EQ(NearestName({}).find("lm_head"), ""); }

// 50,000 names of which no two share a pattern, and a thousand entries: answers until the work that
// is allowed is used up, then none.
TEST(NearestName, IsBounded) {
  std::vector<std::string> modules;
  for (int i = 0; i < 50'000; ++i) modules.push_back(fmt::format("a{0}.b{0}.c{0}.d{0}.e", i));
  NearestName nearest(modules);
  EXPECT_EQ(nearest.find("a123.b123.c123.d123.x"), "a123.b123.c123.d123.e");
  int answered = 0;
  for (int i = 0; i < 1'000; ++i)
    answered += nearest.find(fmt::format("a{0}.b{0}.c{0}.d{0}.x", i)).empty() ? 0 : 1;
  EXPECT_GT(answered, 10);
  EXPECT_LT(answered, 1'000);
}

}  // namespace
}  // namespace octavo
