// DynamicTimeWarping of com.microsoft: the cheapest path from the first to the last element of a matrix, by steps down,
// to the right, or both.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace onnxtorch {
namespace {

using at::Tensor;

enum class Step : uint8_t { Both, Down, Right };

// Tells the last step of the cheapest path to an element, given the costs of the paths to where it may come from. A step
// to the right is one that no other is cheaper than, NaN included.
Step last_step(float both, float down, float right) {
  if (both < down && both < right) return Step::Both;
  return down < both && down < right ? Step::Down : Step::Right;
}

// Gives the last step to each element.
Tensor last_steps(const Tensor& costs) {
  const int64_t rows = costs.size(0), columns = costs.size(1);
  constexpr float kOutside = std::numeric_limits<float>::infinity();
  Tensor steps = at::empty({rows, columns}, at::kByte);
  const float* cost = costs.const_data_ptr<float>();
  auto* step = steps.mutable_data_ptr<uint8_t>();
  std::vector<float> paths(columns + 1, kOutside);  // to the elements of the row above, the one before the first first
  paths[0] = 0;
  for (int64_t row = 0; row < rows; ++row) {
    float both = std::exchange(paths[0], kOutside);
    for (int64_t column = 0; column < columns; ++column, ++cost, ++step) {
      const float down = paths[column + 1], right = paths[column];
      const Step last = last_step(both, down, right);
      paths[column + 1] = *cost + (last == Step::Both ? both : last == Step::Down ? down : right);
      both = down;
      *step = static_cast<uint8_t>(last);
    }
  }
  return steps;
}

Tensor dynamic_time_warping(const Tensor& costs) {
  TORCH_CHECK_VALUE(costs.dim() == 2, "dynamic_time_warping takes a tensor of shape [M, N], not ", costs.sizes());
  const Tensor steps = last_steps(costs.cpu().contiguous());
  const auto* step = steps.const_data_ptr<uint8_t>();
  std::vector<int32_t> path_rows, path_columns;
  int64_t row = steps.size(0) - 1, column = steps.size(1) - 1;
  while (std::min(row, column) >= 0) {
    path_rows.push_back(static_cast<int32_t>(row));
    path_columns.push_back(static_cast<int32_t>(column));
    const auto last = static_cast<Step>(step[row * steps.size(1) + column]);
    row -= last != Step::Right;
    column -= last != Step::Down;
  }
  Tensor path = at::empty({2, static_cast<int64_t>(path_rows.size())}, at::kInt);
  auto* to = path.mutable_data_ptr<int32_t>();
  std::ranges::reverse_copy(path_columns, std::ranges::reverse_copy(path_rows, to).out);
  return path.to(costs.device());
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(onnx_torch, m) {
  // The rows and the columns [2, L] of the L elements of the cheapest path through `costs` [M, N].
  m.def("dynamic_time_warping(Tensor costs) -> Tensor");
  m.impl("dynamic_time_warping", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(dynamic_time_warping));
}

}  // namespace onnxtorch
