// Attention where each query is one row, as when a model generates a word at a time: less work than the call of a
// primitive.
#pragma once

#include <ATen/core/Tensor.h>

#include "lower/row_kernels.h"
#include "translate/program.h"

namespace onnxtorch {

// Whether these are what attend_rows takes, if their sizes fit. The mask may be undefined.
bool is_of_rows(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const at::Tensor& mask);

// result = softmax(query @ key * scale + mask) @ value, for batches of matrices that broadcast to the result's.
void attend_rows(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const at::Tensor& mask,
                 double scale, NanRows nan, const at::Tensor& result);

// Has ATen's operator for attention compute it so where it is of one row.
void replace_attention(Program& program);

}  // namespace onnxtorch
