// Matrix products of two tensors that come with the run, by oneDNN; and attention, which is two of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace onnxtorch::onednn {

// at::matmul(a, b).
at::Tensor product(const at::Tensor& a, const at::Tensor& b);

// softmax(query @ key * scale + mask) @ value. Rows of weights that are NaN become zeros where there are to be none.
at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const std::optional<at::Tensor>& mask, double scale, bool without_nan);

}  // namespace onnxtorch::onednn
