// QuantizeLinear and DequantizeLinear of int8 and uint8 with one scale, and the operators between them, each in one
// pass over memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace onnxtorch {

// A quantization to int8 or uint8: an integer stands for (integer - zero_point) * scale, and is kept between low and
// high.
struct Quantization {
  double scale = 1;
  int64_t zero_point = 0, low = 0, high = 0;
  c10::ScalarType type = c10::kByte;
};

// Computes (x - zero_point) * scale.
at::Tensor dequantize(const at::Tensor& x, double scale, int64_t zero_point);

// Computes round(x / scale) + zero_point within low and high, as uint8 or int8. NaN gives 0.
at::Tensor quantize(const at::Tensor& x, double scale, int64_t zero_point, int64_t low, int64_t high,
                    at::ScalarType type);

// Computes DynamicQuantizeLinear: x as uint8, with a scale and a zero point that fit its range.
std::tuple<at::Tensor, at::Tensor, at::Tensor> dynamic_quantize(const at::Tensor& x);

// Gives the table's element for each int8 or uint8, counted from the type's lowest.
at::Tensor look_up(const at::Tensor& x, const at::Tensor& table);

// Computes quantize(start + dequantize(a) + dequantize(b)); a floating b is taken as it is.
at::Tensor quantized_add(const at::Tensor& a, double a_scale, int64_t a_zero_point, const at::Tensor& b, double b_scale,
                         int64_t b_zero_point, double start, double scale, int64_t zero_point, int64_t low,
                         int64_t high, at::ScalarType type);

// Computes quantize(dequantize(a) * dequantize(b) * unit + start), likewise.
at::Tensor quantized_mul(const at::Tensor& a, double a_scale, int64_t a_zero_point, const at::Tensor& b, double b_scale,
                         int64_t b_zero_point, double unit, double start, double scale, int64_t zero_point, int64_t low,
                         int64_t high, at::ScalarType type);

// Computes x * scale, with one scale for all or for each index of an axis.
at::Tensor dequantize_along(const at::Tensor& x, const at::Tensor& scale, int64_t axis);

// Declares them to TorchScript, once.
void register_quantize();

}  // namespace onnxtorch
