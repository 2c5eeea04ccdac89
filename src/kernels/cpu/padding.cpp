// Padding with a tensor's own elements, as Tile and Pad's modes reflect, edge and wrap do: all axes at once, and whole
// segments of them, where the script goes axis by axis.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/memory_order.h"
#include "base/parallel.h"
#include "base/planned_call.h"
#include "base/registered.h"
#include "base/size.h"
#include "base/work_memory.h"
#include "kernels/cpu/call_script.h"
#include "kernels/cpu/operators.h"

namespace onnxtorch {
namespace {

// An axis of `size` elements of which `inside` are kept, from `start` on, with `before` in front of them.
struct Axis {
  int64_t size, start, inside, before, length;
  enum class Mode { Reflect, Edge, Wrap } mode;

  bool is_whole() const { return length == size && inside == size; }

  // Gives the index of the element that a position takes.
  int64_t index(int64_t position) const {
    const int64_t at = position - before;
    const auto remainder = [&](int64_t divisor) { return (at % divisor + divisor) % divisor; };
    if (at >= 0 && at < inside) return start + at;
    if (mode == Mode::Edge) return start + std::clamp<int64_t>(at, 0, inside - 1);
    if (mode == Mode::Wrap) return start + remainder(inside);
    return start + inside - 1 - std::abs(inside - 1 - remainder(std::max<int64_t>(1, 2 * (inside - 1))));
  }
};

// Pads the axis; negative pads crop first. Returns none where nothing is left to pad with, or pads are huge.
std::optional<Axis> padded(int64_t size, int64_t begin, int64_t end, Axis::Mode mode) {
  constexpr int64_t kMost = 1 << 24;
  if (std::min(begin, end) < -size || std::max(begin, end) > kMost) return {};
  const int64_t start = std::max<int64_t>(0, -begin), inside = size - start + std::min<int64_t>(0, end);
  if (inside <= 0) return {};
  const int64_t before = std::max<int64_t>(0, begin), after = std::max<int64_t>(0, end);
  return Axis{size, start, inside, before, before + inside + after, mode};
}

// Elements that follow each other: their first index in an axis, their first position in the padded one, and how many.
struct Segment {
  int64_t index, position, count;
};

// Gives the segments of an axis; none where they would take much more memory than the elements.
std::optional<std::vector<Segment>> segments_of(const Axis& axis) {
  constexpr size_t kMost = 1 << 16;
  std::vector<Segment> segments;
  for (int64_t i = 0; i < axis.length;) {
    const int64_t index = axis.index(i), count = i == axis.before ? axis.inside : 1;
    if (!segments.empty() && index == segments.back().index + segments.back().count) {
      segments.back().count += count;
    } else {
      if (segments.size() == kMost) return {};
      segments.push_back({index, i, count});
    }
    i += count;
  }
  return segments;
}

// The axes from the outermost in memory to the last that is padded, and the bytes of what lies behind that.
struct Padding {
  std::vector<Axis> axes;
  std::vector<Segment> segments;  // of the last axis
  int64_t item;
  std::vector<int64_t> result_sizes;  // of all dimensions, in the tensor's order
  std::vector<int64_t> result_strides;

  // Gives the row of the tensor that a row of the result is taken from.
  int64_t source_of(int64_t row) const {
    int64_t source = 0, step = 1;
    for (int64_t d = std::ssize(axes) - 2; d >= 0; --d) {
      source += axes[d].index(row % axes[d].length) * step;
      step *= axes[d].size;
      row /= axes[d].length;
    }
    return source;
  }
};

// Copies segment by segment of each row.
void compute(const Padding& of, const char* x, char* y) {
  const Axis& last = of.axes.back();
  const auto segments = std::ssize(of.segments);
  int64_t rows = 1;
  for (size_t d = 0; d + 1 < of.axes.size(); ++d) rows *= of.axes[d].length;
  const int64_t cost = last.length * of.item / segments / static_cast<int64_t>(sizeof(float));
  parallel_for(rows * segments, cost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
      const int64_t row = i / segments, row_end = std::min(end, (row + 1) * segments);
      const char* const from = x + of.source_of(row) * last.size * of.item;
      char* const to = y + row * last.length * of.item;
      for (; i < row_end; ++i) {
        const Segment& segment = of.segments[i - row * segments];
        std::memcpy(to + segment.position * of.item, from + segment.index * of.item,
                    static_cast<size_t>(segment.count * of.item));
      }
    }
  });
}

