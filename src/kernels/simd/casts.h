// Casts of many elements, as ATen does them, bit for bit.
#pragma once

#include <cstdint>

namespace onnxtorch {

struct CastKernels {
  void (*float_to_byte)(const float* x, uint8_t* y, int64_t count);
  void (*float_to_long)(const float* x, int64_t* y, int64_t count);
  void (*long_to_float)(const int64_t* x, float* y, int64_t count);
  void (*bool_to_float)(const bool* x, float* y, int64_t count);
  void (*float_to_bool)(const float* x, bool* y, int64_t count);
  void (*int_to_long)(const int32_t* x, int64_t* y, int64_t count);
  void (*long_to_int)(const int64_t* x, int32_t* y, int64_t count);

  static const CastKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
