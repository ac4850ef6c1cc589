// Golden data of Flax: tests/golden/flax/NAME.safetensors (README.md there says what they hold).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "octavo/autograd/variables.h"
#include "octavo/checkpoint/safetensors.h"

namespace octavo::testing {

class FlaxGolden {
 public:
  explicit FlaxGolden(const std::string& name) {
    const auto check = [](const auto& result) {
      if (!result) throw std::runtime_error(result.error().message);
    };
    const auto file = File::open(std::string(OCTAVO_GOLDEN_DIR "/flax/") + name + ".safetensors");
    check(file);
    const auto header = read_safetensors_header(*file);
    check(header);
    for (const TensorInfo& info : header->tensors) {
      Tensor tensor(info.dtype, info.shape);
      auto* data = static_cast<std::byte*>(const_cast<void*>(tensor.data()));
      check(file->read_at(info.offset, {data, tensor.bytes()}));
      tensors_.emplace(info.name, std::move(tensor));
    }
  }

  // "<case>.<what>".
  const Tensor& at(const std::string& name) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) throw std::runtime_error("no golden tensor " + name);
    return found->second;
  }
  bool contains(const std::string& name) const { return tensors_.contains(name); }

  // "<case>.<what>.params.kernel" and so on, as "params/kernel".
  Variables variables(const std::string& prefix) const {
    Variables result;
    const std::string begin = prefix + ".";
    for (auto it = tensors_.lower_bound(begin); it != tensors_.end(); ++it) {
      if (!it->first.starts_with(begin)) break;
      std::string path = it->first.substr(begin.size());
      std::ranges::replace(path, '.', '/');
      result.set(path, it->second);
    }
    return result;
  }

 private:
  std::map<std::string, Tensor> tensors_;
};

}  // namespace octavo::testing
