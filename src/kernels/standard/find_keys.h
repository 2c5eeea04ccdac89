// The parts that the devices' kernels of find_keys and map_keys share.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

namespace onnxtorch {

void check_keys(const at::Tensor& x, const at::Tensor& keys);
void check_values(const at::Tensor& keys, const at::Tensor& values, const at::Tensor& default_value);

// Maps elements to values by `find`, which gives the position in keys of each element, or -1, which is the last of the
// values: the default.
template <at::Tensor (*find)(const at::Tensor& x, const at::Tensor& keys)>
at::Tensor map_keys(const at::Tensor& x, const at::Tensor& keys, const at::Tensor& values,
                    const at::Tensor& default_value) {
  check_values(keys, values, default_value);
  return at::cat({values, default_value.reshape(1)}).take(find(x, keys));
}

}  // namespace onnxtorch
