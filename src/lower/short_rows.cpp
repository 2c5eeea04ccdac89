#include "lower/short_rows.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "passes/pattern.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using c10::Symbol;

// --- The operators ---------------------------------------------------------------------------------------------------

constexpr int64_t kLongest = 16;

bool has_short_rows(const at::Tensor& x) {
  return x.scalar_type() == c10::kFloat && x.is_cpu() && x.numel() > 0 && x.dim() > 0 && x.size(-1) <= kLongest &&
         x.is_contiguous();
}

// Visits each row, as the number and the elements.
template <typename Visit>
void for_each_row(const at::Tensor& x, const Visit& visit) {
  constexpr int64_t kGrain = 1 << 12;  // elements
  const int64_t size = x.size(-1);
  const auto* const data = x.const_data_ptr<float>();
  at::parallel_for(0, x.numel() / size, std::max<int64_t>(kGrain / size, 1), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) visit(row, std::span(data + row * size, size));
  });
}

at::Tensor softmax(const at::Tensor& x) {
  if (!has_short_rows(x)) return at::softmax(x, -1);
  const at::Tensor result = at::empty(x.sizes(), x.options());
  auto* const to = result.mutable_data_ptr<float>();
  for_each_row(x, [&](int64_t number, std::span<const float> row) {
    const std::span<float> y(to + number * std::ssize(row), row.size());
    const float largest = *std::ranges::max_element(row);
    std::ranges::transform(row, y.begin(), [&](float value) { return std::exp(value - largest); });
    const float total = std::accumulate(y.begin(), y.end(), 0.F);
    for (float& value : y) value /= total;
  });
  return result;
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

void register_short_rows() {
  static const torch::Library library = [] {
    torch::Library m(torch::Library::FRAGMENT, "onnx_torch", {}, __FILE__, __LINE__);
    m.def("softmax(Tensor x) -> Tensor", softmax);
    m.def("normalize_rows(Tensor x) -> Tensor", normalize_rows);
    m.def("label_of_largest(Tensor scores, Tensor labels) -> Tensor", label_of_largest);
    return m;
  }();
}

// --- The pass --------------------------------------------------------------------------------------------------------

// Whether a dimension is known to be the last of the tensor's.
bool is_last(const Found& found, const char* dim, const char* tensor) {
  const auto known = found.constants.number(found[dim]);
  const auto rank = found[tensor]->type()->expectRef<c10::TensorType>().sizes().size();
  return known && (*known == -1 || (rank && *known == static_cast<double>(*rank) - 1));
}

void find_softmax(Program& program) {
  const char* const pattern = R"(graph(%x, %dim, %dtype):
    %y : Tensor = aten::softmax(%x, %dim, %dtype)
    return (%y))";
  rewrite(program, pattern, [](const Found& found, jit::Graph& graph) -> jit::Value* {
    if (!found["dtype"]->mustBeNone() || !is_last(found, "dim", "x")) return nullptr;
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

}  // namespace

void find_short_rows(Program& program) {
  register_short_rows();
  find_softmax(program);
  find_normalized_rows(program);
  find_labels(program);
}

}  // namespace onnxtorch
