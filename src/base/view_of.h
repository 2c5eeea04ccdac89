// Tensors on memory that others own. at::from_blob ends the process where it finds no memory for such an owner.
#pragma once

#include <ATen/ops/from_blob.h>

#include <memory>
#include <utility>

namespace onnxtorch {

// Makes a tensor on the memory, whose owner is kept as long as the tensor's memory is.
inline at::Tensor view_of(const void* data, at::IntArrayRef sizes, c10::ScalarType dtype,
                          std::shared_ptr<const void> owner) {
  using Owner = std::shared_ptr<const void>;
  auto held = std::make_unique<Owner>(std::move(owner));
  return at::for_blob(const_cast<void*>(data), sizes)
      .context(held.release(), [](void* kept) { delete static_cast<Owner*>(kept); })
      .options(dtype)
      .make_tensor();
}

}  // namespace onnxtorch
