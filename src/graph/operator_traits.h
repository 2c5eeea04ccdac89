// The traits that passes and the translator ask of operators, whatever their operands are: one table for all.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <vector>

namespace onnxtorch {

enum class Trait : uint32_t {
  // Each element is computed from those at its index in the first operands, as many as the name says (of three, the
  // first is a mask); the other operands are numbers. Several operands are broadcast.
  Unary = 1 << 0,
  Binary = 1 << 1,
  Ternary = 1 << 2,
  // The result has the elements of the first operand: each once, in another order or in other dimensions, or some of
  // them repeated.
  Arranges = 1 << 3,
  Repeats = 1 << 4,
  Moves = 1 << 5,         // gives elements of its operands as they are; the two above do so as well
  Product = 1 << 6,       // multiplies by a matrix or by the kernels of a convolution, and maybe adds a bias
  Computes = 1 << 7,      // gives floats of the one type that the floats among its operands have, as products do
  Compares = 1 << 8,      // compares elements, whatever type they are of
  IsMask = 1 << 9,        // gives bools
  KeepsType = 1 << 10,    // gives the element type of the first operand, for a list too
  ReadsSizes = 1 << 11,   // gives sizes, or other properties of shapes, and not what a model makes of them
  ReadsRank = 1 << 12,    // gives a rank, a length or a type
  ReadsForm = 1 << 13,    // gives what its operands' sizes, strides, types and devices decide, whatever their elements
  ReadsKind = 1 << 14,    // gives what a tensor's rank, type and device decide, whatever its sizes
  SizedByData = 1 << 15,  // gives tensors whose sizes the elements of operands decide
  Folds = 1 << 16,        // is computed once where its operands are constants, as all of ATen's are
};

// Tells whether a node's operator has one of these traits.
bool has(const torch::jit::Node* node, Trait trait);
template <typename... Traits>
bool has(const torch::jit::Node* node, Trait trait, Traits... others) {
  return has(node, trait) || has(node, others...);
}

// Gives the operators that have it, in the order of the table.
std::vector<c10::Symbol> operators_with(Trait trait);

}  // namespace onnxtorch
