#include "lower/onednn/byte_pool.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/native/Pool.h>

#include <algorithm>

#include "kernels/arrange.h"
#include "kernels/work_memory.h"
#include "lower/onednn/convolution.h"

namespace onnxtorch::onednn {
namespace {

struct Window {
  at::IntArrayRef kernel_size, stride, padding, dilation;
  bool ceil_mode;
};

Prepared prepared(at::IntArrayRef sizes, c10::ScalarType type, const Window& window) {
  std::vector<int64_t> result = {sizes[0], sizes[1]};
  dnnl::memory::dims between, at_end;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t size = sizes[i + 2], kernel = window.kernel_size[i], stride = window.stride[i],
                  padding = window.padding[i], dilation = window.dilation[i];
    result.push_back(
        at::native::pooling_output_shape<int64_t>(size, kernel, padding, stride, dilation, window.ceil_mode));
    if (result.back() <= 0) return {};
    between.push_back(dilation - 1);
    const int64_t end = (result.back() - 1) * stride + (kernel - 1) * dilation + 1;
    at_end.push_back(std::max(padding, end - size - padding));
  }
  const dnnl::memory::desc source = channels_last(sizes, named(type)), target = channels_last(result, named(type));
  const dnnl::pooling_forward::primitive_desc description(
      engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::pooling_max, source, target, window.stride.vec(),
      window.kernel_size.vec(), between, window.padding.vec(), at_end, attributes({}, {}));
  if (is_reference(description)) return {};
  return {dnnl::pooling_forward(description), source, target, description.scratchpad_desc(), {}, result,
          channels_last_strides(result)};
}

std::shared_ptr<const Prepared> recent(at::IntArrayRef sizes, c10::ScalarType type, const Window& window) {
  static Recent<std::vector<int64_t>, Prepared> kept(64);
  std::vector<int64_t> key = sizes.vec();
  for (const at::IntArrayRef part : {window.kernel_size, window.stride, window.padding, window.dilation})
    key.insert(key.end(), part.begin(), part.end());
  key.insert(key.end(), {static_cast<int64_t>(type), window.ceil_mode, at::get_num_threads()});
  return kept.get(key, [&] { return prepared(sizes, type, window); });
}

}  // namespace

at::Tensor max_pool2d(const at::Tensor& given, at::IntArrayRef kernel_size, at::IntArrayRef stride,
                      at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode) {
  const Window window{kernel_size, stride.empty() ? kernel_size : stride, padding, dilation, ceil_mode};
  const auto fits = [](at::IntArrayRef part) {
    return part.size() == 2 && std::ranges::all_of(part, [](int64_t number) { return number > 0; });
  };
  if (given.dim() == 4 && given.numel() > 0 && fits(kernel_size) && fits(window.stride) && padding.size() == 2 &&
      fits(dilation)) {
    const at::Tensor x = arranged(given, channels_last_strides(given.sizes()));
    if (const auto p = recent(x.sizes(), x.scalar_type(), window); p->primitive) {
      const at::Tensor y = work_tensor(p->sizes, p->strides, x.scalar_type());
      Call call(p->frames);
      call.with(DNNL_ARG_SRC, p->source, x).with(DNNL_ARG_DST, p->result, y).run(p->primitive, p->scratchpad);
      return y;
    }
  }
  const at::Tensor plain = given.contiguous();
  return std::get<0>(at::max_pool2d_with_indices(plain, kernel_size, stride, padding, dilation, ceil_mode));
}

}  // namespace onnxtorch::onednn
