#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "base/arrange.h"
#include "base/cpu_tensor.h"
#include "base/parallel.h"
#include "base/planned_call.h"
#include "base/registered.h"
#include "base/work_memory.h"
#include "kernels/cpu/operators.h"

namespace onnxtorch {
namespace {

// Blocks of rows: `rows` rows are made from the `size` rows of each block.
struct Blocks {
  int64_t count, size, rows, columns, taps;
};

// Computes each row as a weighted sum of rows. Products and sums are rounded one by one, in the order of the taps.
template <typename T>
void resample(const T* x, T* y, const int64_t* indices, const T* taps, const Blocks& blocks) {
  constexpr int64_t kCost = 8;         // of an element for each tap
  constexpr int64_t kStrip = 1 << 11;  // elements, which stay in the level 1 cache
  parallel_for(blocks.count * blocks.rows, kCost * blocks.columns * blocks.taps, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* const block = x + i / blocks.rows * blocks.size * blocks.columns;
      const int64_t* const index = indices + i % blocks.rows * blocks.taps;
      const T* const tap = taps + i % blocks.rows * blocks.taps;
      if (blocks.columns == 1) {
        T sum = block[index[0]] * tap[0];
        for (int64_t k = 1; k < blocks.taps; ++k) sum = sum + block[index[k]] * tap[k];
        y[i] = sum;
        continue;
      }
      for (int64_t start = 0; start < blocks.columns; start += kStrip) {
        const int64_t width = std::min(kStrip, blocks.columns - start);
        T* const to = y + i * blocks.columns + start;
        for (int64_t k = 0; k < blocks.taps; ++k) {
          const T* const from = block + index[k] * blocks.columns + start;
          const T weight = tap[k];
          if (k == 0) {
            for (int64_t c = 0; c < width; ++c) to[c] = from[c] * weight;
          } else {
            for (int64_t c = 0; c < width; ++c) to[c] = to[c] + from[c] * weight;
          }
        }
      }
    }
  });
}

at::Tensor resample_by_aten(const at::Tensor& x, int64_t axis, const at::Tensor& indices, const at::Tensor& taps) {
  std::vector<int64_t> shape(x.dim() - axis, 1);
  shape[0] = -1;
  at::Tensor result;
  for (int64_t k = 0; k < taps.size(1); ++k) {
    const at::Tensor part = x.index_select(axis, indices.select(1, k)) * taps.select(1, k).reshape(shape);
    result = k == 0 ? part : result + part;
  }
  return result;
}

bool fits(const at::Tensor& x, const at::Tensor& indices, const at::Tensor& taps) {
  const auto type = x.scalar_type();
  return (type == c10::kFloat || type == c10::kDouble) && is_plain(x, type) && is_plain(indices, c10::kLong) &&
         is_plain(taps, type) && indices.sizes() == taps.sizes();
}

Blocks blocks_of(const at::Tensor& x, int64_t axis, const at::Tensor& taps) {
  return {c10::multiply_integers(x.sizes().slice(0, axis)), x.size(axis), taps.size(0),
          c10::multiply_integers(x.sizes().slice(axis + 1)), taps.size(1)};
}

bool are_inside(const int64_t* indices, const Blocks& blocks) {
  return std::all_of(indices, indices + blocks.rows * blocks.taps,
                     [&](int64_t index) { return index >= 0 && index < blocks.size; });
}

at::Tensor resample(const at::Tensor& x, int64_t axis, const at::Tensor& given_indices, const at::Tensor& given_taps) {
  axis = at::maybe_wrap_dim(axis, x.dim());
  const at::Tensor indices = given_indices.contiguous(), taps = given_taps.contiguous();
  if (!fits(x, indices, taps)) return resample_by_aten(x, axis, indices, taps);
  const Blocks blocks = blocks_of(x, axis, taps);
  if (!are_inside(indices.const_data_ptr<int64_t>(), blocks)) return resample_by_aten(x, axis, indices, taps);
  const at::Tensor from = contiguous(x);
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes[axis] = taps.size(0);
  const at::Tensor y = work_tensor(sizes, x.scalar_type());
  const auto run = [&]<typename T>(T) {
    resample(from.const_data_ptr<T>(), y.mutable_data_ptr<T>(), indices.const_data_ptr<int64_t>(),
             taps.const_data_ptr<T>(), blocks);
  };
  x.scalar_type() == c10::kFloat ? run(float()) : run(double());
  return y;
}

template <typename T>
std::unique_ptr<PlannedCall> planned_resample(const Blocks& blocks) {
  return planned([blocks](std::span<const TensorPlace> places) {
    const auto* const indices = places[1].as<int64_t>();
    TORCH_CHECK_INDEX(are_inside(indices, blocks), "an index is out of range");
    resample(places[0].as<T>(), places[3].as<T>(), indices, places[2].as<T>(), blocks);
  });
}

std::unique_ptr<PlannedCall> plan(const PlannedOperands& of) {
  const at::Tensor x = of.tensor(0), indices = of.tensor(2), taps = of.tensor(3);
  const bool lies_well = fits(x, indices, taps) && x.is_contiguous() && indices.is_contiguous() &&
                         taps.is_contiguous() && of.results[0].is_contiguous();
  if (!lies_well) return {};
  const Blocks blocks = blocks_of(x, at::maybe_wrap_dim(of.arguments[1].toInt(), x.dim()), taps);
  return x.scalar_type() == c10::kFloat ? planned_resample<float>(blocks) : planned_resample<double>(blocks);
}

}  // namespace

void register_resample() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def("resample(Tensor x, int axis, Tensor indices, Tensor taps) -> Tensor",
          static_cast<at::Tensor (*)(const at::Tensor&, int64_t, const at::Tensor&, const at::Tensor&)>(resample));
  });
  register_planner("onnx_torch::resample", plan);
}

}  // namespace onnxtorch
