#include "kernels/simd/pooling.h"

#include <ATen/ATen.h>
#include <ATen/native/Pool.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "base/registered.h"
#include "base/work_memory.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/operators.h"

namespace onnxtorch {
namespace {

// Windows of one dimension, as ATen takes them; none where it refuses them, or there are none.
std::optional<Windows> windows(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation,
                               bool ceil_mode) {
  if (kernel < 1 || stride < 1 || dilation < 1 || padding < 0 || 2 * padding > kernel) return {};
  const auto count = at::native::pooling_output_shape<int64_t>(size, kernel, padding, stride, dilation, ceil_mode);
  return count > 0 ? std::optional(Windows{size, kernel, stride, padding, dilation, count}) : std::nullopt;
}

// How the windows over a tensor are gone through.
struct Plan {
  Pool pool;
  bool channels_last;
  std::vector<int64_t> sizes;  // of the result, as it lies
};

// What ATen is given to pool by.
struct Given {
  at::IntArrayRef kernel, stride, padding, dilation;
  bool ceil_mode;
};

// None where ATen is asked, to do it or to refuse it.
std::optional<Plan> planned(const at::Tensor& x, const Given& given) {
  constexpr int64_t kFewChannels = 16;  // with fewer, a vector is not filled
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
  return Plan{{dimensions[0], dimensions[1], dimensions[2], channels, {}}, channels_last, std::move(sizes)};
}

template <typename T>
at::Tensor pooled(const at::Tensor& x, const Plan& plan, PoolRows<T>* pool_rows) {
  constexpr int64_t kCost = 2;  // of a comparison or an addition
  const Pool& p = plan.pool;
  const at::Tensor images = plan.channels_last ? x : x.contiguous();
  const at::Tensor y = work_tensor(plan.sizes, x.scalar_type());
  const auto* const from = images.const_data_ptr<T>();
  auto* const to = y.mutable_data_ptr<T>();
  const int64_t work = p.width() * p.depth.kernel * p.rows.kernel + p.result_width() * p.columns.kernel;
  parallel_for(x.numel() / p.image() * p.result_rows(), kCost * work, [&](int64_t begin, int64_t end) {
    std::vector<T> line(p.line());
    pool_rows(from, p, begin, end, line.data(), to);
  });
  return plan.channels_last ? y.movedim(-1, 1) : y;
}

at::Tensor max_pool(const at::Tensor& x, at::IntArrayRef kernel, at::IntArrayRef stride, at::IntArrayRef padding,
                    at::IntArrayRef dilation, bool ceil_mode) {
  if (const auto plan = planned(x, {kernel, stride, padding, dilation, ceil_mode})) {
    const auto& kernels = for_this_cpu<PoolKernels>();
    if (x.scalar_type() == c10::kFloat) return pooled(x, *plan, kernels.largest_of_floats);
    if (x.scalar_type() == c10::kByte) return pooled(x, *plan, kernels.largest_of_bytes);
    if (x.scalar_type() == c10::kChar) return pooled(x, *plan, kernels.largest_of_chars);
  }
  // ATen pools bytes only where they lie plainly.
  const at::Tensor given = x.is_floating_point() ? x : x.contiguous();
  if (kernel.size() == 1) return at::max_pool1d(given, kernel, stride, padding, dilation, ceil_mode);
  if (kernel.size() == 3) return at::max_pool3d(given, kernel, stride, padding, dilation, ceil_mode);
  return at::max_pool2d(given, kernel, stride, padding, dilation, ceil_mode);
}

// How many elements each window counts along one dimension, of the image's and, where asked, of the padding's; but none
// beyond, where ceil_mode lets a window end.
std::vector<float> counts(const Windows& w, bool count_padding) {
  std::vector<float> result;
  for (int64_t i = 0; i < w.count; ++i) {
    const int64_t begin = i * w.stride - w.padding, end = begin + w.kernel;
    result.push_back(static_cast<float>(count_padding ? std::min(end, w.size + w.padding) - begin
                                                      : std::min(end, w.size) - std::max<int64_t>(begin, 0)));
  }
  return result;
}

at::Tensor average_pool(const at::Tensor& x, at::IntArrayRef kernel, at::IntArrayRef stride, at::IntArrayRef padding,
                        bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor) {
  const std::vector<int64_t> dilation(kernel.size(), 1);
  auto plan = planned(x, {kernel, stride, padding, dilation, ceil_mode});
  if (plan && x.scalar_type() == c10::kFloat && divisor != 0) {
    Pool& p = plan->pool;
    const auto counted = [&](const Windows& w) {
      return divisor ? std::vector<float>(w.count, 1) : counts(w, count_include_pad);
    };
    std::vector<float> depth = counted(p.depth);
    const std::vector<float> rows = counted(p.rows), columns = counted(p.columns);
    if (divisor) std::ranges::fill(depth, static_cast<float>(*divisor));
    p.counts = {depth.data(), rows.data(), columns.data()};
    return pooled(x, *plan, for_this_cpu<PoolKernels>().means);
  }
  if (kernel.size() == 1) return at::avg_pool1d(x, kernel, stride, padding, ceil_mode, count_include_pad);
  if (kernel.size() == 3) return at::avg_pool3d(x, kernel, stride, padding, ceil_mode, count_include_pad, divisor);
  return at::avg_pool2d(x, kernel, stride, padding, ceil_mode, count_include_pad, divisor);
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
}

}  // namespace onnxtorch
