// Indices that count from the end where they are negative.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>

#include <cstdint>

namespace onnxtorch {

// Makes indices count from the start, as ATen's operators want them.
inline at::Tensor from_start(const at::Tensor& indices, int64_t size) {
  return at::where(at::lt(indices, 0), at::add(indices, size), indices);
}

[[noreturn]] inline void refuse_index(int64_t given, int64_t axis, int64_t size) {
  TORCH_CHECK_INDEX(false, "index ", given, " is out of bounds for dimension ", axis, " with size ", size);
}

// Makes an index count from the start. Throws where it lies outside of the axis.
inline int64_t checked_index(int64_t given, int64_t axis, int64_t size) {
  const int64_t chosen = given < 0 ? given + size : given;
  if (static_cast<uint64_t>(chosen) >= static_cast<uint64_t>(size)) [[unlikely]]
    refuse_index(given, axis, size);
  return chosen;
}

}  // namespace onnxtorch
