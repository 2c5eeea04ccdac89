// Sums of many floats, in an order that vectors add in.
#pragma once

#include <cstdint>

#include "kernels/simd/inline.h"

namespace onnxtorch {
namespace {

constexpr int64_t kReduced = 32;  // so many sums go on in parallel

// Joins the elements, in any order.
template <typename F, typename Join>
ONNX_TORCH_INLINE float reduced(int64_t size, float start, const F& element, const Join& join) {
  if (size < kReduced) {
    float all = start;
    for (int64_t i = 0; i < size; ++i) all = join(all, element(i));
    return all;
  }
  float lanes[kReduced];
  for (float& lane : lanes) lane = start;
  int64_t i = 0;
  for (; i + kReduced <= size; i += kReduced) {
    for (int64_t j = 0; j < kReduced; ++j) lanes[j] = join(lanes[j], element(i + j));
  }
  for (int64_t j = 0; i + j < size; ++j) lanes[j] = join(lanes[j], element(i + j));
  for (int64_t width = kReduced / 2; width > 0; width /= 2) {
    for (int64_t j = 0; j < width; ++j) lanes[j] = join(lanes[j], lanes[j + width]);
  }
  return lanes[0];
}

template <typename F>
ONNX_TORCH_INLINE float sum_of(int64_t size, const F& element) {
  return reduced(size, 0, element, [](float a, float b) { return a + b; });
}

}  // namespace
}  // namespace onnxtorch
