// Operators for the CPU. Each function makes those of a file known to TorchScript, once, under the names
// onnx_torch::…; whoever puts one into a graph calls it before.
#pragma once

namespace onnxtorch {

void register_argmax();                 // argmax, label_of_largest
void register_attention();              // attention, grouped_attention
void register_channel_means();          // channel_means: of what lies channels-last
void register_copies();                 // reshape, cat, pixel_shuffle, upsample_nearest2d
void register_few_elements();           // none: ATen's operators on few elements, in plans
void register_casts();                  // none: aten::to another type, in plans
void register_indexed_rows();           // none: index and index_put of rows, in plans
void register_gather();                 // gather, gather_elements: indices may count from the end
void register_scatter();                // scatter_elements: indices may count from the end
void register_gather_blocks();          // gather_blocks: of a table of few bits, which are dequantized
void register_group_norm();             // group_norm: of what lies channels-last, or in planes of channels
void register_group_query_attention();  // group_query_attention: with a cache, as onnxruntime's operator
void register_image_sums();             // image_sums: of int8 and uint8 less the zero point
void register_l1_norm();                // normalize_rows
void register_layer_norm();             // layer_norm, rms_norm
void register_linear_attention();       // linear_attention: a state in place of all keys and values
void register_padding();                // pad: by a tensor's own elements; and repeat, in plans
void register_pools();                  // max_pool, average_pool: in one to three dimensions, as ATen's
void register_resample();               // resample: weighted sums along an axis, as Resize takes them
void register_rotary_embedding();       // rotary_embedding
void register_rounding();               // rounded: to a type of fewer bits, with results that stay float32
void register_running();                // cumsum, cumprod
void register_softmax();                // softmax, log_softmax
void register_support_vectors();        // support_vectors, double_linear: the scores of SVMs
void register_tensor_scatter();         // scatter_rows: TensorScatter
void register_top_k();                  // top_k
void register_triangles();              // none: tril and triu of contiguous matrices, in plans

}  // namespace onnxtorch
