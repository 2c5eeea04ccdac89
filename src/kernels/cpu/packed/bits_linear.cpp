// Products with a weight of 2, 4 or 8 bits, which lies as it is. It is dequantized as it is read, or for many rows part
// by part into a thread's cache; or the rows are rounded to int8, and the products are of integers.
#include <ATen/ATen.h>

#include "base/parallel.h"
#include "base/work_memory.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/packed/grouped_linear.h"
#include "kernels/simd/bits_integer_product.h"
#include "kernels/simd/bits_product.h"

namespace onnxtorch {
namespace {

// Gives a mask of the highest bit of each number of a word.
int32_t highest_bits(int64_t bits) {
  uint32_t mask = 0;
  for (int64_t bit = bits - 1; bit < 32; bit += bits) mask |= 1U << bit;
  return static_cast<int32_t>(mask);
}

// Gives rows of bytes as rows of 32-bit words.
at::Tensor words_of(const at::Tensor& bytes) {
  const at::Tensor rows = bytes.contiguous().flatten(1);
  const bool is_aligned = reinterpret_cast<uintptr_t>(rows.const_data_ptr()) % alignof(int32_t) == 0;
  return (is_aligned && rows.storage_offset() % 4 == 0 ? rows : rows.clone()).view(c10::kInt);
}

constexpr const char* kUnsigned = "panels of unsigned bits";

// A product by a kernel that takes the weight's words in the named layout, with the bits of `flip` flipped, and zero
// points of this type.
template <typename ZeroPoint>
class BitsLinear : public GroupedLinear {
 protected:
  BitsLinear(const LinearOfBits& of, std::string layout, int32_t flip, const at::Tensor& zero_points)
      : GroupedLinear(of.numbers, of.in, of.numbers.size(0), of.bias),
        bits_(of.bits),
        block_size_(of.block_size),
        blocks_(of.numbers.size(1)),
        words_(blocks_ * block_size_ * bits_ / 32),
        layout_(std::move(layout)),
        flip_(flip),
        scales_(in_panels(of.scales.t())),
        values_(of.values.defined() ? of.values.contiguous() : at::Tensor()),
        zero_points_(zero_points.defined() ? in_panels(zero_points.to(c10::CppTypeToScalarType<ZeroPoint>()).t())
                                           : at::Tensor()) {}

  BitsGroup<ZeroPoint> group(const void* weight, int64_t number) const {
    const int64_t first = number * kColumnsOfGroup;
    return {.bits = bits_,
            .block_size = block_size_,
            .in = in_,
            .words = words_,
            .blocks = blocks_,
            .numbers = static_cast<const int32_t*>(weight) + first * words_,
            .scales = static_cast<const float*>(scales_.const_data_ptr()) + first * blocks_,
            .zero_points = zero_points_.defined()
                               ? static_cast<const ZeroPoint*>(zero_points_.const_data_ptr()) + first * blocks_
                               : nullptr,
            .values = values_.defined() ? values_.const_data_ptr<float>() : nullptr};
  }

 private:
  at::Tensor panels() const override {
    return weight_.get({.name = layout_,
                        .lay =
                            [flip = flip_](const at::Tensor& numbers) {
                              at::Tensor laid = in_panels(words_of(numbers).t());
                              if (flip != 0) laid.view(c10::kInt).bitwise_xor_(flip);
                              return laid;
                            },
                        .restore = {},  // nobody asks for the plain weight
                        .sound = [bytes = bytes_of_panels(c10::kInt, words_, out_)](
                                     const at::Tensor& laid) { return laid.numel() == bytes; }});
  }

  const int64_t bits_, block_size_, blocks_, words_;
  const std::string layout_;
  const int32_t flip_;
  const at::Tensor scales_, values_, zero_points_;  // the first and the last in panels
};

// The product with a dequantized weight. Its numbers are codes, or are made signed: each is then already less the
// default zero point.
class FloatBitsLinear final : public BitsLinear<float> {
 public:
  explicit FloatBitsLinear(const LinearOfBits& of)
      : BitsLinear(of, of.values.defined() ? kUnsigned : "panels of bits",
                   of.values.defined() ? 0 : highest_bits(of.bits),
                   of.zero_points.defined() ? at::sub(of.zero_points, 1 << (of.bits - 1)) : at::Tensor()) {}

 private:
  static const BitsProductKernels& kernels() { return for_this_cpu<BitsProductKernels>(); }

  Kernel kernel() const override { return {kernels().rows_at_once, kernels().room}; }

  void multiply(const void* weight, const Part& p) const override {
    kernels().multiply(reinterpret_cast<const float*>(p.x), p.rows, group(weight, p.group), p.bias, p.y, p.y_apart,
                       p.columns, p.room);
  }
};

class IntegerBitsLinear final : public BitsLinear<uint8_t> {
 public:
  explicit IntegerBitsLinear(const LinearOfBits& of) : BitsLinear(of, kUnsigned, 0, of.zero_points) {}

 private:
  static const BitsIntegerKernels& kernels() { return for_this_cpu<BitsIntegerKernels>(); }

  Kernel kernel() const override { return {kernels().rows_at_once, 0}; }

  at::Tensor converted(const float* x, int64_t rows) const override {
    constexpr int64_t kCost = 2;  // of an element that is rounded
    const UnsignedBitsGroup weight = group(nullptr, 0);
    const int64_t bytes = kernels().bytes_of_row(weight);
    const at::Tensor rounded = work_tensor({rows, bytes}, c10::kByte);
    auto* const to = static_cast<std::byte*>(rounded.mutable_data_ptr());
    parallel_for(rows, kCost * in_, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) kernels().round(x + row * in_, weight, to + row * bytes);
    });
    return rounded;
  }

  void multiply(const void* weight, const Part& p) const override {
    kernels().multiply(p.x, p.rows, group(weight, p.group), p.bias, p.y, p.y_apart, p.columns);
  }
};

}  // namespace

c10::intrusive_ptr<Packed> packed(const LinearOfBits& linear) {
  if (linear.rounds_x) return c10::make_intrusive<IntegerBitsLinear>(linear);
  return c10::make_intrusive<FloatBitsLinear>(linear);
}

}  // namespace onnxtorch
