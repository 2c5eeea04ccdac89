#include "kernels/simd/rotary.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <vector>

#include "base/memory_order.h"
#include "base/parallel.h"
#include "base/planned_call.h"
#include "base/registered.h"
#include "base/work_memory.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/operators.h"

namespace onnxtorch {
namespace {

// Makes a quarter of a turn: the pairs [a, b] become [-b, a]. Without a half, the elements of a pair are neighbours.
at::Tensor quarter_turn(const at::Tensor& x, std::optional<int64_t> half) {
  if (half) return at::cat({x.slice(-1, half).neg(), x.slice(-1, 0, half)}, -1);
  return at::stack({x.slice(-1, 1, std::nullopt, 2).neg(), x.slice(-1, 0, std::nullopt, 2)}, -1).flatten(-2);
}

bool has_plain_rows(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == c10::kFloat && x.layout() == c10::kStrided && x.dim() > 0 &&
         x.stride(-1) == 1;
}

// The rows along the last dimension of x, cos, sin and the result, in the order of x's memory.
struct Turns {
  std::vector<int64_t> sizes;                   // of the dimensions of rows, the innermost last
  std::array<std::vector<int64_t>, 4> strides;  // of each tensor
  int64_t size;                                 // of a row
  decltype(RotaryKernels::turn_halves) turn;

  int64_t rows() const { return c10::multiply_integers(sizes); }
  int64_t along() const { return sizes.empty() ? 1 : sizes.back(); }
  int64_t step(size_t tensor) const { return sizes.empty() ? 0 : strides[tensor].back(); }

  int64_t place_of_row(int64_t row, size_t tensor) const {
    int64_t place = 0;
    for (size_t d = sizes.size(); d-- > 0; row /= sizes[d]) place += row % sizes[d] * strides[tensor][d];
    return place;
  }
};

// Gives the dimensions in their order of memory, but that of a row's elements last.
std::vector<int64_t> order_of_rows(const at::Tensor& x) {
  std::vector<int64_t> order = order_of(x.strides().slice(0, x.dim() - 1));
  order.push_back(x.dim() - 1);
  return order;
}

Turns turns(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, const at::Tensor& result, bool halves) {
  const auto& kernels = for_this_cpu<RotaryKernels>();
  Turns of{.sizes = {}, .strides = {}, .size = x.size(-1), .turn = halves ? kernels.turn_halves : kernels.turn_pairs};
  const std::vector<int64_t> order = order_of_rows(x);
  const std::array<at::Tensor, 4> tensors{x, cos.expand(x.sizes()), sin.expand(x.sizes()), result};
  for (const int64_t d : std::span(order).first(order.size() - 1)) {
    of.sizes.push_back(x.size(d));
    for (size_t i = 0; i < tensors.size(); ++i) of.strides[i].push_back(tensors[i].stride(d));
  }
  return of;
}

void compute(const Turns& of, const float* x, const float* cos, const float* sin, float* result) {
  constexpr int64_t kCost = 4;  // of an element
  const int64_t along = of.along();
  parallel_for(of.rows(), kCost * of.size, [&](int64_t row, int64_t end) {
    while (row < end) {
      const auto* read = x + of.place_of_row(row, 0);
      const auto* c = cos + of.place_of_row(row, 1);
      const auto* s = sin + of.place_of_row(row, 2);
      auto* write = result + of.place_of_row(row, 3);
      for (const int64_t next = std::min(end, row - row % along + along); row < next; ++row) {
        of.turn(read, c, s, write, of.size / 2);
        read += of.step(0);
        c += of.step(1);
        s += of.step(2);
        write += of.step(3);
      }
    }
  });
}

bool fits(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, std::optional<int64_t> half) {
  const auto is_for_rows = [&](const at::Tensor& factor) {
    return has_plain_rows(factor) && factor.size(-1) == x.size(-1) && at::is_expandable_to(factor.sizes(), x.sizes());
  };
  return has_plain_rows(x) && x.numel() > 0 && x.size(-1) % 2 == 0 && half.value_or(x.size(-1) / 2) == x.size(-1) / 2 &&
         is_for_rows(cos) && is_for_rows(sin);
}

at::Tensor rotary_embedding(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                            std::optional<int64_t> half) {
  if (!fits(x, cos, sin, half)) return quarter_turn(x, half) * sin + x * cos;
  const at::Tensor result = x.is_non_overlapping_and_dense()
                                ? work_tensor_over(x)
                                : work_tensor(x.sizes(), strides_of(x.sizes().vec(), order_of_rows(x)), c10::kFloat);
  compute(turns(x, cos, sin, result, half.has_value()), x.const_data_ptr<float>(), cos.const_data_ptr<float>(),
          sin.const_data_ptr<float>(), result.mutable_data_ptr<float>());
  return result;
}

std::unique_ptr<PlannedCall> plan(const PlannedOperands& of) {
  const at::Tensor x = of.tensor(0), cos = of.tensor(1), sin = of.tensor(2);
  const auto half = of.arguments[3].toOptional<int64_t>();
  if (!fits(x, cos, sin, half)) return {};
  return planned([work = turns(x, cos, sin, of.results[0], half.has_value())](std::span<const TensorPlace> places) {
    compute(work, places[0].as<float>(), places[1].as<float>(), places[2].as<float>(), places[3].as<float>());
  });
}

}  // namespace

void register_rotary_embedding() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def("rotary_embedding(Tensor x, Tensor cos, Tensor sin, int? half) -> Tensor", rotary_embedding);
  });
  register_planner("onnx_torch::rotary_embedding", plan);
}

}  // namespace onnxtorch
