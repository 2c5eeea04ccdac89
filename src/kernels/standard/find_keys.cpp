// Look-up of each element among keys: LabelEncoder, CategoryMapper, OneHotEncoder.
#include "kernels/standard/find_keys.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/parallel.h"
#include "kernels/standard/keys.h"

namespace onnxtorch {
namespace {

using at::Tensor;

template <typename T>
void find_keys(const Tensor& x, const Tensor& keys, Tensor& positions) {
  std::vector<T> ascending(keys.const_data_ptr<T>(), keys.const_data_ptr<T>() + keys.numel());
  std::vector<int64_t> position_of(ascending.size());
  std::iota(position_of.begin(), position_of.end(), 0);
  if (!std::is_sorted(ascending.begin(), ascending.end(), KeyOrder())) {
    std::stable_sort(position_of.begin(), position_of.end(),
                     [&](int64_t a, int64_t b) { return KeyOrder()(ascending[a], ascending[b]); });
    const T* const key = keys.const_data_ptr<T>();
    std::transform(position_of.begin(), position_of.end(), ascending.begin(), [&](int64_t i) { return key[i]; });
  }

  const T* const from = x.const_data_ptr<T>();
  int64_t* const to = positions.mutable_data_ptr<int64_t>();
  constexpr int64_t kCost = 8;  // of an element
  parallel_for(x.numel(), kCost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      to[i] = find_key(from[i], ascending.data(), position_of.data(), keys.numel());
    }
  });
}

Tensor positions_of(const Tensor& x, const Tensor& keys) {
  check_keys(x, keys);
  const Tensor elements = x.cpu().contiguous();
  const Tensor host_keys = keys.cpu().contiguous();
  Tensor positions = at::empty(elements.sizes(), at::kLong);
  AT_DISPATCH_ALL_TYPES(x.scalar_type(), "find_keys", [&] { find_keys<scalar_t>(elements, host_keys, positions); });
  return positions.to(x.device());
}

}  // namespace

void check_keys(const Tensor& x, const Tensor& keys) {
  TORCH_CHECK_VALUE(keys.dim() == 1, "find_keys takes keys of shape [K], not ", keys.sizes());
  TORCH_CHECK_TYPE(keys.scalar_type() == x.scalar_type(), "find_keys looks for ", x.scalar_type(), " among keys of ",
                   keys.scalar_type());
}

void check_values(const Tensor& keys, const Tensor& values, const Tensor& default_value) {
  TORCH_CHECK_VALUE(keys.sizes() == values.sizes(), "map_keys has ", keys.numel(), " keys for ", values.numel(),
                    " values");
  TORCH_CHECK_VALUE(default_value.numel() == 1, "map_keys has ", default_value.numel(), " default values");
}

TORCH_LIBRARY_FRAGMENT(onnx_torch, m) {
  constexpr auto kAnyDevice = c10::DispatchKey::CompositeExplicitAutograd;

  // The position in keys [K] of each element of x, or -1. The last of equal keys counts; NaN is found. Keys that ascend
  // are found faster.
  m.def("find_keys(Tensor x, Tensor keys) -> Tensor");
  m.impl("find_keys", kAnyDevice, TORCH_FN(positions_of));

  // LabelEncoder, CategoryMapper: for each element of x the value [K] of its key [K], or the default, which is one
  // number.
  m.def("map_keys(Tensor x, Tensor keys, Tensor values, Tensor default_value) -> Tensor");
  m.impl("map_keys", kAnyDevice, TORCH_FN(map_keys<&positions_of>));
}

}  // namespace onnxtorch
