#include "kernels/standard/linear_of_bits.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <bit>
#include <vector>

namespace onnxtorch {
namespace {

using at::Tensor;

bool is_of(const Tensor& tensor, c10::ScalarType type, at::IntArrayRef sizes) {
  return tensor.scalar_type() == type && tensor.sizes() == sizes;
}

// Gives the weight as float32[out, in].
Tensor dequantized(const LinearOfBits& of) {
  const Tensor numbers = unpacked_bits(of.numbers, of.bits);
  const auto less_zero_point = [&] {
    const Tensor floats = numbers.to(c10::kFloat);
    return of.zero_points.defined() ? floats - of.zero_points.unsqueeze(-1) : floats - (1 << (of.bits - 1));
  };
  const Tensor values = of.values.defined()
                            ? of.values.index_select(0, numbers.flatten().to(c10::kInt)).view(numbers.sizes())
                            : less_zero_point();
  return (values * of.scales.unsqueeze(-1)).flatten(1).narrow(1, 0, of.in);
}

Tensor multiplied(const Tensor& x, const LinearOfBits& of) {
  return at::linear(x, dequantized(of).to(x.scalar_type()), of.bias);
}

Tensor linear_of_bits_meta(const Tensor& x, const Tensor& numbers, const Tensor& /*scales*/,
                           const std::optional<Tensor>& /*zero_points*/, const std::optional<Tensor>& /*values*/,
                           const std::optional<Tensor>& /*bias*/, int64_t /*in*/, int64_t /*bits*/) {
  TORCH_CHECK(x.dim() > 0 && numbers.dim() > 0, "linear_of_bits takes no scalars");
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = numbers.size(0);
  return at::empty(sizes, x.options());
}

}  // namespace

Tensor unpacked_bits(const Tensor& bytes, int64_t bits) {
  std::vector<Tensor> parts;
  for (int64_t shift = 0; shift < 8; shift += bits) parts.push_back(at::bitwise_right_shift(bytes, shift));
  return at::bitwise_and(at::stack(parts, -1), (1 << bits) - 1).flatten(-2);
}

void check_linear_of_bits(const Tensor& x, const LinearOfBits& of) {
  const Tensor& numbers = of.numbers;
  TORCH_CHECK(of.bits == 2 || of.bits == 4 || of.bits == 8, "a weight has numbers of 2, 4 or 8 bits, not ", of.bits);
  TORCH_CHECK(numbers.scalar_type() == c10::kByte && numbers.dim() == 3 && of.block_size >= 16 &&
                  std::has_single_bit(static_cast<uint64_t>(of.block_size)),
              "a weight of few bits has blocks of a power of two of numbers, from 16 on");
  const int64_t out = numbers.size(0), blocks = numbers.size(1), capacity = blocks * of.block_size;
  TORCH_CHECK(of.in > capacity - of.block_size && of.in <= capacity && of.in <= INT32_MAX && out <= INT32_MAX,
              "a weight of sizes ", numbers.sizes(), " does not hold rows of ", of.in, " numbers of ", of.bits,
              " bits");
  const auto type = x.scalar_type();
  TORCH_CHECK(
      (type == c10::kFloat || type == c10::kHalf || type == c10::kBFloat16) && x.dim() > 0 && x.size(-1) == of.in, "a ",
      type, " of sizes ", x.sizes(), " cannot be multiplied by a weight of sizes [", of.in, ", ", out, "]");
  TORCH_CHECK(is_of(of.scales, c10::kFloat, {out, blocks}) &&
                  (!of.zero_points.defined() || is_of(of.zero_points, c10::kFloat, {out, blocks})),
              "a weight of few bits has a scale for each block, and may have a zero point, of float32");
  TORCH_CHECK(!of.values.defined() || (of.bits == 4 && is_of(of.values, c10::kFloat, {16})),
              "codes of 4 bits stand for 16 numbers of float32");
  TORCH_CHECK(!of.bias.defined() || (of.bias.is_floating_point() && of.bias.sizes() == at::IntArrayRef({out})),
              "the bias has a number for each of the ", out, " results");
}

TORCH_LIBRARY_FRAGMENT(onnx_torch, m) {
  // x @ weight.T + bias of a LinearOfBits that has `in_features` numbers a row.
  m.def(
      "linear_of_bits(Tensor x, Tensor numbers, Tensor scales, Tensor? zero_points, Tensor? values, Tensor? bias, "
      "int in_features, int bits) -> Tensor");
  m.impl("linear_of_bits", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(linear_of_bits<&multiplied>));
}

TORCH_LIBRARY_IMPL(onnx_torch, Meta, m) { m.impl("linear_of_bits", &linear_of_bits_meta); }

}  // namespace onnxtorch
