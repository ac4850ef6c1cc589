// A contiguous row-major array with shared storage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "octavo/base/aligned_bytes.h"
#include "octavo/tensor/dtype.h"
#include "octavo/tensor/shape.h"

namespace octavo {

// The element types of C++ behind a DType: float (f32), double (f64), std::int32_t (i32),
// std::uint32_t (u32, and the bits of f32), std::uint16_t (bits of bf16 and f16), std::uint8_t (u8
// and codes of FP8).
template <class T>
bool holds(DType dtype);

// Copies share storage, and what is shared does not change: a tensor is filled by whoever made it,
// before the first copy.
class Tensor {
 public:
  // No elements: (0) in f32.
  Tensor() : Tensor(DType::f32, {0}) {}
  // Uninitialized. ContractError: elements that do not fill whole bytes, sizes beyond 2^63.
  Tensor(DType dtype, Shape shape);

  // All elements `value`, rounded once. ContractError: a type that astype does not make.
  static Tensor full(DType dtype, Shape shape, double value);
  static Tensor zeros(DType dtype, Shape shape) { return full(dtype, std::move(shape), 0); }
  static Tensor ones(DType dtype, Shape shape) { return full(dtype, std::move(shape), 1); }
  static Tensor scalar(double value, DType dtype = DType::f32) { return full(dtype, {}, value); }

  // Row-major values, in f32 unless said otherwise. ContractError: another count than the shape's,
  // a type that astype does not make.
  static Tensor from(std::span<const float> values, Shape shape, DType dtype = DType::f32);
  static Tensor from(std::initializer_list<float> values, Shape shape, DType dtype = DType::f32) {
    return from(std::span(values.begin(), values.size()), std::move(shape), dtype);
  }
  // The same in i32.
  static Tensor from_ids(std::span<const std::int32_t> ids, Shape shape);

  // Type, sizes of the axes, their number; elements, and the bytes that they take.
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  std::size_t rank() const { return shape_.size(); }
  std::size_t size() const { return size_; }  // elements
  std::size_t bytes() const { return storage_->size(); }

  // The elements, row-major (holds). ContractError: elements of another type.
  template <class T>
  std::span<const T> values() const {
    check_holds(octavo::holds<T>(dtype_));
    return {reinterpret_cast<const T*>(storage_->data()), size_};
  }
  // To fill. ContractError: elements of another type, storage that is shared.
  template <class T>
  std::span<T> mutable_values() {
    check_holds(octavo::holds<T>(dtype_));
    check_owned();
    return {reinterpret_cast<T*>(storage_->data()), size_};
  }
  // The bytes of any type. ContractError: to write, where the storage is shared.
  const void* data() const { return storage_->data(); }
  void* mutable_data() {
    check_owned();
    return storage_->data();
  }

  // Of and to f64, f32, bf16, f16, FP8 and i32; to i32 toward zero, NaN to 0. reshape takes any.
  // ContractError: another type.
  double item() const;                   // of one element, else ContractError
  std::vector<float> to_floats() const;  // row-major
  Tensor astype(DType dtype) const;   // rounds once, to nearest even; beyond the largest: inf, NaN
  Tensor reshape(Shape shape) const;  // the same storage; another count: ContractError

 private:
  void check_holds(bool holds) const;
  void check_owned() const;

  DType dtype_;
  Shape shape_;
  std::size_t size_;
  std::shared_ptr<AlignedBytes> storage_;
};

// Bits alike: type, shape and all bytes.
bool same_bits(const Tensor& a, const Tensor& b);

}  // namespace octavo
