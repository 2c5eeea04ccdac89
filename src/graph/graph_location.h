// The ONNX node that a graph node was made for: its number is kept in the graph node's source range.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <optional>

#include "onnx_torch/error.h"

namespace onnxtorch {

torch::jit::SourceRange location(size_t number, const NodeLabel& label);

std::optional<size_t> node_number(const torch::jit::Node* node);

// Gives a node and those in its blocks a source range, but for those that have one of another ONNX node.
void stamp(torch::jit::Node* node, const torch::jit::SourceRange& range);

}  // namespace onnxtorch
