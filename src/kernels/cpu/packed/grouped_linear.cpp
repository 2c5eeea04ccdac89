#include "kernels/cpu/packed/grouped_linear.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <algorithm>

#include "base/cpu_tensor.h"
#include "base/own_pages.h"
#include "base/parallel.h"
#include "base/work_memory.h"

namespace onnxtorch {
namespace {

int64_t parts(int64_t count, int64_t size) { return (count + size - 1) / size; }

}  // namespace

int64_t bytes_of_panels(c10::ScalarType type, int64_t in, int64_t out) {
  return parts(out, kColumnsOfGroup) * in * kColumnsOfGroup * static_cast<int64_t>(c10::elementSize(type));
}

at::Tensor in_panels(const at::Tensor& matrix) {
  const int64_t in = matrix.size(0), out = matrix.size(1), whole = out / kColumnsOfPanel, rest = out % kColumnsOfPanel;
  const c10::ScalarType type = matrix.scalar_type();
  const at::Tensor panels = own_pages(bytes_of_panels(type, in, out)).view(type).view({-1, in, kColumnsOfPanel});
  panels.narrow(0, 0, whole)
      .copy_(matrix.narrow(1, 0, whole * kColumnsOfPanel).unflatten(1, {whole, kColumnsOfPanel}).permute({1, 0, 2}));
  panels.narrow(0, whole, panels.size(0) - whole).zero_();
  if (rest > 0) panels[whole].narrow(1, 0, rest).copy_(matrix.narrow(1, whole * kColumnsOfPanel, rest));
  return panels.flatten().view(c10::kByte);
}

GroupedLinear::GroupedLinear(const at::Tensor& weight, int64_t in, int64_t out, const at::Tensor& bias)
    : weight_(weight), in_(in), out_(out), bias_(bias.defined() ? bias.to(c10::kFloat).contiguous() : bias) {}

at::Tensor GroupedLinear::run(const at::Tensor& given, at::TensorList /*operands*/) const {
  TORCH_CHECK(fits(given.sizes()) && given.is_floating_point(), "a ", given.scalar_type(), " of sizes ", given.sizes(),
              " cannot be multiplied by a weight of sizes [", in_, ", ", out_, "]");
  const at::Tensor x = given.to(c10::kFloat).contiguous();
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = out_;
  const at::Tensor y = work_tensor(sizes, c10::kFloat);
  if (x.numel() > 0) multiply(x.const_data_ptr<float>(), x.numel() / in_, y.mutable_data_ptr<float>());
  return y.to(given.scalar_type());
}

std::unique_ptr<PlannedCall> GroupedLinear::planned(const at::Tensor& x, at::TensorList /*operands*/,
                                                    const at::Tensor& y) const {
  if (!is_plain(x) || !fits(x.sizes()) || !x.is_contiguous() || !y.is_contiguous()) return {};
  const auto self = c10::intrusive_ptr<GroupedLinear>::reclaim_copy(const_cast<GroupedLinear*>(this));
  return onnxtorch::planned([self, rows = x.numel() / in_](std::span<const TensorPlace> places) {
    self->multiply(places[0].as<float>(), rows, places[1].as<float>());
  });
}

void GroupedLinear::expect(at::IntArrayRef sizes) const {
  if (fits(sizes)) panels();
}

// Multiplies groups of columns in parallel. Where there are fewer of them than threads, rows are shared out as well.
void GroupedLinear::multiply(const float* x, int64_t rows, float* y) const {
  constexpr int64_t kProductsOfCost = 4;  // so many products take as long as an element, as threads_for counts
  const at::Tensor laid = panels();
  const void* const weight = laid.const_data_ptr();
  const float* const bias = bias_.defined() ? bias_.const_data_ptr<float>() : nullptr;
  const auto [at_once, size] = kernel();
  const int64_t threads = threads_for(rows * in_ * out_ / kProductsOfCost);
  const int64_t groups = parts(out_, kColumnsOfGroup);
  const int64_t least = 16 * at_once, most = std::max<int64_t>(rows / least, 1);
  const int64_t wanted = std::clamp<int64_t>(parts(2 * threads, groups), 1, most);
  const int64_t step = parts(parts(rows, wanted), at_once) * at_once, blocks = parts(rows, step);
  const at::Tensor taken = converted(x, rows);
  const auto* const from = static_cast<const std::byte*>(taken.defined() ? taken.const_data_ptr() : x);
  const int64_t bytes_of_row = taken.defined() ? taken.size(1) : in_ * static_cast<int64_t>(sizeof(float));
  const at::Tensor room = size > 0 && rows > at_once ? work_tensor({threads, size}, c10::kFloat) : at::Tensor();
  float* const rooms = room.defined() ? room.mutable_data_ptr<float>() : nullptr;
  share_out(groups * blocks, threads, [&, size = size](int64_t number, int64_t thread) {
    const int64_t group = number / blocks, first = number % blocks * step, column = group * kColumnsOfGroup;
    multiply(weight, {.x = from + first * bytes_of_row,
                      .rows = std::min(step, rows - first),
                      .group = group,
                      .bias = bias ? bias + column : nullptr,
                      .y = y + first * out_ + column,
                      .y_apart = out_,
                      .columns = std::min(kColumnsOfGroup, out_ - column),
                      .room = rooms ? rooms + thread * size : nullptr});
  });
}

}  // namespace onnxtorch
