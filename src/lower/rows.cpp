#include "lower/rows.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/WrapDimUtils.h>
#include <c10/util/accumulate.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "kernels/arrange.h"
#include "kernels/neighbours.h"
#include "kernels/work_memory.h"
#include "lower/cpu_features.h"
#include "lower/plain.h"
#include "lower/running.h"
#include "lower/simd/attention.h"
#include "lower/simd/rows.h"
#include "lower/top_k.h"
#include "passes/pattern.h"
#include "passes/registered.h"
#include "passes/walk.h"
#include "translate/writes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using c10::Symbol;

// --- The operators ---------------------------------------------------------------------------------------------------

bool has_rows(const at::Tensor& x) { return is_plain(x) && x.dim() > 0; }

// Shares the rows of a tensor out among the threads, as the first and how many.
template <typename Visit>
void share_rows(int64_t rows, int64_t size, const Visit& visit) {
  constexpr int64_t kGrain = 1 << 12;  // elements
  at::parallel_for(0, rows, std::max<int64_t>(worth_a_thread(kGrain) / size, 1),
                   [&](int64_t begin, int64_t end) { visit(begin, end - begin); });
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

// --- The pass --------------------------------------------------------------------------------------------------------

void find_softmax(Program& program) {
  const char* const pattern = R"(graph(%x, %dim, %dtype):
    %y : Tensor = aten::softmax(%x, %dim, %dtype)
    return (%y))";
  rewrite(program, pattern, [](const Found& found, jit::Graph& graph) -> jit::Value* {
    if (!found["dtype"]->mustBeNone() || !found.is_last("dim", "x")) return nullptr;
    return graph.insert(Symbol::fromQualString("onnx_torch::softmax"), {found["x"]});
  });
}

void find_normalized_rows(Program& program) {
  const char* const pattern = R"(graph(%x, %dims, %keep, %none, %zero, %one):
    %a : Tensor = aten::abs(%x)
    %s : Tensor = aten::sum(%a, %dims, %keep, %none)
    %z : Tensor = aten::eq(%s, %zero)
    %d : Tensor = aten::where(%z, %one, %s)
    %y : Tensor = aten::div(%x, %d)
    return (%y))";
  rewrite(program, pattern, [](const Found& found, jit::Graph& graph) -> jit::Value* {
    const bool fits = found.constants.get<std::vector<int64_t>>(found["dims"]) == std::vector<int64_t>{-1} &&
                      found.constants.get<bool>(found["keep"]) == true && found["none"]->mustBeNone() &&
                      found.is("zero", 0) && found.is("one", 1);
    return fits ? graph.insert(Symbol::fromQualString("onnx_torch::normalize_rows"), {found["x"]}) : nullptr;
  });
}

void find_labels(Program& program) {
  const char* const pattern = R"(graph(%scores, %labels, %dim, %keep, %axis):
    %i : Tensor = aten::argmax(%scores, %dim, %keep)
    %y : Tensor = aten::index_select(%labels, %axis, %i)
    return (%y))";
  rewrite(program, pattern, [](const Found& found, jit::Graph& graph) -> jit::Value* {
    const bool fits = found.is("dim", 1) && found.is("axis", 0) && found.constants.get<bool>(found["keep"]) == false;
    if (!fits) return nullptr;
    return graph.insert(Symbol::fromQualString("onnx_torch::label_of_largest"), {found["scores"], found["labels"]});
  });
}

// Whether the node takes the mean over all dimensions but the first two, and keeps these.
bool gives_channel_means(jit::Node* node, const Constants& constants) {
  if (!node->matches(
          "aten::mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor")) {
    return false;
  }
  const auto rank = node->input(0)->type()->expectRef<c10::TensorType>().sizes().size();
  const auto dims = constants(node->input(1));
  if (!rank || *rank < 3 || !dims || !dims->isIntList() || constants.get<bool>(node->input(2)) != true ||
      !node->input(3)->mustBeNone()) {
    return false;
  }
  std::vector<int64_t> given = dims->toIntVector(), expected(*rank - 2);
  for (int64_t& dim : given) dim = at::maybe_wrap_dim(dim, static_cast<int64_t>(*rank));
  std::ranges::sort(given);
  std::iota(expected.begin(), expected.end(), 2);
  return given == expected;
}

void replace_operators(Program& program) {
  const Constants constants(program);
  for_each_node(program.graph->block(), [&](jit::Node* node) {
    if (gives_channel_means(node, constants)) {
      replace(node, "onnx_torch::channel_means", node->inputs().slice(0, 1));
    } else if (node->kind() == c10::aten::argmax && constants.get<int64_t>(node->input(1))) {
      replace(node, "onnx_torch::argmax", node->inputs());
    } else if (node->kind() == c10::aten::layer_norm) {
      replace(node, "onnx_torch::layer_norm", node->inputs().slice(0, 5));
    } else if (node->kind() == c10::aten::rms_norm) {
      replace(node, "onnx_torch::rms_norm", node->inputs());
    }
  });
  eliminate_dead_code(program.graph);
}

}  // namespace

void replace_rows(Program& program) {
  register_rows();
  find_softmax(program);
  find_normalized_rows(program);
  find_labels(program);
  replace_operators(program);
  find_top_k(program);
  find_running(program);
}

}  // namespace onnxtorch
