// An operator of TorchScript's that computes element-wise operators on tensors; the parts that the devices' kernels of
// it share.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <torch/custom_class.h>

#include <vector>

#include "kernels/standard/element_wise.h"

namespace onnxtorch {

constexpr c10::ScalarType scalar_type(chain::Type type) {
  switch (type) {
    case chain::Type::Mask:
      return c10::kBool;
    case chain::Type::Float16:
      return c10::kHalf;
    case chain::Type::BFloat16:
      return c10::kBFloat16;
    case chain::Type::Float:
      break;
  }
  return c10::kFloat;
}

struct __attribute__((visibility("default"))) ElementWisePass : torch::CustomClassHolder {
  ElementWise computed{};
  std::vector<int64_t> sizes, strides;  // of the results
};

using ComputeElements = void (*)(const ElementWise& of, const ElementWiseMemory& memory, const at::Tensor& device);

// Runs a pass. It knows nothing of its sources but their number, types, sizes and strides: they are the caller's to
// check.
template <ComputeElements compute>
std::vector<at::Tensor> element_wise(at::TensorList sources, const c10::intrusive_ptr<ElementWisePass>& pass) {
  const ElementWise& of = pass->computed;
  TORCH_CHECK(sources.size() == of.source_count && !sources.empty(), "element_wise: expected ", of.source_count,
              " sources, found ", sources.size());
  ElementWiseMemory memory{};
  for (size_t i = 0; i < sources.size(); ++i) memory.sources[i] = sources[i].const_data_ptr();
  std::vector<at::Tensor> results;
  for (uint32_t i = 0; i < of.result_count; ++i) {
    const auto options = sources[0].options().dtype(scalar_type(of.result_types[i]));
    results.push_back(at::empty_strided(pass->sizes, pass->strides, options));
    memory.results[i] = results.back().mutable_data_ptr();
  }
  compute(of, memory, sources[0]);
  return results;
}

}  // namespace onnxtorch
