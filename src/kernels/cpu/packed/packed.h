// Operators with constant weights: the weights are laid out once, for the kernels that take them. What is made for a
// shape of input is kept for others of that shape.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

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

// A step after a convolution or a product, while its results are in registers: an activation by its ATen name, or the
// addition of or multiplication by an operand. A Sum is an addition to what is in the result's memory.
struct PostOp {
  enum class Kind : uint8_t { Activation, Add, Mul, Sum };
  Kind kind;
  std::string activation = {};
  double alpha = 0, beta = 0;  // its parameters
};

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

// --- Products by kernels of our own ---

// x @ weight + bias over the last dimension of x; the weight is [in, out].
struct Linear {
  at::Tensor weight, bias;  // the bias may be undefined
  c10::ScalarType result = c10::kFloat;
};

// Tells whether the weight of a product is better held in float16, and widened as it is read: it is large, of float32,
// and each of its elements is a finite number of float16.
bool lies_in_half(const at::Tensor& weight);
c10::intrusive_ptr<Packed> packed_half(const Linear& linear);

// Packs a product whose blocks have 256 numbers at most.
c10::intrusive_ptr<Packed> packed(const LinearOfBits& linear);

// Declares the class and the operators to TorchScript, once.
void register_packed();

}  // namespace onnxtorch
