#include "lower/pooling.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/native/Pool.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "kernels/work_memory.h"
#include "lower/cpu_capability.h"
#include "lower/pool_kernel.h"
#include "passes/walk.h"
#include "translate/writes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// --- The operator ----------------------------------------------------------------------------------------------------

// Windows of one dimension, as ATen takes them; none where it refuses them, or there are none.
std::optional<Windows> windows(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation,
                               bool ceil_mode) {
  if (kernel < 1 || stride < 1 || dilation < 1 || padding < 0 || 2 * padding > kernel) return {};
  const auto count = at::native::pooling_output_shape<int64_t>(size, kernel, padding, stride, dilation, ceil_mode);
  return count > 0 ? std::optional(Windows{size, kernel, stride, padding, dilation, count}) : std::nullopt;
}

constexpr Windows kNoWindows{.size = 1, .kernel = 1, .stride = 1, .padding = 0, .dilation = 1, .count = 1};

template <typename T>
void pool_into(const at::Tensor& y, const at::Tensor& x, const Pool& p, PoolRows<T>* pool) {
  constexpr int64_t kGrain = 1 << 14;  // elements
  const auto* const from = x.const_data_ptr<T>();
  auto* const to = y.mutable_data_ptr<T>();
  const int64_t work = p.width() * p.depth.kernel * p.rows.kernel + p.result_width() * p.columns.kernel;
  at::parallel_for(0, x.numel() / p.image() * p.result_rows(), std::max<int64_t>(1, kGrain / work),
                   [&](int64_t begin, int64_t end) {
                     std::vector<T> line(p.line());
                     pool(from, p, begin, end, line.data(), to);
                   });
}

at::Tensor max_pool(const at::Tensor& x, at::IntArrayRef kernel, at::IntArrayRef stride, at::IntArrayRef padding,
                    at::IntArrayRef dilation, bool ceil_mode) {
  constexpr int64_t kFewChannels = 16;  // with fewer, a vector is not filled
  const size_t rank = kernel.size();
  // ATen pools bytes only where they lie plainly.
  const auto by_aten = [&] {
    const at::Tensor& plain = x.is_floating_point() ? x : x.contiguous();
    return rank == 1   ? at::max_pool1d(plain, kernel, stride, padding, dilation, ceil_mode)
           : rank == 2 ? at::max_pool2d(plain, kernel, stride, padding, dilation, ceil_mode)
                       : at::max_pool3d(plain, kernel, stride, padding, dilation, ceil_mode);
  };
  const std::array given{stride, padding, dilation};
  if (!x.is_cpu() || x.numel() == 0 || rank < 1 || rank > 3 || x.dim() != static_cast<int64_t>(rank) + 2 ||
      std::ranges::any_of(given, [&](at::IntArrayRef each) { return each.size() != rank; }))
    return by_aten();
  std::vector<int64_t> sizes = x.sizes().vec();
  std::array dimensions{kNoWindows, kNoWindows, kNoWindows};
  for (size_t i = 0; i < rank; ++i) {
    const auto each = windows(sizes[i + 2], kernel[i], stride[i], padding[i], dilation[i], ceil_mode);
    if (!each) return by_aten();
    dimensions[3 - rank + i] = *each;
    sizes[i + 2] = each->count;
  }
  const bool channels_last = sizes[1] >= kFewChannels && x.movedim(1, -1).is_contiguous();
  if (channels_last && rank == 1) std::swap(dimensions[1], dimensions[2]);  // windows of whole rows
  const Pool p{dimensions[0], dimensions[1], dimensions[2], channels_last ? sizes[1] : 1};
  const at::Tensor images = channels_last ? x.movedim(1, -1) : x.contiguous();
  if (channels_last) std::rotate(sizes.begin() + 1, sizes.begin() + 2, sizes.end());
  const at::Tensor y = work_tensor(sizes, x.scalar_type());
  static const PoolKernels kernels = for_this_cpu(DEFAULT::pool_kernels, AVX2::pool_kernels, AVX512::pool_kernels)();
  switch (x.scalar_type()) {
    case c10::kFloat:
      pool_into<float>(y, images, p, kernels.largest_of_floats);
      break;
    case c10::kByte:
      pool_into<uint8_t>(y, images, p, kernels.largest_of_bytes);
      break;
    case c10::kChar:
      pool_into<int8_t>(y, images, p, kernels.largest_of_chars);
      break;
    default:
      return by_aten();
  }
  return channels_last ? y.movedim(-1, 1) : y;
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
    constexpr std::array kPools{c10::aten::max_pool1d, c10::aten::max_pool2d, c10::aten::max_pool3d};
    if (std::ranges::find(kPools, node->kind()) != kPools.end()) replace(node, "onnx_torch::max_pool", node->inputs());
  });
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
