// The operator families, one register function each. A new family is declared here and called in ops/table.cpp.
#pragma once

namespace onnxtorch {

class Registry;

void register_shape_ops(Registry& r);
void register_math_ops(Registry& r);
void register_linear_ops(Registry& r);
void register_logical_ops(Registry& r);
void register_activation_ops(Registry& r);
void register_tensor_ops(Registry& r);
void register_indexing_ops(Registry& r);
void register_reduction_ops(Registry& r);
void register_normalization_ops(Registry& r);
void register_loss_ops(Registry& r);
void register_conv_ops(Registry& r);
void register_pooling_ops(Registry& r);
void register_image_ops(Registry& r);
void register_resize_ops(Registry& r);
void register_cast_ops(Registry& r);
void register_quantization_ops(Registry& r);
void register_recurrent_ops(Registry& r);
void register_attention_ops(Registry& r);
void register_signal_ops(Registry& r);
void register_random_ops(Registry& r);
void register_control_flow_ops(Registry& r);
void register_sequence_ops(Registry& r);
void register_optional_ops(Registry& r);
void register_training_ops(Registry& r);
void register_text_ops(Registry& r);
void register_ml_ops(Registry& r);
void register_experimental_ops(Registry& r);
void register_contrib_ops(Registry& r);

}  // namespace onnxtorch
