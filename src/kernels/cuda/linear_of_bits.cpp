#include "kernels/cuda/linear_of_bits.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <bit>

#include "kernels/cuda/current.h"
#include "kernels/standard/linear_of_bits.h"

namespace onnxtorch::cuda {
namespace {

// Gives the number of rows from which on a product with the dequantized weight takes less time, as measured on an H100.
int64_t many_rows(c10::ScalarType type) { return type == c10::kFloat ? 17 : 9; }

// Calls with(T{}) for the type of x that device code has.
template <typename With>
void for_type(c10::ScalarType type, const With& with) {
  if (type == c10::kHalf) return with(Float16{});
  if (type == c10::kBFloat16) return with(BFloat16{});
  with(float{});
}

const float* floats_of(const at::Tensor& tensor) { return tensor.defined() ? tensor.const_data_ptr<float>() : nullptr; }

at::Tensor contiguous(const at::Tensor& tensor) { return tensor.defined() ? tensor.contiguous() : tensor; }

// Gives the numbers contiguously, at an address that is aligned for words.
at::Tensor in_words(const at::Tensor& numbers) {
  const at::Tensor bytes = numbers.contiguous();
  return reinterpret_cast<uintptr_t>(bytes.const_data_ptr()) % alignof(uint32_t) == 0 ? bytes : bytes.clone();
}

at::Tensor multiplied(const at::Tensor& given, const LinearOfBits& of) {
  const at::Tensor x = given.contiguous(), numbers = in_words(of.numbers), scales = of.scales.contiguous(),
                   zero_points = contiguous(of.zero_points), values = contiguous(of.values), bias = contiguous(of.bias);
  const int64_t numbers_of_word = 32 / of.bits;
  const BitsWeight weight{
      .bits = of.bits,
      .in = of.in,
      .out = numbers.size(0),
      .words_of_row = numbers.size(1) * of.block_size / numbers_of_word,
      .blocks_of_row = numbers.size(1),
      .words_of_block_log2 = std::countr_zero(static_cast<uint64_t>(of.block_size / numbers_of_word)),
      .numbers = static_cast<const uint32_t*>(numbers.const_data_ptr()),
      .scales = floats_of(scales),
      .zero_points = floats_of(zero_points),
      .values = floats_of(values)};
  const int64_t rows = x.numel() / of.in;
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.out;
  const bool is_plain = rows >= many_rows(x.scalar_type());
  at::Tensor result = is_plain ? at::empty({weight.out, weight.in}, x.options()) : at::empty(sizes, x.options());
  if (result.numel() > 0) {
    for_type(x.scalar_type(), [&]<typename T>(T) {
      auto* const to = static_cast<T*>(result.mutable_data_ptr());
      on_device_of(x, [&](cudaStream_t stream) {
        if (is_plain) return dequantize_bits(weight, to, stream);
        const auto* const addends = bias.defined() ? static_cast<const T*>(bias.const_data_ptr()) : nullptr;
        return multiply_bits(rows, weight, static_cast<const T*>(x.const_data_ptr()), addends, to, stream);
      });
    });
  }
  return is_plain ? at::linear(x, result, bias) : result;
}

}  // namespace

TORCH_LIBRARY_IMPL(onnx_torch, CUDA, m) { m.impl("linear_of_bits", &linear_of_bits<&multiplied>); }

}  // namespace onnxtorch::cuda
