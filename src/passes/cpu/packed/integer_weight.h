// Constant int8 and uint8 weights of a graph, and products with them.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <optional>

#include "graph/constants.h"
#include "kernels/cpu/onednn/operators.h"

namespace onnxtorch {

// Tells whether the node is an operator whose only result follows from its inputs.
bool is_computed_of_inputs(const torch::jit::Node* node);

// Gives the value, or the tensor, if it follows from constants alone.
std::optional<c10::IValue> computed_value(const torch::jit::Value* value, const Constants& constants);
std::optional<at::Tensor> computed(const torch::jit::Value* value, const Constants& constants);

// Tells whether the tensor broadcasts to one of so many dimensions as one value for all, or one for each index of a
// dimension of this size.
bool is_along(const at::Tensor& t, int64_t dim, int64_t size, int64_t dims);

// An int8 or uint8 weight, with one zero point for all or for each index of a dimension, in int32.
struct IntegerWeight {
  at::Tensor numbers, zero_points;
};

// Gives the weight of these integers and zero points, which may be absent.
std::optional<IntegerWeight> weight_of(const torch::jit::Value* numbers, const torch::jit::Value* zero_points,
                                       int64_t channel_dim, const Constants& constants);

// Gives the weight that the value is, as floats less their zero points.
std::optional<IntegerWeight> integer_weight(const torch::jit::Value* value, int64_t channel_dim,
                                            const Constants& constants);

// Gives the weight of one of the four products of integers (passes/cpu/packed/nodes.h); it may have lost its zero point
// before.
std::optional<IntegerWeight> weight_of_product(const torch::jit::Node* product, const Constants& constants);

// Gives the images of a product of integers with its pads around them, which have the value `fill`; the first input of
// one that has no pads.
torch::jit::Value* padded_images(torch::jit::Graph& graph, const torch::jit::Node* product,
                                 const torch::jit::NamedValue& fill, const Constants& constants);

// Tells whether the node convolves, rather than multiplies matrices.
bool is_convolution(const torch::jit::Node* product);

// Packs the product of a node that is a convolution, a matmul, an addmm or one of the products of integers, without its
// bias and pads; null where there is no such operator.
c10::intrusive_ptr<Packed> packed_integers(const torch::jit::Node* product, const IntegerWeight& weight,
                                           const Constants& constants);

}  // namespace onnxtorch
