#include "kernels/simd/casts.h"

#include <ATen/cpu/vec/functional.h>

#include <algorithm>

#include "kernels/simd/vectors.h"

namespace onnxtorch {
namespace {

using namespace CPU_CAPABILITY;
using at::vec::Vectorized;

// A byte is the lowest of the integer that a float is cut to: what no int32 holds is a multiple of 256 for ATen, too.
void float_to_byte(const float* x, uint8_t* y, int64_t count) {
  constexpr int64_t kBlock = 256;
  int32_t whole[kBlock];
  for (; count > 0; x += kBlock, y += kBlock, count -= kBlock) {
    const int64_t n = std::min(count, kBlock);
    in_vectors<float>(n, [&](int64_t i, int64_t part) __attribute__((always_inline)) {
      at::vec::convert_to_int_of_same_size(Vectorized<float>::loadu(x + i, part))
          .store(whole + i, static_cast<int>(part));
    });
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<uint8_t>(whole[i]);
  }
}

void float_to_long(const float* x, int64_t* y, int64_t count) { at::vec::convert(x, y, count); }

void long_to_float(const int64_t* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<float>(x[i]);
}

void bool_to_float(const bool* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] ? 1 : 0;
}

constexpr CastKernels kKernels{.float_to_byte = float_to_byte,
                               .float_to_long = float_to_long,
                               .long_to_float = long_to_float,
                               .bool_to_float = bool_to_float};

}  // namespace

const CastKernels CastKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
