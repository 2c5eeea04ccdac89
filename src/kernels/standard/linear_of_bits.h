// Products with a weight of few bits: the parts that the devices' kernels of linear_of_bits share.
#pragma once

#include <ATen/core/Tensor.h>

namespace onnxtorch {

// A weight of numbers of 2, 4 or 8 bits: [out, blocks, bytes of a block], the first number in the lowest bits. Each of
// its blocks of `block_size` numbers, a power of two from 16 on, of which a row has `in` without what fills up the last
// block, has a scale and may have a zero point; without one it is half of how many numbers there are. Where x is
// rounded, each of its blocks becomes int8 with a scale, the products are of integers, and the zero points are numbers
// of 8 bits.
struct LinearOfBits {
  at::Tensor numbers;
  int64_t in, bits, block_size;
  at::Tensor scales, zero_points, bias;  // float32[out, blocks], and [out]; the last two may be undefined
  bool rounds_x = false;
  at::Tensor values = {};  // float32[16], that numbers of 4 bits stand for where they are codes, without zero points
};

// Gives the numbers of so many bits that bytes hold, along the last axis.
at::Tensor unpacked_bits(const at::Tensor& bytes, int64_t bits);

// Raises where sizes and types do not go together, which kernels trust.
void check_linear_of_bits(const at::Tensor& x, const LinearOfBits& of);

// Checks the arguments, and multiplies by `compute`, which takes a checked x, on a device, and a weight; the bias is of
// x's type.
template <at::Tensor (*compute)(const at::Tensor& x, const LinearOfBits& of)>
at::Tensor linear_of_bits(const at::Tensor& x, const at::Tensor& numbers, const at::Tensor& scales,
                          const std::optional<at::Tensor>& zero_points, const std::optional<at::Tensor>& values,
                          const std::optional<at::Tensor>& bias, int64_t in, int64_t bits) {
  LinearOfBits of{.numbers = numbers,
                  .in = in,
                  .bits = bits,
                  .block_size = bits > 0 && numbers.dim() == 3 ? numbers.size(2) * 8 / bits : 0,
                  .scales = scales,
                  .zero_points = zero_points.value_or(at::Tensor()),
                  .bias = bias.value_or(at::Tensor()),
                  .values = values.value_or(at::Tensor())};
  check_linear_of_bits(x, of);
  if (of.bias.defined()) of.bias = of.bias.to(x.scalar_type());
  return compute(x, of);
}

}  // namespace onnxtorch
