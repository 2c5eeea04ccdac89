#include "kernels/standard/multiclass_probability.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <torch/library.h>

#include "kernels/cuda/current.h"
#include "kernels/cuda/multiclass_probability.h"
#include "kernels/standard/coupling.h"

namespace onnxtorch::cuda {
namespace {

at::Tensor multiclass_probability(const at::Tensor& pairs) {
  check_pairs(pairs);
  const int64_t rows = pairs.size(0), classes = pairs.size(1);
  const at::Tensor in = pairs.contiguous();
  at::Tensor probabilities = at::empty({rows, classes}, in.options());
  AT_DISPATCH_FLOATING_TYPES(in.scalar_type(), "multiclass_probability", [&] {
    at::Tensor memory = at::empty({rows, Coupling<scalar_t>::work(classes)}, in.options());
    on_device_of(in, [&](cudaStream_t stream) {
      return couple(rows, classes, in.const_data_ptr<scalar_t>(), memory.mutable_data_ptr<scalar_t>(),
                    probabilities.mutable_data_ptr<scalar_t>(), stream);
    });
  });
  return probabilities;
}

}  // namespace

TORCH_LIBRARY_IMPL(onnx_torch, CUDA, m) { m.impl("multiclass_probability", &multiclass_probability); }

}  // namespace onnxtorch::cuda
