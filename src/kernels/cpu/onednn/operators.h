// The operators with constant weights that oneDNN computes, or kernels of our own where those are faster. A primitive is
// made for each shape of input that comes along, and kept.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/cpu/packed/convolution.h"
#include "kernels/cpu/packed/packed.h"
#include "kernels/cpu/quantized/quantize.h"

namespace onnxtorch {

// --- Convolutions and products ---

// Tells whether oneDNN has this activation.
bool is_post_activation(const std::string& name);

c10::intrusive_ptr<Packed> packed(Convolution convolution, std::vector<PostOp> post_ops);
c10::intrusive_ptr<Packed> packed(const Linear& linear, std::vector<PostOp> post_ops);

// A transposed convolution, whose weight is [in, out of a group, ...], without bias and steps: oneDNN 3.2 adds them
// more than once where it goes through the channels in parts.
struct Deconvolution {
  at::Tensor weight;
  std::vector<int64_t> stride, padding, output_padding, dilation;
  int64_t groups = 1;
};

c10::intrusive_ptr<Packed> packed(Deconvolution deconvolution);

// A product whose input and weight are of int8 or uint8. The weight, of int8, has one scale for all or one for each
// index of the result, and the bias is finite. The result is of int8 or uint8 as well, or float. No steps have
// operands.
struct Quantized {
  Quantization input;
  at::Tensor scales;
  std::optional<Quantization> result = {};
};

c10::intrusive_ptr<Packed> packed(Convolution convolution, Quantized quantized, std::vector<PostOp> post_ops);
c10::intrusive_ptr<Packed> packed(const Linear& linear, Quantized quantized, std::vector<PostOp> post_ops);

// Pack products whose weights are of uint8 or int8, less one zero point for all or one for each index of the result, in
// int32. The first gives null for a convolution of groups whose weight less its zero points does not fit int8.
c10::intrusive_ptr<Packed> packed_integers(Convolution convolution, const at::Tensor& zero_points);
c10::intrusive_ptr<Packed> packed_integers(const Linear& linear, const at::Tensor& zero_points);

// --- Recurrent layers ---

// A recurrent layer as ATen takes it. The parameters: of each direction w_ih, w_hh and, where there are biases, b_ih,
// b_hh. GruOfResetState applies the reset gate to the hidden state, before the product with it (ONNX's default). Its
// gates are in ONNX's order, and w_hh and b_hh are two each: of the update and reset gate, and of the hidden gate.
struct Recurrent {
  enum class Cell : uint8_t { Tanh, Relu, Gru, GruOfResetState, Lstm };
  Cell cell;
  bool bidirectional, has_biases;
  std::vector<at::Tensor> parameters;
  // The peepholes of an Lstm with one direction: [3, hidden], of the input, the forget and the output gate.
  at::Tensor peepholes = {};
};

c10::intrusive_ptr<Packed> packed(const Recurrent& layer);

std::string onednn_version();

// Declares the operators to TorchScript, once.
void register_onednn();

}  // namespace onnxtorch
