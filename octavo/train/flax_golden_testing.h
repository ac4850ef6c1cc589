// Golden data of Flax: tests/golden/flax/NAME.safetensors and .json (README.md there says what they
// hold).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>

#include "octavo/autograd/variables.h"
#include "octavo/base/file.h"
#include "octavo/base/json.h"
#include "octavo/checkpoint/tensor_file.h"

namespace octavo::testing {

inline constexpr const char* kFlaxGoldens = OCTAVO_GOLDEN_DIR "/flax/";

class FlaxGolden {
 public:
  explicit FlaxGolden(const std::string& name) {
    const auto file = read_tensor_file(kFlaxGoldens + name + ".safetensors");
    if (!file) throw std::runtime_error(file.error().message);
    tensors_ = file->tensors;
    const auto text = read_text(kFlaxGoldens + name + ".json");
    if (!text) throw std::runtime_error(text.error().message);
    cases_ = parse_json(*text, name).value().at("cases");
  }

  // "<case>.<what>".
  const Tensor& at(const std::string& name) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) throw std::runtime_error("no golden tensor " + name);
    return found->second;
  }
  bool contains(const std::string& name) const { return tensors_.contains(name); }
  const Json& cases() const { return cases_; }

  // "<prefix><separator>params<separator>kernel" and so on, as "params/kernel".
  Variables variables(const std::string& prefix, char separator = '.') const {
    Variables result;
    const std::string begin = prefix + separator;
    for (auto it = tensors_.lower_bound(begin); it != tensors_.end(); ++it) {
      if (!it->first.starts_with(begin)) break;
      std::string path = it->first.substr(begin.size());
      std::ranges::replace(path, separator, '/');
      result.set(path, it->second);
    }
    return result;
  }

 private:
  std::map<std::string, Tensor> tensors_;
  Json cases_;
};

inline void expect_same_bits(const Tensor& got, const Tensor& expected, const std::string& what) {
  EXPECT_EQ(got.shape(), expected.shape()) << what;
  EXPECT_EQ(got.dtype(), expected.dtype()) << what;
  EXPECT_TRUE(same_bits(got, expected)) << what;
}

// Row `i` along the first axis.
inline Tensor row(const Tensor& x, std::size_t i) {
  const Shape shape(x.shape().begin() + 1, x.shape().end());
  Tensor result(x.dtype(), shape);
  const auto* from = static_cast<const std::byte*>(x.data()) + i * result.bytes();
  std::copy_n(from, result.bytes(), static_cast<std::byte*>(result.mutable_data()));
  return result;
}

inline Variables rows(const Variables& stacked, std::size_t i) {
  return map_variables(stacked, [&](const std::string&, const Variable& value) {
    return Variable(row(value.value(), i));
  });
}

}  // namespace octavo::testing
