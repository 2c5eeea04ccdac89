// Products with a weight in float16. One of few rows is bound by memory, of which the weight takes half as much as in
// float32; for one of many rows it is widened part by part into a thread's cache.
#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

#include "base/own_pages.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/packed/grouped_linear.h"
#include "kernels/simd/half_product.h"

namespace onnxtorch {
namespace {

const HalfProductKernels& kernels() { return for_this_cpu<HalfProductKernels>(); }

class HalfLinear final : public GroupedLinear {
 public:
  HalfLinear(const at::Tensor& weight, const at::Tensor& bias)
      : GroupedLinear(weight, weight.size(0), weight.size(1), bias) {}

 private:
  Kernel kernel() const override { return {kernels().rows_at_once, kernels().room}; }

  at::Tensor panels() const override {
    return weight_.get({.name = "float16 panels",
                        .lay = in_panels,
                        .restore = {},  // nobody asks for the plain weight
                        .sound = [bytes = bytes_of_panels(c10::kHalf, in_, out_)](const at::Tensor& laid) {
                          return laid.numel() == bytes;
                        }});
  }

  void multiply(const void* weight, const Part& p) const override {
    const auto* const group = static_cast<const uint16_t*>(weight) + p.group * kColumnsOfGroup * in_;
    kernels().multiply(reinterpret_cast<const float*>(p.x), p.rows, in_, group, p.bias, p.y, p.y_apart, p.columns,
                       p.room);
  }
};

// Gives the matrix, or its transpose, in the order in which its elements lie.
at::Tensor by_rows(const at::Tensor& matrix) { return matrix.stride(0) < matrix.stride(1) ? matrix.t() : matrix; }

// Tells whether each number is a finite one of float16. Its bits tell that of all but the subnormal ones.
bool are_halves(std::span<const float> numbers) {
  constexpr size_t kAtOnce = 64;
  constexpr uint32_t kMagnitude = 0x7fffffff, kBeyondMantissa = 0x1fff, kLeastNormal = 0x38800000,
                     kLargest = 0x477fe000;
  for (size_t begin = 0; begin < numbers.size(); begin += kAtOnce) {
    const auto some = numbers.subspan(begin, std::min(kAtOnce, numbers.size() - begin));
    uint32_t beyond = 0, are_large = 0, are_subnormal = 0;
    for (const float x : some) {
      const uint32_t magnitude = std::bit_cast<uint32_t>(x) & kMagnitude;
      beyond |= magnitude & kBeyondMantissa;
      are_large |= static_cast<uint32_t>(magnitude > kLargest);
      are_subnormal |= static_cast<uint32_t>(magnitude - 1 < kLeastNormal - 1);
    }
    if (beyond != 0 || are_large != 0) return false;
    const auto is_half = [](float x) { return static_cast<float>(c10::Half(x)) == x; };
    if (are_subnormal != 0 && !std::ranges::all_of(some, is_half)) return false;
  }
  return true;
}

// Tells it of a matrix. Most weights of other numbers show it in their first rows.
bool is_of_halves(const at::Tensor& matrix) {
  constexpr int64_t kRows = 64;
  return std::ranges::all_of(by_rows(matrix).split(kRows), [](const at::Tensor& rows) {
    const at::Tensor plain = rows.contiguous();
    return are_halves({plain.const_data_ptr<float>(), static_cast<size_t>(plain.numel())});
  });
}

}  // namespace

bool lies_in_half(const at::Tensor& weight) {
  constexpr int64_t kLeastElements = 1 << 18;
  return weight.scalar_type() == c10::kFloat && weight.numel() >= kLeastElements && is_of_halves(weight);
}

c10::intrusive_ptr<Packed> packed_half(const Linear& linear) {
  return c10::make_intrusive<HalfLinear>(own_copy(linear.weight, c10::kHalf), linear.bias);
}

}  // namespace onnxtorch
