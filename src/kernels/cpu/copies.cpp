#include <ATen/ATen.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <ATen/WrapDimUtils.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "base/arrange.h"
#include "base/element_bits.h"
#include "base/grown_in_place.h"
#include "base/memory_order.h"
#include "base/parallel.h"
#include "base/planned_call.h"
#include "base/registered.h"
#include "base/work_memory.h"
#include "kernels/cpu/operators.h"

namespace onnxtorch {
namespace {

at::Tensor reshape(const at::Tensor& x, at::IntArrayRef shape) {
  if (x.numel() == 0 || !x.is_cpu()) return at::reshape(x, shape);
  const at::DimVector sizes = at::infer_size_dv(shape, x.numel());
  return at::detail::computeStride(x.sizes(), x.strides(), sizes) ? x.view(sizes) : contiguous(x).view(sizes);
}

at::Tensor pixel_shuffle(const at::Tensor& x, int64_t factor) {
  const bool is_image = x.is_cpu() && x.numel() > 0 && x.dim() == 4;
  if (!is_image || factor < 1 || x.size(1) % factor != 0 || x.size(1) / factor % factor != 0)
    return at::pixel_shuffle(x, factor);
  const int64_t channels = x.size(1) / (factor * factor), height = x.size(2), width = x.size(3);
  const std::array<int64_t, 3> parts{channels, factor, factor};
  const at::Tensor pixels = x.unflatten(1, parts).permute({0, 1, 4, 2, 5, 3});
  return contiguous(pixels).view({x.size(0), channels, height * factor, width * factor});
}

// Copies the tensors into the result one behind another, from the end of the first on.
void copy_behind(const at::Tensor& first, at::TensorList tensors, int64_t dim, const at::Tensor& result) {
  int64_t start = first.size(dim);
  for (const at::Tensor& t : tensors) {
    copy_into(result, dim, start, t);
    start += t.size(dim);
  }
}

at::Tensor cat(at::TensorList tensors, int64_t dim) {
  const auto fits_first = [&](const at::Tensor& t) {
    const at::Tensor& first = tensors.front();
    return t.is_cpu() && t.numel() > 0 && t.dim() == first.dim() && t.scalar_type() == first.scalar_type();
  };
  if (tensors.empty() || tensors.front().dim() == 0 || !std::ranges::all_of(tensors, fits_first))
    return at::cat(tensors, dim);
  const at::Tensor& first = tensors.front();
  dim = at::maybe_wrap_dim(dim, first.dim());
  std::vector<int64_t> sizes = first.sizes().vec();
  sizes[dim] = 0;
  for (const at::Tensor& t : tensors) {
    for (int64_t d = 0; d < t.dim(); ++d) {
      if (d != dim && t.size(d) != sizes[d]) return at::cat(tensors, dim);
    }
    sizes[dim] += t.size(dim);
  }
  if (const at::Tensor grown = grown_in_place(first, sizes); grown.defined()) {
    copy_behind(first, tensors.slice(1), dim, grown);
    return grown;
  }
  constexpr int64_t kLeastElements = 1 << 14;  // for which it is worth while to look at each tensor
  if (c10::multiply_integers(sizes) < kLeastElements) return at::cat(tensors, dim);
  const at::Tensor result = work_tensor(sizes, strides_of(sizes, order_of(first.strides())), first.scalar_type());
  copy_into(result, dim, 0, first);
  copy_behind(first, tensors.slice(1), dim, result);
  return result;
}

std::unique_ptr<PlannedCall> plan_cat(const PlannedOperands& of) {
  const std::vector<at::Tensor> tensors = of.arguments[0].toTensorVector();
  const at::Tensor& result = of.results[0];
  struct Part {
    at::DimVector sizes, strides;
    int64_t start;
  };
  std::vector<Part> parts;
  if (result.dim() == 0) return {};
  const int64_t dim = at::maybe_wrap_dim(of.arguments[1].toInt(), result.dim());
  int64_t start = 0;
  for (const at::Tensor& t : tensors) {
    if (!t.is_cpu() || t.dim() != result.dim() || t.scalar_type() != result.scalar_type() || t.numel() == 0) return {};
    parts.push_back({at::DimVector(t.sizes()), at::DimVector(t.strides()), start});
    start += t.size(dim);
  }
  const Part whole{at::DimVector(result.sizes()), at::DimVector(result.strides()), 0};
  return planned([parts, whole, dim, type = result.scalar_type()](std::span<const TensorPlace> places) {
    const at::Tensor to = at::from_blob(places.back().data, whole.sizes, whole.strides, type);
    const bool is_grown = places[0].data == places.back().data;  // the caller has lent the first tensor's memory for it
    for (size_t i = is_grown ? 1 : 0; i < parts.size(); ++i) {
      copy_into(to, dim, parts[i].start, at::from_blob(places[i].data, parts[i].sizes, parts[i].strides, type));
    }
  });
}

// Gives how many times each row or column is repeated; 0 where not all are repeated equally often.
int64_t factor(int64_t from, int64_t to, std::optional<double> scale) {
  if (from == 0 || to % from != 0) return 0;
  const int64_t whole = to / from;
  return scale && *scale != static_cast<double>(whole) ? 0 : whole;
}

bool is_power_of_two(int64_t number) { return number > 0 && (number & (number - 1)) == 0; }

// Copies each of a line's elements so many times.
template <typename T>
void repeat_each(const T* from, int64_t count, int64_t times, T* to) {
  if (times == 2) {
    for (int64_t i = 0; i < count; ++i) to[2 * i] = to[2 * i + 1] = from[i];
  } else {
    for (int64_t i = 0; i < count; ++i) std::fill_n(to + i * times, times, from[i]);
  }
}

// Copies each line of elements `rows` times, and each element within it `columns` times.
template <typename T>
void repeat_lines(const at::Tensor& x, int64_t rows, int64_t columns, const at::Tensor& y) {
  const auto* const from = static_cast<const T*>(x.const_data_ptr());
  auto* const to = static_cast<T*>(y.mutable_data_ptr());
  const int64_t width = x.size(3), wide = width * columns;
  parallel_for(x.numel() / width, rows * wide, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) {
      T* const first = to + line * rows * wide;
      repeat_each(from + line * width, width, columns, first);
      for (int64_t row = 1; row < rows; ++row) std::copy_n(first, wide, first + row * wide);
    }
  });
}

