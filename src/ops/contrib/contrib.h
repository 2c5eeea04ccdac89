// The operators that onnxruntime and other projects add to the standard, one register function a family. A new family
// is declared here and called in contrib.cpp.
#pragma once

namespace onnxtorch {

class Registry;

inline constexpr char kMicrosoft[] = "com.microsoft";
inline constexpr char kExtensions[] = "ai.onnx.contrib";  // of onnxruntime-extensions

void register_contrib_activation_ops(Registry& r);
void register_contrib_attention_ops(Registry& r);
void register_contrib_block_quantization_ops(Registry& r);
void register_contrib_cached_attention_ops(Registry& r);
void register_contrib_experts_ops(Registry& r);
void register_contrib_extensions_ops(Registry& r);
void register_contrib_layouts_ops(Registry& r);
void register_contrib_linear_ops(Registry& r);
void register_contrib_mmdeploy_ops(Registry& r);
void register_contrib_normalization_ops(Registry& r);
void register_contrib_qonnx_ops(Registry& r);
void register_contrib_quantization_ops(Registry& r);
void register_contrib_search_ops(Registry& r);
void register_contrib_state_space_ops(Registry& r);
void register_contrib_tensor_ops(Registry& r);
void register_contrib_text_ops(Registry& r);
void register_contrib_tokenizers_ops(Registry& r);

}  // namespace onnxtorch
