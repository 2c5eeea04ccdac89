// Products with a weight of 2, 4 or 8 bits, which is dequantized as it is read, or for many rows part by part into a
// thread's cache. It is never there as a whole in another type.
#include <ATen/ATen.h>

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/onednn/grouped_linear.h"
#include "kernels/simd/bits_product.h"

namespace onnxtorch {
namespace onednn {
namespace {

const BitsProductKernels& kernels() { return for_this_cpu<BitsProductKernels>(); }

// The highest bit of each number of a word.
int32_t highest_bits(int64_t bits) {
  uint32_t mask = 0;
  for (int64_t bit = bits - 1; bit < 32; bit += bits) mask |= 1U << bit;
  return static_cast<int32_t>(mask);
}

// Rows of bytes as rows of words.
at::Tensor words_of(const at::Tensor& bytes) {
  const at::Tensor rows = bytes.contiguous().flatten(1);
  const bool is_aligned = reinterpret_cast<uintptr_t>(rows.const_data_ptr()) % alignof(int32_t) == 0;
  return (is_aligned && rows.storage_offset() % 4 == 0 ? rows : rows.clone()).view(c10::kInt);
}

class BitsLinear final : public GroupedLinear {
 public:
  explicit BitsLinear(const LinearOfBits& of)
      : GroupedLinear(of.numbers, of.in, of.numbers.size(0), of.bias),
        bits_(of.bits),
        block_size_(of.block_size),
        blocks_(of.numbers.size(1)),
        words_(blocks_ * block_size_ * bits_ / 32),
        scales_(in_panels(of.scales.t())),
        zero_points_(of.zero_points.defined() ? in_panels(at::sub(of.zero_points, 1 << (bits_ - 1)).t())
                                              : at::Tensor()) {}

 private:
  Kernel kernel() const override { return {kernels().rows_at_once, kernels().room}; }

  at::Tensor panels() const override {
    return laid_.get({.name = "panels of bits",
                      .lay =
                          [flip = highest_bits(bits_)](const at::Tensor& numbers) {
                            at::Tensor laid = in_panels(words_of(numbers).t());
                            laid.view(c10::kInt).bitwise_xor_(flip);
                            return laid;
                          },
                      .restore = {},  // nobody asks for the plain weight
                      .sound = [bytes = bytes_of_panels(c10::kInt, words_, out_)](
                                   const at::Tensor& laid) { return laid.numel() == bytes; }});
  }

  void multiply(const void* weight, const Part& p) const override {
    const int64_t first = p.group * kColumnsOfGroup;
    const auto of_blocks = [&](const at::Tensor& panels) {
      return panels.defined() ? static_cast<const float*>(panels.const_data_ptr()) + first * blocks_ : nullptr;
    };
    const BitsGroup group{.bits = bits_,
                          .block_size = block_size_,
                          .in = in_,
                          .words = words_,
                          .blocks = blocks_,
                          .numbers = static_cast<const int32_t*>(weight) + first * words_,
                          .scales = of_blocks(scales_),
                          .zero_points = of_blocks(zero_points_)};
    kernels().multiply(p.x, p.rows, group, p.bias, p.y, p.y_apart, p.columns, p.room);
  }

  const int64_t bits_, block_size_, blocks_, words_;
  const at::Tensor scales_, zero_points_;  // in panels; a zero point less the number that stands for zero without one
};

}  // namespace
}  // namespace onednn

c10::intrusive_ptr<Packed> packed(const LinearOfBits& linear) {
  return c10::make_intrusive<onednn::BitsLinear>(linear);
}

}  // namespace onnxtorch