// Gives the axes to pad; none where the script is to pad, or to refuse the pads. These are as ATen takes them: two for
// each dimension, from the last one on.
std::optional<Padding> padding_of(const at::Tensor& x, at::IntArrayRef pads, std::string_view mode) {
  if (!x.is_cpu() || x.dim() == 0 || x.numel() == 0 || !x.is_non_overlapping_and_dense() || x.is_conj() || x.is_neg() ||
      x.requires_grad() || std::ssize(pads) != 2 * x.dim()) {
    return {};
  }
  const auto taken = mode == "edge" ? Axis::Mode::Edge : mode == "wrap" ? Axis::Mode::Wrap : Axis::Mode::Reflect;
  Padding result{{}, {}, x.element_size(), x.sizes().vec(), {}};
  const std::vector<int64_t> order = order_of(x.strides());
  for (const int64_t dim : order) {
    const int64_t last = 2 * (x.dim() - 1 - dim);
    const auto axis = padded(x.size(dim), pads[last], pads[last + 1], taken);
    if (!axis) return {};
    result.result_sizes[dim] = axis->length;
    result.axes.push_back(*axis);
  }
  constexpr int64_t kMostBytes = int64_t{1} << 48;
  if (!(product_of(result.result_sizes) * result.item).is_at_most(kMostBytes)) return {};
  result.result_strides = strides_of(result.result_sizes, order);
  while (result.axes.size() > 1 && result.axes.back().is_whole()) {
    result.item *= result.axes.back().size;
    result.axes.pop_back();
  }
  auto segments = segments_of(result.axes.back());
  if (!segments) return {};
  result.segments = *std::move(segments);
  return result;
}

at::Tensor by_script(const at::Tensor& x, at::IntArrayRef pads, std::string_view mode, c10::Device device) {
  std::vector<c10::IValue> stack{x, pads.vec(), std::string(mode), device};
  call_script("onnx_torch::pad_from_inside", stack);
  return stack[0].toTensor();
}

at::Tensor pad(const at::Tensor& x, at::IntArrayRef pads, std::string_view mode, c10::Device device) {
  const auto padding = padding_of(x, pads, mode);
  if (!padding) return by_script(x, pads, mode, device);
  at::Tensor y = work_tensor(padding->result_sizes, padding->result_strides, x.scalar_type());
  compute(*padding, static_cast<const char*>(x.const_data_ptr()), static_cast<char*>(y.mutable_data_ptr()));
  return y;
}

std::unique_ptr<PlannedCall> plan(const PlannedOperands& of, std::optional<Padding> padding) {
  if (!padding || of.results[0].strides() != at::IntArrayRef(padding->result_strides)) return {};
  return planned([padding = *std::move(padding)](std::span<const TensorPlace> places) {
    compute(padding, places[0].data, places[1].data);
  });
}

std::unique_ptr<PlannedCall> plan_pad(const PlannedOperands& of) {
  return plan(of, padding_of(of.tensor(0), of.arguments[1].toIntVector(), of.arguments[2].toStringView()));
}

// Plans a repetition, which is a padding that wraps around.
std::unique_ptr<PlannedCall> plan_repeat(const PlannedOperands& of) {
  const at::Tensor x = of.tensor(0);
  const auto repeats = of.arguments[1].toIntVector();
  if (std::ssize(repeats) != x.dim() || of.results[0].numel() == 0) return {};
  std::vector<int64_t> pads;
  for (int64_t dim = x.dim() - 1; dim >= 0; --dim) {
    pads.push_back(0);
    pads.push_back((repeats[dim] - 1) * x.size(dim));
  }
  return plan(of, padding_of(x, pads, "wrap"));
}

}  // namespace

void register_padding() {
  static const torch::Library library = registered(
      [](torch::Library& m) { m.def("pad(Tensor data, int[] pads, str mode, Device device) -> Tensor", pad); });
  register_planner("onnx_torch::pad", plan_pad);
  register_planner("aten::repeat", plan_repeat);
}

}  // namespace onnxtorch
