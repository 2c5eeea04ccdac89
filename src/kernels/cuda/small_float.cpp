#include "kernels/cuda/small_float.h"

#include <torch/library.h>

#include "kernels/cuda/current.h"
#include "kernels/standard/cast_small_float.h"

namespace onnxtorch::cuda {
namespace {

void cast_into(at::Tensor& result, const at::Tensor& source, const SmallFloatCast& cast) {
  AT_DISPATCH_V2(source.scalar_type(), "cast_small_float", AT_WRAP([&] {
                   on_device_of(source, [&](cudaStream_t stream) {
                     const auto* from = source.const_data_ptr<scalar_t>();
                     void* const to = result.mutable_data_ptr();
                     return result.scalar_type() == at::kHalf
                                ? cast_to_halves(source.numel(), cast, from, static_cast<uint16_t*>(to), stream)
                                : cast_to_codes(source.numel(), cast, from, static_cast<uint8_t*>(to), stream);
                   });
                 }),
                 at::kFloat, at::kDouble, at::kLong, at::kUInt64);
}

}  // namespace

TORCH_LIBRARY_IMPL(onnx_torch, CUDA, m) { m.impl("cast_small_float", &cast_small_float<&cast_into>); }

}  // namespace onnxtorch::cuda
