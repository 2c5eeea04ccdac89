// Products with a weight in float16. One of few rows is bound by memory, of which the weight takes half as much as in
// float32; for one of many rows it is widened part by part into a thread's cache.
#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <algorithm>

#include "base/own_pages.h"
#include "base/parallel.h"
#include "base/work_memory.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/onednn/laid_weight.h"
#include "kernels/cpu/onednn/packed.h"
#include "kernels/simd/half_product.h"

namespace onnxtorch {
namespace onednn {
namespace {

const HalfProductKernels& kernels() { return for_this_cpu<HalfProductKernels>(); }

int64_t parts(int64_t count, int64_t size) { return (count + size - 1) / size; }

at::Tensor own_halves(at::IntArrayRef sizes) {
  return own_pages(c10::multiply_integers(sizes) * 2).view(c10::kHalf).view(sizes);
}

// A matrix [in, out] in float16, as the kernels take it.
at::Tensor in_panels(const at::Tensor& matrix) {
  const int64_t in = matrix.size(0), out = matrix.size(1), whole = out / kHalfColumns, rest = out % kHalfColumns;
  const at::Tensor panels = own_halves({parts(out, kHalfGroup) * kHalfPanels, in, kHalfColumns});
  panels.narrow(0, 0, whole)
      .copy_(matrix.narrow(1, 0, whole * kHalfColumns).unflatten(1, {whole, kHalfColumns}).permute({1, 0, 2}));
  panels.narrow(0, whole, panels.size(0) - whole).zero_();
  if (rest > 0) panels[whole].narrow(1, 0, rest).copy_(matrix.narrow(1, whole * kHalfColumns, rest));
  return panels.flatten().view(c10::kByte);
}

// What `bytes` were made of.
at::Tensor from_panels(const at::Tensor& bytes, int64_t in, int64_t out) {
  return bytes.view(c10::kHalf).view({-1, in, kHalfColumns}).permute({1, 0, 2}).reshape({in, -1}).narrow(1, 0, out);
}

class HalfLinear final : public PackedProduct {
 public:
  HalfLinear(const at::Tensor& weight, const at::Tensor& bias)
      : laid_(weight),
        in_(weight.size(0)),
        out_(weight.size(1)),
        bias_(bias.defined() ? bias.to(c10::kFloat).contiguous() : bias) {}

  at::Tensor run(const at::Tensor& given, at::TensorList /*operands*/) const override {
    if (!is_plain(given) || !fits(given.sizes())) return by_aten(given);
    const at::Tensor x = given.contiguous();
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() = out_;
    const at::Tensor y = work_tensor(sizes, c10::kFloat);
    multiply(x.const_data_ptr<float>(), x.numel() / in_, y.mutable_data_ptr<float>());
    return y;
  }

  void expect(at::IntArrayRef sizes) const override {
    if (fits(sizes)) panels();
  }
  std::vector<SavedWeights> saved() const override { return laid_.saved(); }
  void take(std::vector<SavedWeights> saved) const override { laid_.take(saved); }

 private:
  bool fits(at::IntArrayRef sizes) const { return !sizes.empty() && sizes.back() == in_; }

  at::Tensor panels() const {
    const int64_t bytes = parts(out_, kHalfGroup) * in_ * kHalfGroup * 2;
    return laid_.get({.name = "float16 panels",
                      .lay = in_panels,
                      .restore = [in = in_, out = out_](const at::Tensor& laid) { return from_panels(laid, in, out); },
                      .sound = [bytes](const at::Tensor& laid) { return laid.numel() == bytes; }});
  }

  // Where there are fewer groups of columns than threads, rows are shared out as well.
  void multiply(const float* x, int64_t rows, float* y) const {
    constexpr int64_t kProductsOfCost = 4;  // that take as long as an element, as threads_for counts
    const at::Tensor laid = panels();
    const auto* const weight = static_cast<const uint16_t*>(laid.const_data_ptr());
    const float* const bias = bias_.defined() ? bias_.const_data_ptr<float>() : nullptr;
    const int64_t threads = threads_for(rows * in_ * out_ / kProductsOfCost);
    const int64_t groups = parts(out_, kHalfGroup), at_once = kernels().rows_at_once;
    const int64_t least = 16 * at_once, most = std::max<int64_t>(rows / least, 1);
    const int64_t wanted = std::clamp<int64_t>(parts(2 * threads, groups), 1, most);
    const int64_t step = parts(parts(rows, wanted), at_once) * at_once, blocks = parts(rows, step);
    const at::Tensor room = rows > at_once ? work_tensor({threads, kernels().room}, c10::kFloat) : at::Tensor();
    float* const rooms = room.defined() ? room.mutable_data_ptr<float>() : nullptr;
    share_out(groups * blocks, threads, [&](int64_t number, int64_t thread) {
      const int64_t group = number / blocks, first = number % blocks * step, column = group * kHalfGroup;
      kernels().multiply(x + first * in_, std::min(step, rows - first), in_, weight + column * in_,
                         bias ? bias + column : nullptr, y + first * out_ + column, out_,
                         std::min(kHalfGroup, out_ - column), rooms + thread * kernels().room);
    });
  }

  at::Tensor by_aten(const at::Tensor& x) const {
    const at::Tensor y = at::matmul(x, laid_.plain().to(c10::kFloat));
    return bias_.defined() ? at::add(y, bias_) : y;
  }

  const LaidWeight laid_;
  const int64_t in_, out_;
  const at::Tensor bias_;
};

// The matrix in the order in which its elements lie.
at::Tensor by_rows(const at::Tensor& matrix) { return matrix.stride(0) < matrix.stride(1) ? matrix.t() : matrix; }

// Whether each element is a finite number of float16. Most weights are told from that by their first rows.
bool is_of_halves(const at::Tensor& matrix) {
  constexpr int64_t kRows = 64;
  return std::ranges::all_of(by_rows(matrix).split(kRows), [](const at::Tensor& rows) {
    const at::Tensor rounded = rows.to(c10::kHalf);
    return at::equal(rounded.to(c10::kFloat), rows) && at::isfinite(rounded).all().item<bool>();
  });
}

at::Tensor in_halves(const at::Tensor& matrix) {
  const at::Tensor rows = by_rows(matrix), result = own_halves(rows.sizes()).copy_(rows);
  return rows.is_same(matrix) ? result : result.t();
}

}  // namespace
}  // namespace onednn

bool lies_in_half(const at::Tensor& weight) {
  constexpr int64_t kLeastElements = 1 << 18;
  return weight.scalar_type() == c10::kFloat && weight.numel() >= kLeastElements && onednn::is_of_halves(weight);
}

c10::intrusive_ptr<Packed> packed_half(const Linear& linear) {
  return c10::make_intrusive<onednn::HalfLinear>(onednn::in_halves(linear.weight), linear.bias);
}

}  // namespace onnxtorch
