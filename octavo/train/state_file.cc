#include "octavo/train/state_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "octavo/checkpoint/tensor_file.h"

namespace octavo {
namespace {

constexpr std::string_view kFormat = "octavo.train_state";
constexpr std::string_view kVersion = "1";
constexpr std::string_view kStep = "step";
constexpr std::string_view kOptState = "opt_state/";

using Tensors = std::map<std::string, Tensor>;

Tensor step_tensor(std::int64_t step) {
  const auto value = static_cast<std::int32_t>(step);
  return Tensor::from_ids(std::span(&value, 1), {});
}

// None: no scalar of i32 or i64.
std::optional<std::int64_t> step_of(const Tensor& tensor) {
  if (tensor.size() != 1) return std::nullopt;
  if (tensor.dtype() == DType::i32) return tensor.values<std::int32_t>()[0];
  if (tensor.dtype() != DType::i64) return std::nullopt;
  std::int64_t step = 0;
  std::memcpy(&step, tensor.data(), sizeof(step));
  return step;
}

// Names of a file for the paths of Variables.
struct Naming {
  std::string variables = {};               // before the paths of collections
  bool drops_params = false;                // "params/x" is x there
  std::vector<std::string> exchanged = {};  // modules whose input_* is kernel_* there
};

std::string state_path(const std::string& module, std::string_view name) {
  return fmt::format("{}/{}{}{}", kOverwriteWithGradient, module, module.empty() ? "" : "/", name);
}

// With input_* and kernel_* of the modules exchanged.
std::string exchanged_path(const std::vector<std::string>& modules, const std::string& path) {
  constexpr std::string_view kInput = "input_", kKernel = "kernel_";
  const std::size_t begin = path.rfind('/') + 1;
  const std::string parent = path.substr(0, begin), name = path.substr(begin);
  const auto is_parent = [&](const std::string& module) {
    return state_path(module, "") == parent;
  };
  if (std::ranges::none_of(modules, is_parent)) return path;
  for (const auto& [from, to] : {std::pair(kInput, kKernel), std::pair(kKernel, kInput)}) {
    if (name.starts_with(from)) return fmt::format("{}{}{}", parent, to, name.substr(from.size()));
  }
  return path;
}

void check_exchanged(const char* function, const std::vector<std::string>& modules,
                     const Variables& variables) {
  for (const std::string& module : modules) {
    if (variables.contains(state_path(module, "input_scale"))) continue;
    throw ContractError(fmt::format(
        "{}: given '{}' among the exchanged, expected a module with FP8 state of its own", function,
        module));
  }
}

std::string name_of(const Naming& naming, const std::string& path) {
  const std::string of_file = exchanged_path(naming.exchanged, path);
  const bool drops = naming.drops_params && of_file.starts_with("params/");
  return naming.variables + of_file.substr(drops ? 7 : 0);
}

Result<Tensors> tensors_of(const std::filesystem::path& file, const TrainState& state,
                           const Naming& naming) {
  Tensors tensors = {{std::string(kStep), step_tensor(state.step)}};
  const auto add = [&](const std::string& name, const Variable& value) -> Result<void> {
    if (tensors.emplace(name, value.value()).second) return {};
    return fail(ErrorCode::unsupported,
                fmt::format("{}: two parts of the state are '{}' in the file: rename a collection "
                            "or a module",
                            file.string(), name));
  };
  for (const auto& [path, value] : state.variables) {
    OCTAVO_CHECK(add(name_of(naming, path), value));
  }
  for (const auto& [path, value] : state.opt_state) {
    OCTAVO_CHECK(add(std::string(kOptState) + path, value));
  }
  return tensors;
}

// Whether the file has FP8 state of a module that einsums name so.
bool has_einsum_state(const Tensors& tensors, const Naming& naming, const Variables& variables) {
  return std::ranges::any_of(variables, [&](const auto& entry) {
    const std::string& path = entry.first;
    return collection_of(path) == kOverwriteWithGradient &&
           path.find("/Fp8Einsum") != std::string::npos && tensors.contains(name_of(naming, path));
  });
}

// The newest entries: slot 0, then from the last slot down.
Tensor with_length(const Tensor& history, std::size_t length) {
  Tensor result = Tensor::zeros(DType::f32, {length});
  const auto from = history.values<float>();
  const auto to = result.mutable_values<float>();
  for (std::size_t age = 0; age < std::min(from.size(), length); ++age) {
    to[(length - age) % length] = from[(from.size() - age) % from.size()];
  }
  return result;
}

bool is_history(std::string_view path) {
  return collection_of(path) == kOverwriteWithGradient && path.ends_with("amax_history");
}

class Restoration {
 public:
  Restoration(const std::filesystem::path& path, const TrainState& initial, Tensors tensors)
      : path_(path), restored_{initial, {}}, tensors_(std::move(tensors)) {}

