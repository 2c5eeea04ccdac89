#include "kernels/simd/rows.h"

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "base/arrange.h"
#include "base/cpu_tensor.h"
#include "base/parallel.h"
#include "base/registered.h"
#include "base/work_memory.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/operators.h"
#include "kernels/simd/attention.h"

namespace onnxtorch {
namespace {

bool has_rows(const at::Tensor& x) { return is_plain(x) && x.dim() > 0; }

// Shares the rows of a tensor out among the threads, as the first and how many.
template <typename Visit>
void share_rows(int64_t rows, int64_t size, const Visit& visit) {
  constexpr int64_t kCost = 8;  // of an element
  parallel_for(rows, kCost * size, [&](int64_t begin, int64_t end) { visit(begin, end - begin); });
}

// Visits each row, as the number and the elements.
template <typename Visit>
void for_each_row(const at::Tensor& x, const Visit& visit) {
  const int64_t size = x.size(-1);
  const auto* const data = x.const_data_ptr<float>();
  share_rows(x.numel() / size, size, [&](int64_t first, int64_t count) {
    for (int64_t row = first; row < first + count; ++row) visit(row, std::span(data + row * size, size));
  });
}

// For what is computed of each row.
at::Tensor rows_over(const at::Tensor& x) {
  return x.is_contiguous() ? work_tensor_over(x) : work_tensor(x.sizes(), c10::kFloat);
}

constexpr int64_t kLongest = 16;  // for which there is nothing to be done side by side

bool has_short_rows(const at::Tensor& x) { return has_rows(x) && x.size(-1) <= kLongest && x.is_contiguous(); }

at::Tensor softmax(const at::Tensor& x) {
  if (!has_rows(x)) return at::softmax(x, -1);
  const at::Tensor y = rows_over(x), rows = contiguous(x);
  const int64_t size = x.size(-1);
  const auto* const from = rows.const_data_ptr<float>();
  auto* const to = y.mutable_data_ptr<float>();
  share_rows(x.numel() / size, size, [&](int64_t first, int64_t count) {
    for_this_cpu<AttentionKernels>().softmax_rows(from + first * size, to + first * size, count, size);
  });
  return y;
}

// What normalizes the last dimensions, of these sizes.
struct RowNorm {
  at::IntArrayRef shape;
  std::optional<at::Tensor> weight, bias;
  double eps;
};

bool fits(const at::Tensor& x, const RowNorm& norm) {
  const auto dims = static_cast<int64_t>(norm.shape.size());
  const auto is_one_per_element = [&](const std::optional<at::Tensor>& t) {
    return !t || (is_plain(*t) && t->sizes() == norm.shape && t->is_contiguous());
  };
  return is_plain(x) && dims > 0 && x.dim() >= dims && x.sizes().slice(x.dim() - dims) == norm.shape &&
         is_one_per_element(norm.weight) && is_one_per_element(norm.bias);
}

at::Tensor normalized(const at::Tensor& x, const RowNorm& norm, decltype(RowKernels::layer_norm_rows) normalize) {
  const auto data = [](const std::optional<at::Tensor>& t) { return t ? t->const_data_ptr<float>() : nullptr; };
  const RowAffine affine{data(norm.weight), data(norm.bias)};
  at::Tensor y = rows_over(x);
  const at::Tensor rows = contiguous(x);
  const int64_t size = c10::multiply_integers(norm.shape);
  const auto* const from = rows.const_data_ptr<float>();
  auto* const to = y.mutable_data_ptr<float>();
  share_rows(x.numel() / size, size, [&](int64_t first, int64_t count) {
    normalize(from + first * size, to + first * size, count, size, affine, norm.eps);
  });
  return y;
}

at::Tensor layer_norm(const at::Tensor& x, at::IntArrayRef shape, const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias, double eps) {
  const RowNorm norm{shape, weight, bias, eps};
  return fits(x, norm) ? normalized(x, norm, for_this_cpu<RowKernels>().layer_norm_rows)
                       : at::layer_norm(x, shape, weight, bias, eps);
}

at::Tensor rms_norm(const at::Tensor& x, at::IntArrayRef shape, const std::optional<at::Tensor>& weight,
                    std::optional<double> eps) {
  const RowNorm norm{shape, weight, {}, eps.value_or(std::numeric_limits<float>::epsilon())};
  return fits(x, norm) ? normalized(x, norm, for_this_cpu<RowKernels>().rms_norm_rows)
                       : at::rms_norm(x, shape, weight, eps);
}

// Rows divided by the sum of their elements' absolute values, unless that is 0.
at::Tensor normalize_rows(const at::Tensor& x) {
  if (!has_short_rows(x)) {
    const at::Tensor size = at::sum(at::abs(x), {-1}, /*keepdim=*/true);
    return at::div(x, at::where(at::eq(size, 0), 1.0, size));
  }
  const at::Tensor result = at::empty(x.sizes(), x.options());
  auto* const to = result.mutable_data_ptr<float>();
  for_each_row(x, [&](int64_t number, std::span<const float> row) {
    const float size =
        std::accumulate(row.begin(), row.end(), 0.F, [](float sum, float value) { return sum + std::abs(value); });
    const float divisor = size == 0 ? 1 : size;
    std::ranges::transform(row, to + number * std::ssize(row), [&](float value) { return value / divisor; });
  });
  return result;
}

// The first of the largest elements, or of those that are NaN.
size_t largest(std::span<const float> row) {
  size_t found = 0;
  for (size_t i = 1; i < row.size() && !std::isnan(row[found]); ++i) {
    if (row[i] > row[found] || std::isnan(row[i])) found = i;
  }
  return found;
}

// The same of a longer row, taken as short ones below one another, whose columns are compared side by side.
int64_t largest_of_many(std::span<const float> row) {
  constexpr int64_t kWidth = 16;
  const int64_t rows = std::ssize(row) / kWidth;
  if (rows < 2) return static_cast<int64_t>(largest(row));
  std::array<int32_t, kWidth> numbers;
  std::array<float, kWidth> elements;
  for_this_cpu<RowKernels>().largest_of_columns(row.data(), numbers.data(), elements.data(), rows, kWidth, kWidth);
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

at::Tensor argmax(const at::Tensor& x, int64_t dim, bool keepdim) {
  const bool fits = has_rows(x) && x.numel() <= std::numeric_limits<int32_t>::max();
  dim = at::maybe_wrap_dim(dim, x.dim());
  const bool lies_in_rows = fits && x.movedim(dim, -1).is_contiguous();
  if (!lies_in_rows && !(fits && x.is_contiguous())) return at::argmax(x, dim, keepdim);
  std::vector<int64_t> sizes = x.sizes().vec();
  const int64_t size = sizes[dim];
  sizes.erase(sizes.begin() + dim);
  at::Tensor result = at::empty(sizes, x.options().dtype(c10::kLong));
  auto* const to = result.mutable_data_ptr<int64_t>();
  if (lies_in_rows) {
    for_each_row(x.movedim(dim, -1),
                 [&](int64_t number, std::span<const float> row) { to[number] = largest_of_many(row); });
  } else {
    const int64_t columns = c10::multiply_integers(x.sizes().slice(dim + 1)),
                  parts = (columns + kMostMeans - 1) / kMostMeans;
    const auto* const from = x.const_data_ptr<float>();
    share_rows(x.numel() / size / columns * parts, size * kMostMeans, [&](int64_t first, int64_t count) {
      std::array<int32_t, kMostMeans> numbers;
      std::array<float, kMostMeans> elements;
      for (int64_t i = first; i < first + count; ++i) {
        const int64_t block = i / parts, column = i % parts * kMostMeans,
                      width = std::min(kMostMeans, columns - column);
        for_this_cpu<RowKernels>().largest_of_columns(from + block * size * columns + column, numbers.data(),
                                                      elements.data(), size, width, columns);
        std::copy_n(numbers.data(), width, to + block * columns + column);
      }
    });
  }
  return keepdim ? result.unsqueeze(dim) : result;
}

at::Tensor label_of_largest(const at::Tensor& scores, const at::Tensor& labels) {
  const bool fits = has_short_rows(scores) && scores.dim() == 2 && labels.scalar_type() == c10::kLong &&
                    labels.is_cpu() && labels.is_contiguous() && labels.dim() == 1 && labels.size(0) >= scores.size(1);
  if (!fits) return at::index_select(labels, 0, at::argmax(scores, 1));
  const at::Tensor result = at::empty({scores.size(0)}, labels.options());
  const auto* const from = labels.const_data_ptr<int64_t>();
  auto* const to = result.mutable_data_ptr<int64_t>();
  for_each_row(scores, [&](int64_t number, std::span<const float> row) { to[number] = from[largest(row)]; });
  return result;
}

// The mean of each channel, with dimensions of size 1 for those that are gone. An image that lies channels-last is rows
// of channels.
at::Tensor channel_means(const at::Tensor& x) {
  const bool fits = is_plain(x) && x.dim() >= 3 && x.movedim(1, -1).is_contiguous();
  if (!fits) {
    std::vector<int64_t> dims(std::max<int64_t>(x.dim() - 2, 0));
    std::iota(dims.begin(), dims.end(), 2);
    return at::mean(x, dims, /*keepdim=*/true);
  }
  const int64_t channels = x.size(1), rows = x.numel() / x.size(0) / channels;
  std::vector<int64_t> sizes(x.dim(), 1);
  std::ranges::copy(x.sizes().slice(0, 2), sizes.begin());
  at::Tensor y = at::empty(sizes, x.options());
  const auto* const from = x.const_data_ptr<float>();
  auto* const to = y.mutable_data_ptr<float>();
  const int64_t parts = (channels + kMostMeans - 1) / kMostMeans;
  share_rows(x.size(0) * parts, rows * kMostMeans, [&](int64_t first, int64_t count) {
    for (int64_t i = first; i < first + count; ++i) {
      const int64_t sample = i / parts, channel = i % parts * kMostMeans;
      for_this_cpu<RowKernels>().mean_of_rows(from + sample * rows * channels + channel,
                                              to + sample * channels + channel, rows,
                                              std::min(kMostMeans, channels - channel), channels);
    }
  });
  return y;
}

}  // namespace

void register_rows() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def("softmax(Tensor x) -> Tensor", softmax);
    m.def("layer_norm(Tensor x, int[] shape, Tensor? weight, Tensor? bias, float eps) -> Tensor", layer_norm);
    m.def("rms_norm(Tensor x, int[] shape, Tensor? weight, float? eps) -> Tensor", rms_norm);
    m.def("channel_means(Tensor x) -> Tensor", channel_means);
    m.def("normalize_rows(Tensor x) -> Tensor", normalize_rows);
    m.def("argmax(Tensor x, int dim, bool keepdim) -> Tensor", argmax);
    m.def("label_of_largest(Tensor scores, Tensor labels) -> Tensor", label_of_largest);
  });
}

}  // namespace onnxtorch
