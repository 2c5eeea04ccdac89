#include "kernels/simd/pooling.h"

#include <ATen/ATen.h>
#include <ATen/native/Pool.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "base/planned_call.h"
#include "base/registered.h"
#include "base/size.h"
#include "base/work_memory.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/operators.h"
#include "kernels/standard/most_padding.h"

namespace onnxtorch {
namespace {

// Gives the windows of one dimension, as ATen takes them; none where it refuses them, or there are none.
std::optional<Windows> windows(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation,
                               bool ceil_mode) {
  // Rows are padded in memory, and each element of a window is visited, in the padding too.
  constexpr int64_t kMostStride = std::numeric_limits<int32_t>::max();
  if (kernel < 1 || stride < 1 || dilation < 1 || padding < 0 || padding > kernel / 2) return {};
  if (padding > kMostPadding || stride > kMostStride) return {};
  if (!(Size(dilation) * (kernel - 1)).is_at_most(size + 2 * kMostPadding)) return {};
  const auto count = at::native::pooling_output_shape<int64_t>(size, kernel, padding, stride, dilation, ceil_mode);
  return count > 0 ? std::optional(Windows{size, kernel, stride, padding, dilation, count}) : std::nullopt;
}

// The way in which the windows over a tensor are visited.
struct Pooling {
  Pool pool;
  int64_t images;
  bool channels_last;
  std::vector<int64_t> sizes;  // of the result, in its order of memory
};

// The arguments of ATen's pooling.
struct Given {
  at::IntArrayRef kernel, stride, padding, dilation;
  bool ceil_mode;
};

// Gives the way in which windows are visited; none where ATen is to pool, or to refuse the arguments.
std::optional<Pooling> pooling(const at::Tensor& x, const Given& given) {
  constexpr int64_t kFewChannels = 16;  // with fewer, a SIMD vector is not filled
  const size_t rank = given.kernel.size();
  const std::array others{given.stride, given.padding, given.dilation};
  if (!x.is_cpu() || x.numel() == 0 || rank < 1 || rank > 3 || x.dim() != static_cast<int64_t>(rank) + 2 ||
      std::ranges::any_of(others, [&](at::IntArrayRef each) { return each.size() != rank; }))
    return {};
  std::vector<int64_t> sizes = x.sizes().vec();
  std::array dimensions{kNoWindows, kNoWindows, kNoWindows};
  for (size_t i = 0; i < rank; ++i) {
    const auto each =
        windows(sizes[i + 2], given.kernel[i], given.stride[i], given.padding[i], given.dilation[i], given.ceil_mode);
    if (!each) return {};
    dimensions[3 - rank + i] = *each;
    sizes[i + 2] = each->count;
  }
  const bool channels_last = sizes[1] >= kFewChannels && x.movedim(1, -1).is_contiguous();
  const int64_t channels = channels_last ? sizes[1] : 1;
  if (channels_last) std::rotate(sizes.begin() + 1, sizes.begin() + 2, sizes.end());
  if (channels_last && rank == 1) std::swap(dimensions[1], dimensions[2]);  // windows of whole rows
  const Pool pool{dimensions[0], dimensions[1], dimensions[2], channels, {}};
  return Pooling{pool, x.numel() / pool.image(), channels_last, std::move(sizes)};
}

template <typename T>
void compute(const Pool& p, int64_t images, PoolRows<T>* pool_rows, const T* from, T* to) {
  constexpr int64_t kCost = 2;  // of a comparison or an addition
  const int64_t work = p.width() * p.depth.kernel * p.rows.kernel + p.result_width() * p.columns.kernel;
  parallel_for(images * p.result_rows(), kCost * work, [&](int64_t begin, int64_t end) {
    std::vector<T> line(p.line());
    pool_rows(from, p, begin, end, line.data(), to);
  });
}

template <typename T>
at::Tensor pooled(const at::Tensor& x, const Pooling& by, PoolRows<T>* pool_rows) {
  const at::Tensor images = by.channels_last ? x : x.contiguous();
  const at::Tensor y = work_tensor(by.sizes, x.scalar_type());
  compute(by.pool, by.images, pool_rows, images.const_data_ptr<T>(), y.mutable_data_ptr<T>());
  return by.channels_last ? y.movedim(-1, 1) : y;
}

// Calls the function with the kernel for the largest elements of a type; gives {} where there is none.
template <typename Function>
auto with_largest(c10::ScalarType type, const Function& function)
    -> decltype(function(PoolKernels().largest_of_floats)) {
  const auto& kernels = for_this_cpu<PoolKernels>();
  switch (type) {
    case c10::kFloat:
      return function(kernels.largest_of_floats);
    case c10::kByte:
      return function(kernels.largest_of_bytes);
    case c10::kChar:
      return function(kernels.largest_of_chars);
    default:
      return {};
  }
}

at::Tensor max_pool(const at::Tensor& x, at::IntArrayRef kernel, at::IntArrayRef stride, at::IntArrayRef padding,
                    at::IntArrayRef dilation, bool ceil_mode) {
  if (const auto by = pooling(x, {kernel, stride, padding, dilation, ceil_mode})) {
    const at::Tensor y = with_largest(x.scalar_type(), [&](auto* largest) { return pooled(x, *by, largest); });
    if (y.defined()) return y;
  }
  // ATen pools bytes only where they are contiguous.
  const at::Tensor given = x.is_floating_point() ? x : x.contiguous();
  if (kernel.size() == 1) return at::max_pool1d(given, kernel, stride, padding, dilation, ceil_mode);
  if (kernel.size() == 3) return at::max_pool3d(given, kernel, stride, padding, dilation, ceil_mode);
  return at::max_pool2d(given, kernel, stride, padding, dilation, ceil_mode);
}

// Gives how many elements each window counts along one dimension: those of the image and, where asked, of the padding;
// but none beyond, where ceil_mode lets a window end.
std::vector<float> counts(const Windows& w, bool count_padding) {
  std::vector<float> result;
  for (int64_t i = 0; i < w.count; ++i) {
    const int64_t begin = i * w.stride - w.padding, end = begin + w.kernel;
    result.push_back(static_cast<float>(count_padding ? std::min(end, w.size + w.padding) - begin
                                                      : std::min(end, w.size) - std::max<int64_t>(begin, 0)));
  }
  return result;
}

// The counts of the windows of each dimension.
struct Counts {
  std::vector<float> depth, rows, columns;