  Result<RestoredState> run(const Naming& naming) {
    OCTAVO_CHECK(read_step());
    OCTAVO_CHECK(read_variables(naming));
    OCTAVO_CHECK(read_opt_state());
    if (!tensors_.empty()) {
      return fail(ErrorCode::bad_file,
                  fmt::format("{}: tensor '{}' has no place in this run (another model, or another "
                              "optimizer)",
                              path_.string(), tensors_.begin()->first));
    }
    return std::move(restored_);
  }

 private:
  std::optional<Tensor> take(const std::string& name) {
    const auto node = tensors_.extract(name);
    return node.empty() ? std::nullopt : std::optional(std::move(node.mapped()));
  }

  Result<void> refuse(const std::string& name, const Tensor& given,
                      const Variable& expected) const {
    return fail(ErrorCode::bad_file,
                fmt::format("{}: tensor '{}' is {} {}, this run has {} {}", path_.string(), name,
                            dtype_name(given.dtype()), to_string(given.shape()),
                            dtype_name(expected.dtype()), to_string(expected.shape())));
  }

  Result<void> read_step() {
    const std::optional<Tensor> tensor = take(std::string(kStep));
    if (!tensor) return {};
    const std::optional<std::int64_t> step = step_of(*tensor);
    if (!step) return refuse(std::string(kStep), *tensor, Variable(step_tensor(0)));
    if (*step < 0) {
      return fail(ErrorCode::bad_file,
                  fmt::format("{}: step is {}, expected 0 or more", path_.string(), *step));
    }
    restored_.state.step = *step;
    return {};
  }

  Result<void> read_variables(const Naming& naming) {
    std::size_t missing_state = 0;
    const Variables wanted = restored_.state.variables;
    for (const auto& [path, initial] : wanted) {
      const std::string name = name_of(naming, path);
      std::optional<Tensor> tensor = take(name);
      if (!tensor) {
        if (collection_of(path) == kOverwriteWithGradient) {
          ++missing_state;
          continue;
        }
        return fail(ErrorCode::bad_file,
                    fmt::format("{}: no tensor '{}', which this run has", path_.string(), name));
      }
      if (is_history(path) && tensor->dtype() == DType::f32 && tensor->rank() == 1 &&
          tensor->size() > 0 && tensor->shape() != initial.shape()) {
        restored_.notes.push_back(fmt::format("{}: {} entries in the file, the newest {} are kept",
                                              path, tensor->size(),
                                              std::min(tensor->size(), initial.value().size())));
        tensor = with_length(*tensor, initial.value().size());
      }
      if (tensor->shape() != initial.shape() || tensor->dtype() != initial.dtype()) {
        return refuse(name, *tensor, initial);
      }
      restored_.state.variables.set(path, *std::move(tensor));
    }
    if (missing_state > 0) {
      restored_.notes.push_back(fmt::format(
          "no FP8 state for {} scales and histories: they begin as for a new run", missing_state));
    }
    return {};
  }