// Returns false where there is no loop for elements of that size.
bool repeat_lines(const at::Tensor& x, int64_t rows, int64_t columns, const at::Tensor& y) {
  return with_bits_of(x.element_size(), [&]<typename T>(T) {
    repeat_lines<T>(x, rows, columns, y);
    return true;
  });
}

// Copies rows and columns where the factors are powers of two: ATen divides by the factors in floats, which is exact
// for these.
at::Tensor upsample_nearest2d(const at::Tensor& x, at::IntArrayRef size, std::optional<double> scale_height,
                              std::optional<double> scale_width) {
  const bool fits = x.is_cpu() && x.numel() > 0 && x.dim() == 4 && size.size() == 2;
  const int64_t rows = fits ? factor(x.size(2), size[0], scale_height) : 0,
                columns = fits ? factor(x.size(3), size[1], scale_width) : 0;
  if (!is_power_of_two(rows) || !is_power_of_two(columns))
    return at::upsample_nearest2d(x, size, scale_height, scale_width);
  const std::vector<int64_t> sizes = {x.size(0), x.size(1), size[0], size[1]};
  at::Tensor result = work_tensor(sizes, strides_of(sizes, order_of(x.strides())), x.scalar_type());
  if (x.is_contiguous() && result.is_contiguous() && repeat_lines(x, rows, columns, result)) return result;
  const at::Tensor blocks = result.unflatten(3, {x.size(3), columns}).unflatten(2, {x.size(2), rows});
  copy_into(blocks, x.unsqueeze(3).unsqueeze(5).expand(blocks.sizes()));
  return result;
}

}  // namespace

void register_copies() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def("reshape(Tensor(a) x, int[] shape) -> Tensor(a)", reshape);
    m.def("pixel_shuffle(Tensor x, int factor) -> Tensor", pixel_shuffle);
    m.def("upsample_nearest2d(Tensor x, int[] size, float? scale_height, float? scale_width) -> Tensor",
          upsample_nearest2d);
    m.def("cat(Tensor[] tensors, int dim) -> Tensor", cat);
  });
  register_few_elements();  // its planner for cat is asked first
  register_planner("onnx_torch::cat", plan_cat);
}

}  // namespace onnxtorch
