// Operators with constant weights, prepared for oneDNN: the weights are laid out once. A primitive is made for each
// shape of input that comes along, and kept.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/planned_call.h"
#include "base/saved_weights.h"
#include "kernels/standard/linear_of_bits.h"

namespace onnxtorch {

class Packed : public torch::CustomClassHolder {
 public:
  // Makes ready for inputs of these sizes.
  virtual void expect(at::IntArrayRef sizes) const = 0;

  // Gives the weights that have been laid out so far; `take` takes those of another object, which need not be laid out
  // any more.
  virtual std::vector<SavedWeights> saved() const = 0;
  virtual void take(std::vector<SavedWeights> saved) const = 0;
};

// --- Convolutions and products ---

// A step after a convolution or a product, while its results are in registers: an activation by its ATen name, or the
// addition of or multiplication by an operand. A Sum is an addition to what is in the result's memory.
struct PostOp {
  enum class Kind : uint8_t { Activation, Add, Mul, Sum };
  Kind kind;
  std::string activation = {};
  double alpha = 0, beta = 0;  // its parameters
};

// Tells whether oneDNN has this activation.
bool is_post_activation(const std::string& name);

// A product of an input and a weight of float32 or bfloat16, with a result of their type or float32.
class PackedProduct : public Packed {
 public:
  // Runs with one operand for each Add and Mul, in their order. The result may take the memory of one to which nothing
  // else refers.
  virtual at::Tensor run(const at::Tensor& x, at::TensorList operands) const = 0;
  // Plans the same by memory: of x, the operands and the result `y`. Returns none where sizes and strides do not decide
  // all.
  virtual std::unique_ptr<PlannedCall> planned(const at::Tensor& /*x*/, at::TensorList /*operands*/,
                                               const at::Tensor& /*y*/) const {
    return {};
  }
};

struct Convolution {
  at::Tensor weight, bias;  // the bias may be undefined
  std::vector<int64_t> stride, padding, dilation;
  int64_t groups = 1;
  c10::ScalarType result = c10::kFloat;
};

// Tells whether a convolution's weight, groups and parameters go together, which oneDNN and the code that lays out
// weights trust. ATen, which is left those that do not, refuses them.
bool go_together(const at::Tensor& weight, int64_t groups,
                 std::initializer_list<const std::vector<int64_t>*> parameters);

c10::intrusive_ptr<Packed> packed(Convolution convolution, std::vector<PostOp> post_ops);

// A transposed convolution, whose weight is [in, out of a group, ...], without bias and steps: oneDNN 3.2 adds them
// more than once where it goes through the channels in parts.
struct Deconvolution {
  at::Tensor weight;
  std::vector<int64_t> stride, padding, output_padding, dilation;
  int64_t groups = 1;
};

c10::intrusive_ptr<Packed> packed(Deconvolution deconvolution);

// x @ weight + bias over the last dimension of x; the weight is [in, out].
struct Linear {
  at::Tensor weight, bias;  // the bias may be undefined
  c10::ScalarType result = c10::kFloat;
};

c10::intrusive_ptr<Packed> packed(const Linear& linear, std::vector<PostOp> post_ops);

// Tells whether the weight of a product is better held in float16, and widened as it is read: it is large, of float32,
// and each of its elements is a finite number of float16.
bool lies_in_half(const at::Tensor& weight);
c10::intrusive_ptr<Packed> packed_half(const Linear& linear);

// Packs a product whose blocks have 256 numbers at most.
c10::intrusive_ptr<Packed> packed(const LinearOfBits& linear);

// A quantization to int8 or uint8: an integer stands for (integer - zero_point) * scale, and is kept between low and
// high.
struct Quantization {
  double scale = 1;
  int64_t zero_point = 0, low = 0, high = 0;
  c10::ScalarType type = c10::kByte;
};

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

class PackedIntegerProduct : public Packed {
 public:
  // Computes the product of x - x_zero_point and the weight, in int32; x is of int8 or uint8, with one zero point.
  virtual at::Tensor run(const at::Tensor& x, const at::Tensor& x_zero_point) const = 0;
  // Computes the same as floats, times the scale, plus the addends one after another; `relu` then clears what is below
  // zero.
  virtual at::Tensor run_scaled(const at::Tensor& x, const at::Tensor& x_zero_point, const at::Tensor& scale,
                                at::TensorList addends, bool relu) const = 0;
  // Plans the latter by memory: of x, its zero point, the scale, the addends and the result `y`. Returns none where
  // sizes and strides do not decide all.
  virtual std::unique_ptr<PlannedCall> planned_scaled(const at::Tensor& /*x*/, const at::Tensor& /*zero_point*/,
                                                      const at::Tensor& /*scale*/, at::TensorList /*addends*/,
                                                      bool /*relu*/, const at::Tensor& /*y*/) const {
    return {};
  }
};

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

class PackedRecurrent : public Packed {
 public:
  // Runs the layer. x is [time, batch, features]; a state, h or h and c, is [directions, batch, hidden]. Gives y and
  // the last states. One direction may take `within` as well, bool[time, batch, 1], which tells whether a step is one
  // of its sequence's. The other steps leave the state as it is, and zeros in y.
  virtual std::vector<at::Tensor> run(const at::Tensor& x, at::TensorList states,
                                      const std::optional<at::Tensor>& within) const = 0;
  // Plans the same by memory: of x, the states and `within`, where it is there, and of the results. Returns none where
  // sizes and strides do not decide all.
  virtual std::unique_ptr<PlannedCall> planned(const at::Tensor& x, at::TensorList states,
                                               const std::optional<at::Tensor>& within) const = 0;
};

c10::intrusive_ptr<Packed> packed(const Recurrent& layer);

std::string onednn_version();

// Declares the class and the operators to TorchScript, once.
void register_onednn();

}  // namespace onnxtorch
