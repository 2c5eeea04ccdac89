#include "lower/pooling.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/native/Pool.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <vector>

#include "kernels/work_memory.h"
#include "lower/for_each_cpu.h"
#include "passes/walk.h"
#include "translate/writes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// --- The operator ----------------------------------------------------------------------------------------------------

// The windows along one dimension.
struct Windows {
  int64_t size, kernel, stride, padding, dilation, count;

  // The elements of a window that lie within are from `first` on, each `dilation`-th, before `end`.
  int64_t first(int64_t window) const {
    const int64_t begin = window * stride - padding;
    return begin >= 0 ? begin : begin + (-begin + dilation - 1) / dilation * dilation;
  }
  int64_t end(int64_t window) const { return std::min(window * stride - padding + (kernel - 1) * dilation + 1, size); }
};

// Windows of one dimension, as ATen takes them; none where it refuses them, or there are none.
std::optional<Windows> windows(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation,
                               bool ceil_mode) {
  if (kernel < 1 || stride < 1 || dilation < 1 || padding < 0 || 2 * padding > kernel) return {};
  const auto count = at::native::pooling_output_shape<int64_t>(size, kernel, padding, stride, dilation, ceil_mode);
  return count > 0 ? std::optional(Windows{size, kernel, stride, padding, dilation, count}) : std::nullopt;
}

// The larger of each two numbers, or the one that is NaN.
template <typename T>
ONNX_TORCH_INLINE void take_larger(T* to, const T* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const T x = from[i], y = to[i];
    to[i] = (x > y) | (x != x) ? x : y;
  }
}

// The largest of rows of so many numbers, `step` apart.
template <typename T>
ONNX_TORCH_INLINE void largest_of(const T* from, int64_t rows, int64_t step, T* to, int64_t count) {
  using Limits = std::numeric_limits<T>;
  if (rows <= 0) {
    std::fill_n(to, count, Limits::has_infinity ? -Limits::infinity() : Limits::lowest());
    return;
  }
  std::copy_n(from, count, to);
  for (int64_t i = 1; i < rows; ++i) take_larger(to, from + i * step, count);
}

ONNX_TORCH_INLINE int64_t elements(const Windows& w, int64_t window) {
  return (w.end(window) - w.first(window) + w.dilation - 1) / w.dilation;
}

// One row of results: first over the windows' height, into `high`, then over their width.
template <typename T>
ONNX_TORCH_INLINE void pool(const T* image, const Windows& rows, const Windows& columns, int64_t channels, int64_t row,
                            T* high, T* to) {
  const int64_t width = columns.size * channels;
  largest_of(image + rows.first(row) * width, elements(rows, row), rows.dilation * width, high, width);
  for (int64_t i = 0; i < columns.count; ++i) {
    largest_of(high + columns.first(i) * channels, elements(columns, i), columns.dilation * channels, to + i * channels,
               channels);
  }
}

ONNX_TORCH_FOR_EACH_CPU void pool_row(const float* image, const Windows& rows, const Windows& columns, int64_t channels,
                                      int64_t row, float* high, float* to) {
  pool(image, rows, columns, channels, row, high, to);
}
ONNX_TORCH_FOR_EACH_CPU void pool_row(const uint8_t* image, const Windows& rows, const Windows& columns,
                                      int64_t channels, int64_t row, uint8_t* high, uint8_t* to) {
  pool(image, rows, columns, channels, row, high, to);
}
ONNX_TORCH_FOR_EACH_CPU void pool_row(const int8_t* image, const Windows& rows, const Windows& columns,
                                      int64_t channels, int64_t row, int8_t* high, int8_t* to) {
  pool(image, rows, columns, channels, row, high, to);
}

template <typename T>
at::Tensor pooled(const at::Tensor& x, const Windows& rows, const Windows& columns) {
  constexpr int64_t kGrain = 1 << 14;  // elements
  const int64_t batch = x.size(0), channels = x.size(1), result_row = columns.count * channels;
  const at::Tensor y = work_tensor({batch, channels, rows.count, columns.count},
                                   {rows.count * result_row, 1, result_row, channels}, x.scalar_type());
  const auto* const from = x.const_data_ptr<T>();
  auto* const to = y.mutable_data_ptr<T>();
  const int64_t work = std::max<int64_t>(1, columns.size * channels * rows.kernel);
  at::parallel_for(0, batch * rows.count, std::max<int64_t>(1, kGrain / work), [&](int64_t begin, int64_t end) {
    std::vector<T> high(columns.size * channels);
    for (int64_t row = begin; row < end; ++row) {
      const T* const image = from + row / rows.count * rows.size * columns.size * channels;
      pool_row(image, rows, columns, channels, row % rows.count, high.data(), to + row * result_row);
    }
  });
  return y;
}

at::Tensor max_pool(const at::Tensor& x, at::IntArrayRef kernel, at::IntArrayRef stride, at::IntArrayRef padding,
                    at::IntArrayRef dilation, bool ceil_mode) {
  constexpr int64_t kFewChannels = 16;  // with fewer, a vector is not filled
  // ATen pools bytes only where they lie plainly.
  const auto by_aten = [&] {
    return at::max_pool2d(x.is_floating_point() ? x : x.contiguous(), kernel, stride, padding, dilation, ceil_mode);
  };
  const bool fits = x.is_cpu() && x.dim() == 4 && x.numel() > 0 && x.size(1) >= kFewChannels &&
                    x.is_contiguous(at::MemoryFormat::ChannelsLast);
  const std::array given{kernel, stride, padding, dilation};
  if (!fits || std::ranges::any_of(given, [](at::IntArrayRef each) { return each.size() != 2; })) return by_aten();
  const auto rows = windows(x.size(2), kernel[0], stride[0], padding[0], dilation[0], ceil_mode);
  const auto columns = windows(x.size(3), kernel[1], stride[1], padding[1], dilation[1], ceil_mode);
  if (!rows || !columns) return by_aten();
  switch (x.scalar_type()) {
    case c10::kFloat:
      return pooled<float>(x, *rows, *columns);
    case c10::kByte:
      return pooled<uint8_t>(x, *rows, *columns);
    case c10::kChar:
      return pooled<int8_t>(x, *rows, *columns);
    default:
      return by_aten();
  }
}

}  // namespace

void register_max_pool() {
  static const torch::Library library = [] {
    torch::Library m(torch::Library::FRAGMENT, "onnx_torch", {}, __FILE__, __LINE__);
    m.def(
        "max_pool(Tensor x, int[] kernel_size, int[] stride, int[] padding, int[] dilation, bool ceil_mode) -> "
        "Tensor",
        max_pool);
    return m;
  }();
}

// --- The pass --------------------------------------------------------------------------------------------------------

void replace_max_pools(Program& program) {
  register_max_pool();
  for_each_node(program.graph->block(), [](jit::Node* node) {
    if (node->kind() == c10::aten::max_pool2d) replace(node, "onnx_torch::max_pool", node->inputs());
  });
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
