// QuantizeLinear and DequantizeLinear of int8 and uint8 with one scale.
#pragma once

#include <cstdint>

namespace onnxtorch {

// A quantization, round(x / scale) + zero_point; the bounds are taken before the zero point is added. NaN gives 0.
struct QuantizeStep {
  float scale, low, high;
  int32_t zero_point;
};

// A dequantization, (x - zero_point) * scale.
struct DequantizeStep {
  float scale;
  int32_t zero_point;
};

// The way in which two dequantized numbers are joined before their sum or product is quantized: start + a + b, or
// a * b * unit + start.
struct Joining {
  float unit = 1, start = 0;
};

// The lowest and the highest of some numbers. Both are NaN where one of these is.
struct Range {
  float low = 0, high = 0;
};

struct QuantizeKernels {
  template <typename T>
  struct Of {
    void (*quantize)(const float* x, T* y, int64_t count, QuantizeStep to);
    void (*dequantize)(const T* x, float* y, int64_t count, DequantizeStep of);
    // Quantizes the sum or product of both, dequantized; floats are taken as they are.
    template <typename B>
    using Join = void (*)(const T* a, DequantizeStep of_a, const B* b, DequantizeStep of_b, Joining by, T* y,
                          int64_t count, QuantizeStep to);
    Join<T> add, multiply;
    Join<float> add_floats, multiply_floats;
    // Gives the table's element for each number, counted from the type's lowest. y may lie where x does.
    void (*look_up)(const T* x, const uint8_t* table, uint8_t* y, int64_t count);
  };

  Of<uint8_t> of_uint8;
  Of<int8_t> of_int8;
  Range (*range)(const float* x, int64_t count);  // of zero and the elements

  static const QuantizeKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
