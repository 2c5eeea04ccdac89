#include "kernels/simd/rotary.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/memory_order.h"
#include "base/parallel.h"
#include "base/registered.h"
#include "base/work_memory.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/operators.h"

namespace onnxtorch {
namespace {

// A quarter of a turn: the pairs [a, b] become [-b, a]. Without a half, they are neighbours.
at::Tensor quarter_turn(const at::Tensor& x, std::optional<int64_t> half) {
  if (half) return at::cat({x.slice(-1, half).neg(), x.slice(-1, 0, half)}, -1);
  return at::stack({x.slice(-1, 1, std::nullopt, 2).neg(), x.slice(-1, 0, std::nullopt, 2)}, -1).flatten(-2);
}

bool has_plain_rows(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == c10::kFloat && x.layout() == c10::kStrided && x.dim() > 0 &&
         x.stride(-1) == 1;
}

// Where a row begins, of those along the last dimension.
int64_t place_of_row(int64_t row, const at::Tensor& tensor) {
  int64_t place = 0;
  for (int64_t d = tensor.dim() - 2; d >= 0; --d) {
    place += row % tensor.size(d) * tensor.stride(d);
    row /= tensor.size(d);
  }
  return place;
}

at::Tensor rotary_embedding(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                            std::optional<int64_t> half) {
  const auto is_for_rows = [&](const at::Tensor& factor) {
    return has_plain_rows(factor) && factor.size(-1) == x.size(-1) && at::is_expandable_to(factor.sizes(), x.sizes());
  };
  const bool fits = has_plain_rows(x) && x.numel() > 0 && x.size(-1) % 2 == 0 &&
                    half.value_or(x.size(-1) / 2) == x.size(-1) / 2 && is_for_rows(cos) && is_for_rows(sin);
  if (!fits) return quarter_turn(x, half) * sin + x * cos;

  constexpr int64_t kCost = 4;  // of an element
  std::vector<int64_t> order = order_of(x.strides().slice(0, x.dim() - 1));
  order.push_back(x.dim() - 1);
  const at::Tensor result = x.is_non_overlapping_and_dense()
                                ? work_tensor_over(x)
                                : work_tensor(x.sizes(), strides_of(x.sizes().vec(), order), c10::kFloat);
  const at::Tensor from = x.permute(order), to = result.permute(order);
  const at::Tensor cosines = cos.expand(x.sizes()).permute(order), sines = sin.expand(x.sizes()).permute(order);
  const int64_t size = from.size(-1), along = from.dim() > 1 ? from.size(-2) : 1;
  const auto step = [](const at::Tensor& tensor) { return tensor.dim() > 1 ? tensor.stride(-2) : 0; };
  const auto& kernels = for_this_cpu<RotaryKernels>();
  const auto turn = half ? kernels.turn_halves : kernels.turn_pairs;
  parallel_for(from.numel() / size, kCost * size, [&](int64_t row, int64_t end) {
    while (row < end) {
      const auto* read = from.const_data_ptr<float>() + place_of_row(row, from);
      const auto* c = cosines.const_data_ptr<float>() + place_of_row(row, cosines);
      const auto* s = sines.const_data_ptr<float>() + place_of_row(row, sines);
      auto* write = to.mutable_data_ptr<float>() + place_of_row(row, to);
      for (const int64_t next = std::min(end, row - row % along + along); row < next; ++row) {
        turn(read, c, s, write, size / 2);
        read += step(from);
        c += step(cosines);
        s += step(sines);
        write += step(to);
      }
    }
  });
  return result;
}

}  // namespace

void register_rotary_embedding() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def("rotary_embedding(Tensor x, Tensor cos, Tensor sin, int? half) -> Tensor", rotary_embedding);
  });
}

}  // namespace onnxtorch
