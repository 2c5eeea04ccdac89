// Operators that are computed by several of ATen's, on any device. Each function makes those of a file known to
// TorchScript, once, under the names onnx_torch::…; whoever puts one into a graph calls it before.
#pragma once

namespace onnxtorch {

void register_filled_numbers();         // filled_numbers and others: the host's numbers as tensors, without a copy
void register_operators_of_any_type();  // matmul_of_any and others: of types that ATen lacks on CUDA
void register_masked_attention();       // scaled_dot_product_attention, attention_mask

}  // namespace onnxtorch
