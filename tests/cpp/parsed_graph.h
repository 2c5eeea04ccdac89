// Graphs of TorchScript for tests, from their text and as a text.
#pragma once

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/irparser.h>

#include <memory>
#include <string>

namespace onnxtorch::testing {

inline std::shared_ptr<torch::jit::Graph> parsed(const std::string& text) {
  auto graph = std::make_shared<torch::jit::Graph>();
  torch::jit::parseIR(text, graph.get());
  return graph;
}

// Gives the kinds of a block's nodes, without those of the blocks within it.
inline std::string kinds_of(const torch::jit::Block& block) {
  std::string kinds;
  for (const torch::jit::Node* node : block.nodes())
    kinds += std::string(kinds.empty() ? "" : " ") + node->kind().toUnqualString();
  return kinds;
}

}  // namespace onnxtorch::testing