  Result<void> read_opt_state() {
    const bool has_any = std::ranges::any_of(
        tensors_, [](const auto& entry) { return entry.first.starts_with(kOptState); });
    const Variables wanted = restored_.state.opt_state;
    if (!has_any && !wanted.empty()) {
      restored_.notes.emplace_back("no state of the optimizer: it begins as for a new run");
      return {};
    }
    for (const auto& [path, initial] : wanted) {
      const std::string name = std::string(kOptState) + path;
      std::optional<Tensor> tensor = take(name);
      if (!tensor) {
        return fail(ErrorCode::bad_file,
                    fmt::format("{}: no tensor '{}', which the optimizer of this run has",
                                path_.string(), name));
      }
      if (tensor->shape() != initial.shape() || tensor->dtype() != initial.dtype()) {
        return refuse(name, *tensor, initial);
      }
      restored_.state.opt_state.set(path, *std::move(tensor));
    }
    return {};
  }

  const std::filesystem::path& path_;
  RestoredState restored_;
  Tensors tensors_;
};

constexpr const char* kVersionKey = "version";
constexpr const char* kFormatKey = "format";

Result<void> write_state(const std::filesystem::path& path, const TrainState& state,
                         const Naming& naming, std::map<std::string, std::string> metadata) {
  if (state.step < 0 || !std::in_range<std::int32_t>(state.step)) {
    return fail(ErrorCode::unsupported, fmt::format("{}: step {} is not written, files hold it as "
                                                    "I32 from 0: begin to count anew",
                                                    path.string(), state.step));
  }
  OCTAVO_TRY(Tensors tensors, tensors_of(path, state, naming));
  return write_tensor_file(path, {std::move(tensors), std::move(metadata)});
}

}  // namespace

Result<void> save_train_state(const std::filesystem::path& path, const TrainState& state) {
  return write_state(path, state, {},
                     {{kFormatKey, std::string(kFormat)}, {kVersionKey, std::string(kVersion)}});
}

Result<RestoredState> load_train_state(const std::filesystem::path& path,
                                       const TrainState& initial) {
  OCTAVO_TRY(TensorFile file, read_tensor_file(path));
  const std::string format = file.metadata[kFormatKey], version = file.metadata[kVersionKey];
  if (!format.empty() && format != kFormat) {
    return fail(ErrorCode::bad_file,
                fmt::format("{}: no training state, its format is '{}'", path.string(), format));
  }
  if (format == kFormat && version != kVersion) {
    return fail(ErrorCode::unsupported,
                fmt::format("{}: a training state of version '{}', this program reads version {}",
                            path.string(), version, kVersion));
  }
  return Restoration(path, initial, std::move(file.tensors)).run({});
}

Result<void> export_flax_state(const std::filesystem::path& path, const TrainState& state,
                               const std::vector<std::string>& exchanged) {
  check_exchanged("export_flax_state", exchanged, state.variables);
  const bool is_whole = state.variables.has_collection(kOverwriteWithGradient);
  return write_state(path, state, {"params/", !is_whole, exchanged}, {});
}

Result<RestoredState> import_flax_state(const std::filesystem::path& path,
                                        const TrainState& initial,
                                        const std::vector<std::string>& exchanged) {
  check_exchanged("import_flax_state", exchanged, initial.variables);
  OCTAVO_TRY(TensorFile file, read_tensor_file(path));
  const bool is_whole = std::ranges::any_of(file.tensors, [](const auto& entry) {
    return entry.first.starts_with("params/params/") ||
           entry.first.starts_with("params/_overwrite_with_gradient/");
  });
  const Naming naming{"params/", !is_whole, exchanged};
  const bool is_assumed =
      exchanged.empty() && has_einsum_state(file.tensors, naming, initial.variables);
  OCTAVO_TRY(RestoredState restored,
             Restoration(path, initial, std::move(file.tensors)).run(naming));
  if (is_assumed) {
    restored.notes.emplace_back(
        "FP8 state of Fp8Einsum: read as if JAX exchanged the operands of none; where it does "
        "(is_exchanged_by_jax), name the module in `exchanged`");
  }
  return restored;
}

}  // namespace octavo
