// Products with a weight in float16. One of few rows is bound by memory, of which the weight takes half as much as in
// float32; for one of many rows it is widened part by part into a thread's cache.
#include <ATen/ATen.h>

#include <algorithm>

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

// Tells whether each element is a finite number of float16. Most weights that are not so show it in their first rows.
bool is_of_halves(const at::Tensor& matrix) {
  constexpr int64_t kRows = 64;
  return std::ranges::all_of(by_rows(matrix).split(kRows), [](const at::Tensor& rows) {
    const at::Tensor rounded = rows.to(c10::kHalf);
    return at::equal(rounded.to(c10::kFloat), rows) && at::isfinite(rounded).all().item<bool>();
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