  Pool::Counts data() const { return {depth.data(), rows.data(), columns.data()}; }
};

// Gives the divisors of the windows' sums: how many elements the windows count, or the same one for all.
Counts counts(const Pool& p, bool count_padding, std::optional<int64_t> divisor) {
  if (!divisor)
    return {counts(p.depth, count_padding), counts(p.rows, count_padding), counts(p.columns, count_padding)};
  return {std::vector<float>(p.depth.count, static_cast<float>(*divisor)), std::vector<float>(p.rows.count, 1),
          std::vector<float>(p.columns.count, 1)};
}

// Gives the windows to take means of; none where ATen is asked.
std::optional<Pooling> averaging(const at::Tensor& x, at::IntArrayRef kernel, at::IntArrayRef stride,
                                 at::IntArrayRef padding, bool ceil_mode, std::optional<int64_t> divisor) {
  if (x.scalar_type() != c10::kFloat || divisor == 0) return {};
  const std::vector<int64_t> dilation(kernel.size(), 1);
  return pooling(x, {kernel, stride, padding, dilation, ceil_mode});
}

at::Tensor average_pool(const at::Tensor& x, at::IntArrayRef kernel, at::IntArrayRef stride, at::IntArrayRef padding,
                        bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor) {
  if (auto by = averaging(x, kernel, stride, padding, ceil_mode, divisor)) {
    const Counts counted = counts(by->pool, count_include_pad, divisor);
    by->pool.counts = counted.data();
    return pooled(x, *by, for_this_cpu<PoolKernels>().means);
  }
  if (kernel.size() == 1) return at::avg_pool1d(x, kernel, stride, padding, ceil_mode, count_include_pad);
  if (kernel.size() == 3) return at::avg_pool3d(x, kernel, stride, padding, ceil_mode, count_include_pad, divisor);
  return at::avg_pool2d(x, kernel, stride, padding, ceil_mode, count_include_pad, divisor);
}

// Tells whether the result has the layout in which it is computed, and x the one in which it is read.
bool lies_well(const Pooling& by, const at::Tensor& x, const at::Tensor& y) {
  return by.channels_last ? y.movedim(1, -1).is_contiguous() : x.is_contiguous() && y.is_contiguous();
}

std::unique_ptr<PlannedCall> plan_max_pool(const PlannedOperands& of) {
  const at::Tensor x = of.tensor(0);
  std::array<std::vector<int64_t>, 4> lists;
  for (size_t i = 0; i < lists.size(); ++i) lists[i] = of.arguments[i + 1].toIntVector();
  const auto by = pooling(x, {lists[0], lists[1], lists[2], lists[3], of.arguments[5].toBool()});
  if (!by || !lies_well(*by, x, of.results[0])) return {};
  return with_largest(x.scalar_type(), [&]<typename T>(PoolRows<T>* largest) {
    return planned([largest, pool = by->pool, images = by->images](std::span<const TensorPlace> places) {
      compute(pool, images, largest, places[0].as<T>(), places[1].as<T>());
    });
  });
}

std::unique_ptr<PlannedCall> plan_average_pool(const PlannedOperands& of) {
  const at::Tensor x = of.tensor(0);
  const auto divisor = of.arguments[6].toOptional<int64_t>();
  const auto by = averaging(x, of.arguments[1].toIntVector(), of.arguments[2].toIntVector(),
                            of.arguments[3].toIntVector(), of.arguments[4].toBool(), divisor);
  if (!by || !lies_well(*by, x, of.results[0])) return {};
  return planned([pool = by->pool, images = by->images,
                  counted = counts(by->pool, of.arguments[5].toBool(), divisor)](std::span<const TensorPlace> places) {
    Pool p = pool;
    p.counts = counted.data();
    compute(p, images, for_this_cpu<PoolKernels>().means, places[0].as<float>(), places[1].as<float>());
  });
}

}  // namespace

void register_pools() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def(
        "max_pool(Tensor x, int[] kernel_size, int[] stride, int[] padding, int[] dilation, bool ceil_mode) -> "
        "Tensor",
        max_pool);
    m.def(
        "average_pool(Tensor x, int[] kernel_size, int[] stride, int[] padding, bool ceil_mode, "
        "bool count_include_pad, int? divisor_override) -> Tensor",
        average_pool);
  });
  register_planner("onnx_torch::max_pool", plan_max_pool);
  register_planner("onnx_torch::average_pool", plan_average_pool);
}

}  // namespace onnxtorch
