#include "kernels/simd/quantized/blocks.h"

#include <algorithm>

#include "kernels/simd/inline.h"

namespace onnxtorch {
namespace {

// Gives the number at this place of its byte.
template <int bits, typename T>
ONNX_TORCH_INLINE float number(T byte, int place) {
  if constexpr (bits == 8) {
    return static_cast<float>(byte);
  } else {
    return static_cast<float>((byte >> (place * bits)) & ((1 << bits) - 1));
  }
}

template <int bits, typename T>
ONNX_TORCH_INLINE void dequantize_bits(const BlocksOfBits<T>& of, float* y) {
  constexpr int kPer = 8 / bits;
  for (int64_t block = 0, first = 0; first < of.count; ++block, first += of.block_size) {
    const int64_t bytes = std::min(of.block_size, of.count - first) / kPer;
    const float scale = of.scales[block],
                zero_point = of.zero_points ? number<bits>(of.zero_points[block / kPer], static_cast<int>(block % kPer))
                                            : of.zero_point;
    const T* const from = of.numbers + first / kPer;
    float* const to = y + first;
    for (int64_t i = 0; i < bytes; ++i)
      for (int j = 0; j < kPer; ++j) to[i * kPer + j] = (number<bits>(from[i], j) - zero_point) * scale;
  }
}

void dequantize_uint8(const BlocksOfBits<uint8_t>& of, float* y) {
  switch (of.bits) {
    case 2:
      return dequantize_bits<2>(of, y);
    case 4:
      return dequantize_bits<4>(of, y);
    default:
      return dequantize_bits<8>(of, y);
  }
}

void dequantize_int8(const BlocksOfBits<int8_t>& of, float* y) { dequantize_bits<8>(of, y); }

constexpr BlockKernels kKernels{.dequantize_uint8 = dequantize_uint8, .dequantize_int8 = dequantize_int8};

}  // namespace

const BlockKernels BlockKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
