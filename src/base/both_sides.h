// The mark of functions by which both the CPU's kernels and those of CUDA compute: one function, compiled for both.
// What it calls of the standard library must not call the compiler's builtins: nvcc leaves such a call out of CUDA code
// without a word, and std::bit_width is 0 there, std::upper_bound looks at the first elements alone. What can be called
// is listed in tests/python/test_device_code.py; what else is needed is here.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define ONNX_TORCH_BOTH __host__ __device__
#else
#define ONNX_TORCH_BOTH
#endif

namespace onnxtorch {

// Does what std::bit_width does.
ONNX_TORCH_BOTH constexpr int bits_of(uint64_t x) {
  int width = 0;
  for (int half = 32; half > 0; half /= 2) {
    if (x >> half == 0) continue;
    width += half;
    x >>= half;
  }
  return width + static_cast<int>(x);
}

// Does what std::has_single_bit does.
ONNX_TORCH_BOTH constexpr bool is_power_of_two(uint64_t x) { return x != 0 && (x & (x - 1)) == 0; }

// Does what std::partition_point does: gives the number of indices below `count` for which comes_before(index) is true,
// which are all before the others.
template <typename ComesBefore>
ONNX_TORCH_BOTH int64_t count_before(int64_t count, const ComesBefore& comes_before) {
  int64_t first = 0;
  while (count > 0) {
    const int64_t half = count / 2;
    if (comes_before(first + half)) {
      first += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return first;
}

}  // namespace onnxtorch
