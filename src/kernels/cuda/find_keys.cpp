#include "kernels/standard/find_keys.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <torch/library.h>

#include "kernels/cuda/current.h"
#include "kernels/cuda/find_keys.h"

namespace onnxtorch::cuda {
namespace {

// Finds the positions of the elements among the keys. ATen sorts NaN last, as KeyOrder does.
at::Tensor positions_of(const at::Tensor& x, const at::Tensor& keys) {
  check_keys(x, keys);
  const at::Tensor elements = x.contiguous();
  const auto [ascending, position_of] = keys.to(x.device()).sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  at::Tensor positions = at::empty(x.sizes(), x.options().dtype(at::kLong));
  AT_DISPATCH_ALL_TYPES(x.scalar_type(), "find_keys", [&, &ascending = ascending, &position_of = position_of] {
    on_device_of(x, [&](cudaStream_t stream) {
      return find_keys(x.numel(), elements.const_data_ptr<scalar_t>(), keys.numel(),
                       ascending.const_data_ptr<scalar_t>(), position_of.const_data_ptr<int64_t>(),
                       positions.mutable_data_ptr<int64_t>(), stream);
    });
  });
  return positions;
}

}  // namespace

TORCH_LIBRARY_IMPL(onnx_torch, CUDA, m) {
  m.impl("find_keys", &positions_of);
  m.impl("map_keys", &onnxtorch::map_keys<&positions_of>);
}

}  // namespace onnxtorch::cuda
