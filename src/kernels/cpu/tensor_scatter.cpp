#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/arrange.h"
#include "base/grown_in_place.h"
#include "base/planned_call.h"
#include "base/registered.h"
#include "base/work_memory.h"
#include "kernels/cpu/call_script.h"
#include "kernels/cpu/operators.h"

namespace onnxtorch {
namespace {

using at::Tensor;

struct Scatter {
  int64_t axis;
  bool is_circular;
};

// Gives where the rows of a sequence begin in the cache: at its first row where there are no starts.
int64_t start_of(const int64_t* starts, int64_t batch) { return starts ? starts[batch] : 0; }

// Writes rows of each sequence into the cache, from a place of its own on.
void write_rows(const Tensor& cache, const Tensor& update, const int64_t* starts, const Scatter& of) {
  const int64_t length = cache.size(of.axis), rows = update.size(of.axis);
  for (int64_t b = 0; b < cache.size(0); ++b) {
    const Tensor to = cache.select(0, b), from = update.select(0, b);
    const int64_t first = start_of(starts, b) % length;
    for (int64_t row = 0; row < rows;) {
      const int64_t start = (first + row) % length, count = std::min(rows - row, length - start);
      copy_into(to, of.axis - 1, start, from.narrow(of.axis - 1, row, count));
      row += count;
    }
  }
}

bool are_within(const Tensor& cache, const Tensor& update, const int64_t* starts, const Scatter& of) {
  for (int64_t b = 0; b < cache.size(0); ++b) {
    const int64_t start = start_of(starts, b);
    if (start < 0 || (!of.is_circular && start > cache.size(of.axis) - update.size(of.axis))) return false;
  }
  return true;
}

// Gives the rows to write; none where the script is to write them, or to refuse them.
std::optional<Scatter> scatter_of(const Tensor& past, const Tensor& update, const Tensor& starts, int64_t axis,
                                  std::string_view mode) {
  if (!past.is_cpu() || !update.is_cpu() || past.dim() < 2 || update.dim() != past.dim() ||
      update.scalar_type() != past.scalar_type() || past.numel() == 0 || update.numel() == 0) {
    return {};
  }
  if (axis < -past.dim() || axis >= past.dim()) return {};
  axis = at::maybe_wrap_dim(axis, past.dim());
  for (int64_t d = 0; d < past.dim(); ++d) {
    if (d != axis && update.size(d) != past.size(d)) return {};
  }
  const bool has_starts = starts.defined();
  if (has_starts && (!starts.is_cpu() || starts.scalar_type() != c10::kLong || !starts.is_contiguous() ||
                     starts.dim() != 1 || starts.size(0) != past.size(0))) {
    return {};
  }
  return axis == 0 ? std::nullopt : std::optional(Scatter{axis, mode == "circular"});
}

const int64_t* data_of(const Tensor& starts) { return starts.defined() ? starts.const_data_ptr<int64_t>() : nullptr; }

Tensor by_script(const Tensor& past_cache, const Tensor& update, const std::optional<Tensor>& write_indices,
                 int64_t axis, std::string_view mode) {
  std::vector<c10::IValue> stack{past_cache, update, write_indices, axis, std::string(mode)};
  call_script("onnx_torch::tensor_scatter", stack);
  return stack[0].toTensor();
}

Tensor scatter_rows(const Tensor& past_cache, const Tensor& update, const std::optional<Tensor>& write_indices,
                    int64_t axis, std::string_view mode) {
  const Tensor starts = write_indices.value_or(Tensor());
  const auto of = scatter_of(past_cache, update, starts, axis, mode);
  if (!of || !are_within(past_cache, update, data_of(starts), *of))
    return by_script(past_cache, update, write_indices, axis, mode);
  Tensor result = grown_in_place(past_cache, past_cache.sizes());
  if (!result.defined()) {
    result = work_tensor(past_cache.sizes(), past_cache.scalar_type());
    copy_into(result, past_cache);
  }
  write_rows(result, update, data_of(starts), *of);
  return result;
}

std::unique_ptr<PlannedCall> plan(const PlannedOperands& of) {
  const Tensor past = of.tensor(0), update = of.tensor(1), starts = of.tensor(2), &result = of.results[0];
  const auto scatter = scatter_of(past, update, starts, of.arguments[3].toInt(), of.arguments[4].toStringRef());
  if (!scatter || !past.is_contiguous() || !result.is_contiguous()) return {};
  struct Form {
    at::DimVector sizes, strides;
    c10::ScalarType type;

    explicit Form(const Tensor& t) : sizes(t.sizes()), strides(t.strides()), type(t.scalar_type()) {}
    Tensor at(const TensorPlace& place) const { return at::from_blob(place.data, sizes, strides, type); }
  };
  return planned([of_past = Form(past), of_update = Form(update), of_result = Form(result), scatter = *scatter,
                  has_starts = starts.defined()](std::span<const TensorPlace> places) {
    const Tensor cache = of_result.at(places.back()), rows = of_update.at(places[1]);
    const auto* const first = has_starts ? places[2].as<int64_t>() : nullptr;
    TORCH_CHECK(are_within(cache, rows, first, scatter), "write_indices are out of bounds");
    if (places[0].data != places.back().data) copy_into(cache, of_past.at(places[0]));
    write_rows(cache, rows, first, scatter);
  });
}

}  // namespace

void register_tensor_scatter() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def("scatter_rows(Tensor past_cache, Tensor update, Tensor? write_indices, int axis, str mode) -> Tensor",
          scatter_rows);
  });
  register_planner("onnx_torch::scatter_rows", plan);
}

}  // namespace onnxtorch
