#include "octavo/tensor/tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "octavo/base/error.h"
#include "octavo/base/for_rows.h"
#include "octavo/formats/convert.h"

namespace octavo {
namespace {

template <Format F>
void decode_all(const Tensor& from, std::span<double> to) {
  const auto codes = from.values<Code<F>>();
  std::transform(codes.begin(), codes.end(), to.begin(), [](Code<F> c) { return decode<F>(c); });
}

template <Format F>
void encode_all(std::span<const double> from, Tensor& to) {
  const auto codes = to.mutable_values<Code<F>>();
  std::transform(from.begin(), from.end(), codes.begin(),
                 [](double x) { return encode<F>(x, Rounding::nearest_even, Overflow::special); });
}

[[noreturn]] void refuse(const char* operation, DType dtype) {
  throw ContractError(fmt::format("{}: given {} elements, expected floating point or I32",
                                  operation, dtype_name(dtype)));
}

void read_all(const Tensor& from, std::span<double> to) {
  switch (from.dtype()) {
    case DType::f32:
      std::ranges::copy(from.values<float>(), to.begin());
      return;
    case DType::f64:
      std::ranges::copy(from.values<double>(), to.begin());
      return;
    case DType::i32:
      std::ranges::copy(from.values<std::int32_t>(), to.begin());
      return;
    case DType::bf16:
      return decode_all<Format::bf16>(from, to);
    case DType::f16:
      return decode_all<Format::f16>(from, to);
    case DType::f8_e4m3:
      return decode_all<Format::e4m3fn>(from, to);
    case DType::f8_e5m2:
      return decode_all<Format::e5m2>(from, to);
    case DType::f8_e4m3fnuz:
      return decode_all<Format::e4m3fnuz>(from, to);
    case DType::f8_e5m2fnuz:
      return decode_all<Format::e5m2fnuz>(from, to);
    default:
      refuse("Tensor::values", from.dtype());
  }
}

// Toward zero, as XLA: NaN is 0, what lies beyond is the nearest.
std::int32_t to_i32(double x) {
  constexpr double kLeast = -0x1p31, kMost = 0x1p31 - 1;
  return std::isnan(x) ? 0 : static_cast<std::int32_t>(std::clamp(x, kLeast, kMost));
}

void write_all(std::span<const double> from, Tensor& to) {
  const auto cast = [&]<class T>(std::span<T> values) {
    std::ranges::transform(from, values.begin(), [](double x) { return static_cast<T>(x); });
  };
  switch (to.dtype()) {
    case DType::f32:
      return cast(to.mutable_values<float>());
    case DType::f64:
      return cast(to.mutable_values<double>());
    case DType::i32:
      std::ranges::transform(from, to.mutable_values<std::int32_t>().begin(), to_i32);
      return;
    case DType::bf16:
      return encode_all<Format::bf16>(from, to);
    case DType::f16:
      return encode_all<Format::f16>(from, to);
    case DType::f8_e4m3:
      return encode_all<Format::e4m3fn>(from, to);
    case DType::f8_e5m2:
      return encode_all<Format::e5m2>(from, to);
    case DType::f8_e4m3fnuz:
      return encode_all<Format::e4m3fnuz>(from, to);
    case DType::f8_e5m2fnuz:
      return encode_all<Format::e5m2fnuz>(from, to);
    default:
      refuse("Tensor::astype", to.dtype());
  }
}

// The two casts that training makes all the time, without branches, as objects that loops take in.
// NaN becomes quiet.
constexpr auto bf16_of = [](float x) -> std::uint16_t {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  const bool is_nan = (bits & 0x7FFF'FFFF) > 0x7F80'0000;
  return static_cast<std::uint16_t>(is_nan ? 0x7FC0 | ((bits >> 16) & 0x8000) : rounded);
};

constexpr auto decode_bf16 = [](std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
};

// to[i] = f(from[i]), on all threads where there is enough to do.
template <class From, class To, class F>
void convert_all(std::span<const From> from, std::span<To> to, const F& f) {
  for_rows(default_context(), from.size(), from.size(), [&](const Range& range) {
    std::transform(from.data() + range.begin, from.data() + range.end, to.data() + range.begin, f);
  });
}

std::size_t checked_bytes(DType dtype, const Shape& shape) {
  const std::optional<std::uint64_t> bytes = byte_count(dtype, shape);
  if (!bytes) {
    throw ContractError(fmt::format("Tensor: given shape {} of {}, expected one that fills bytes",
                                    to_string(shape), dtype_name(dtype)));
  }
  return *bytes;
}

}  // namespace

template <>
bool holds<float>(DType dtype) {
  return dtype == DType::f32;
}
template <>
bool holds<double>(DType dtype) {
  return dtype == DType::f64;
}
template <>
bool holds<std::int32_t>(DType dtype) {
  return dtype == DType::i32;
}
template <>
bool holds<std::uint32_t>(DType dtype) {
  return dtype == DType::u32 || dtype == DType::f32;
}
template <>
bool holds<std::uint16_t>(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16;
}
template <>
bool holds<std::uint8_t>(DType dtype) {
  return dtype == DType::u8 || is_fp8(dtype);
}

Tensor::Tensor(DType dtype, Shape shape)
    : dtype_(dtype),
      shape_(std::move(shape)),
      size_(element_count(shape_).value_or(0)),
      storage_(std::make_shared<AlignedBytes>(checked_bytes(dtype, shape_))) {}

Tensor Tensor::full(DType dtype, Shape shape, double value) {
  Tensor tensor(dtype, std::move(shape)), one(dtype, {1});
  write_all(std::span(&value, 1), one);
  std::uint8_t* to = tensor.storage_->data();
  const std::size_t bytes = tensor.bytes();
  if (bytes == 0) return tensor;
  std::memcpy(to, one.data(), std::min(bytes, one.bytes()));
  for (std::size_t done = one.bytes(); done < bytes; done *= 2) {
    std::memcpy(to + done, to, std::min(done, bytes - done));
  }
  return tensor;
}

Tensor Tensor::from(std::span<const float> values, Shape shape, DType dtype) {
  Tensor tensor(dtype, std::move(shape));
  if (values.size() != tensor.size()) {
    throw ContractError(fmt::format("Tensor::from: given {} values, expected {} for shape {}",
                                    values.size(), tensor.size(), to_string(tensor.shape())));
  }
  if (dtype == DType::f32) {
    std::ranges::copy(values, tensor.mutable_values<float>().begin());
  } else {
    write_all(std::vector<double>(values.begin(), values.end()), tensor);
  }
  return tensor;
}

Tensor Tensor::from_ids(std::span<const std::int32_t> ids, Shape shape) {
  Tensor tensor(DType::i32, std::move(shape));
  if (ids.size() != tensor.size()) {
    throw ContractError(fmt::format("Tensor::from_ids: given {} ids, expected {} for shape {}",
                                    ids.size(), tensor.size(), to_string(tensor.shape())));
  }
  std::ranges::copy(ids, tensor.mutable_values<std::int32_t>().begin());
  return tensor;
}

double Tensor::item() const {
  if (size_ != 1) {
    throw ContractError(
        fmt::format("Tensor::item: given shape {}, expected one element", to_string(shape_)));
  }
  double value = 0;
  read_all(*this, std::span(&value, 1));
  return value;
}

std::vector<float> Tensor::to_floats() const {
  if (dtype_ == DType::f32) return {values<float>().begin(), values<float>().end()};
  std::vector<double> all(size_);
  read_all(*this, all);
  std::vector<float> floats(size_);
  std::ranges::transform(all, floats.begin(), [](double x) { return static_cast<float>(x); });
  return floats;
}

Tensor Tensor::astype(DType dtype) const {
  if (dtype == dtype_) return *this;
  Tensor result(dtype, shape_);
  if (dtype_ == DType::f32 && dtype == DType::bf16) {
    convert_all(values<float>(), result.mutable_values<std::uint16_t>(), bf16_of);
    return result;
  }
  if (dtype_ == DType::bf16 && dtype == DType::f32) {
    convert_all(values<std::uint16_t>(), result.mutable_values<float>(), decode_bf16);
    return result;
  }
  std::vector<double> all(size_);
  read_all(*this, all);
  write_all(all, result);
  return result;
}

Tensor Tensor::reshape(Shape shape) const {
  if (element_count(shape) != size_) {
    throw ContractError(fmt::format("Tensor::reshape: given {}, expected {} elements as {} has",
                                    to_string(shape), size_, to_string(shape_)));
  }
  Tensor result = *this;
  result.shape_ = std::move(shape);
  return result;
}

void Tensor::check_holds(bool holds) const {
  if (holds) return;
  throw ContractError(
      fmt::format("Tensor::values: given a tensor of {} read as another type, "
                  "expected that of its elements (astype converts)",
                  dtype_name(dtype_)));
}

void Tensor::check_owned() const {
  if (storage_.use_count() == 1) return;
  throw ContractError(
      "Tensor::mutable_values: given shared storage, expected a tensor not copied yet");
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}

}  // namespace octavo
