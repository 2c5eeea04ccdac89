// The tensors of a list that is on TorchScript's stack.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>

#include <vector>

namespace onnxtorch {

// Moves the tensors out where nothing else refers to the list, so that no tensor has a reference more than it needs.
inline std::vector<at::Tensor> take_tensors(c10::IValue value) {
  c10::List<at::Tensor> list = std::move(value).toTensorList();
  std::vector<at::Tensor> result;
  result.reserve(list.size());
  const bool is_last = list.use_count() == 1;
  for (size_t i = 0; i < list.size(); ++i) result.push_back(is_last ? list.extract(i) : list.get(i));
  return result;
}

}  // namespace onnxtorch
