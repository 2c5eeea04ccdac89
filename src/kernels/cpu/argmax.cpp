#include "kernels/simd/argmax.h"

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "base/planned_call.h"
#include "base/registered.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/operators.h"
#include "kernels/cpu/rows.h"

namespace onnxtorch {
namespace {

// Returns the index of the first NaN or, where there is none, of the first of the largest elements.
size_t largest(std::span<const float> row) {
  size_t found = 0;
  for (size_t i = 1; i < row.size() && !std::isnan(row[found]); ++i) {
    if (row[i] > row[found] || std::isnan(row[i])) found = i;
  }
  return found;
}

// Does the same for a longer row, which is taken as a matrix of short rows, so that its columns are compared in SIMD
// vectors.
int64_t largest_of_many(std::span<const float> row) {
  constexpr int64_t kWidth = 16;
  const int64_t rows = std::ssize(row) / kWidth;
  if (rows < 2) return static_cast<int64_t>(largest(row));
  std::array<int32_t, kWidth> numbers;
  std::array<float, kWidth> elements;
  for_this_cpu<ArgmaxKernels>().largest_of_columns(row.data(), numbers.data(), elements.data(), rows, kWidth, kWidth);
  int64_t found = numbers[0] * kWidth;
  const auto consider = [&](int64_t i) {
    const bool is_nan = std::isnan(row[i]), found_nan = std::isnan(row[found]);
    const bool is_same = is_nan ? found_nan : row[i] == row[found];
    if (is_same ? i < found : !found_nan && (is_nan || row[i] > row[found])) found = i;
  };
  for (int64_t column = 1; column < kWidth; ++column) consider(numbers[column] * kWidth + column);
  for (int64_t i = rows * kWidth; i < std::ssize(row); ++i) consider(i);
  return found;
}

// Blocks of columns: the largest of `size` elements is looked for in each column. A block of one column is a contiguous
// row.
struct Columns {
  int64_t blocks, size, columns;
};

// Gives the blocks in which the largest elements are looked for; none where ATen looks for them.
std::optional<Columns> columns_of(const at::Tensor& x, int64_t dim) {
  if (!has_rows(x) || x.numel() > std::numeric_limits<int32_t>::max()) return {};
  dim = at::maybe_wrap_dim(dim, x.dim());
  const int64_t size = x.size(dim);
  if (x.movedim(dim, -1).is_contiguous()) return Columns{x.numel() / size, size, 1};
  if (!x.is_contiguous()) return {};
  const int64_t columns = c10::multiply_integers(x.sizes().slice(dim + 1));
  return Columns{x.numel() / size / columns, size, columns};
}

void compute(const float* from, int64_t* to, const Columns& of) {
  if (of.columns == 1) {
    return for_each_row(from, of.blocks, of.size,
                        [&](int64_t number, std::span<const float> row) { to[number] = largest_of_many(row); });
  }
  constexpr int64_t kStrip = ArgmaxKernels::kMostColumns;
  const int64_t parts = (of.columns + kStrip - 1) / kStrip;
  share_rows(of.blocks * parts, of.size * kStrip, [&](int64_t first, int64_t count) {
    std::array<int32_t, kStrip> numbers;
    std::array<float, kStrip> elements;
    for (int64_t i = first; i < first + count; ++i) {
      const int64_t block = i / parts, column = i % parts * kStrip, width = std::min(kStrip, of.columns - column);
      for_this_cpu<ArgmaxKernels>().largest_of_columns(from + block * of.size * of.columns + column, numbers.data(),
                                                       elements.data(), of.size, width, of.columns);
      std::copy_n(numbers.data(), width, to + block * of.columns + column);
    }
  });
}

at::Tensor argmax(const at::Tensor& x, int64_t dim, bool keepdim) {
  const auto columns = columns_of(x, dim);
  if (!columns) return at::argmax(x, dim, keepdim);
  dim = at::maybe_wrap_dim(dim, x.dim());
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.erase(sizes.begin() + dim);
  at::Tensor result = at::empty(sizes, x.options().dtype(c10::kLong));
  compute(x.const_data_ptr<float>(), result.mutable_data_ptr<int64_t>(), *columns);
  return keepdim ? result.unsqueeze(dim) : result;
}

std::unique_ptr<PlannedCall> plan_argmax(const PlannedOperands& of) {
  const auto columns = columns_of(of.tensor(0), of.arguments[1].toInt());
  if (!columns || !of.results[0].is_contiguous()) return {};
  return planned([columns = *columns](std::span<const TensorPlace> places) {
    compute(places[0].as<float>(), places[1].as<int64_t>(), columns);
  });
}

bool has_label_for_each(const at::Tensor& scores, const at::Tensor& labels) {
  return has_short_rows(scores) && scores.dim() == 2 && labels.scalar_type() == c10::kLong && labels.is_cpu() &&
         labels.is_contiguous() && labels.dim() == 1 && labels.size(0) >= scores.size(1);
}

void compute_labels(const float* scores, const int64_t* labels, int64_t* to, int64_t rows, int64_t size) {
  for_each_row(scores, rows, size,
               [&](int64_t number, std::span<const float> row) { to[number] = labels[largest(row)]; });
}

at::Tensor label_of_largest(const at::Tensor& scores, const at::Tensor& labels) {
  if (!has_label_for_each(scores, labels)) return at::index_select(labels, 0, at::argmax(scores, 1));
  const at::Tensor result = at::empty({scores.size(0)}, labels.options());
  compute_labels(scores.const_data_ptr<float>(), labels.const_data_ptr<int64_t>(), result.mutable_data_ptr<int64_t>(),
                 scores.size(0), scores.size(1));
  return result;
}

std::unique_ptr<PlannedCall> plan_label_of_largest(const PlannedOperands& of) {
  const at::Tensor scores = of.tensor(0);
  if (!has_label_for_each(scores, of.tensor(1))) return {};
  return planned([rows = scores.size(0), size = scores.size(1)](std::span<const TensorPlace> places) {
    compute_labels(places[0].as<float>(), places[1].as<int64_t>(), places[2].as<int64_t>(), rows, size);
  });
}

}  // namespace

void register_argmax() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def("argmax(Tensor x, int dim, bool keepdim) -> Tensor", argmax);
    m.def("label_of_largest(Tensor scores, Tensor labels) -> Tensor", label_of_largest);
  });
  register_planner("onnx_torch::argmax", plan_argmax);
  register_planner("onnx_torch::label_of_largest", plan_label_of_largest);
}

}  // namespace onnxtorch
