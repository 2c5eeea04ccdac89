#include "kernels/simd/casts.h"

#include <ATen/cpu/vec/functional.h>

#include <algorithm>

#include "kernels/simd/vectors.h"

namespace onnxtorch {
namespace {

using namespace CPU_CAPABILITY;
using at::vec::Vectorized;

// Writes the lowest bytes of the integers that vectors of floats become.
template <typename ToInt>
ONNX_TORCH_INLINE void to_bytes(const float* x, uint8_t* y, int64_t count, ToInt to_int) {
  constexpr int64_t kBlock = 256;
  int32_t whole[kBlock];
  for (; count > 0; x += kBlock, y += kBlock, count -= kBlock) {
    const int64_t n = std::min(count, kBlock);
    in_vectors<float>(n, [&](int64_t i, int64_t part) __attribute__((always_inline)) {
      to_int(Vectorized<float>::loadu(x + i, part)).store(whole + i, static_cast<int>(part));
    });
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<uint8_t>(whole[i]);
  }
}

// Casts to bytes. A byte is the lowest of the integer that a float is cut to: what no int32 holds is a multiple of 256
// for ATen, too.
void float_to_byte(const float* x, uint8_t* y, int64_t count) {
  to_bytes(x, y, count, [](const Vectorized<float>& v) { return at::vec::convert_to_int_of_same_size(v); });
}

void float_to_bool(const float* x, bool* y, int64_t count) {
  to_bytes(x, reinterpret_cast<uint8_t*>(y), count,
           [](const Vectorized<float>& v) { return at::vec::convert_to_int_of_same_size(v.ne(Vectorized<float>(0))); });
}

void float_to_long(const float* x, int64_t* y, int64_t count) { at::vec::convert(x, y, count); }

void long_to_float(const int64_t* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<float>(x[i]);
}

void bool_to_float(const bool* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] ? 1 : 0;
}

void int_to_long(const int32_t* x, int64_t* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i];
}

void long_to_int(const int64_t* x, int32_t* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<int32_t>(x[i]);
}

constexpr CastKernels kKernels{.float_to_byte = float_to_byte,
                               .float_to_long = float_to_long,
                               .long_to_float = long_to_float,
                               .bool_to_float = bool_to_float,
                               .float_to_bool = float_to_bool,
                               .int_to_long = int_to_long,
                               .long_to_int = long_to_int};

}  // namespace

const CastKernels CastKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
