#include "graph/graph_location.h"

#include <regex>

#include "graph/program.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

constexpr std::string_view kNodeMark = "onnx-node-";  // the start of a node's source; its ONNX node's number follows

bool has_location(const jit::Node* node) {
  const std::shared_ptr<jit::Source> source = node->sourceRange().source();
  return source && source->size() > 0 && source->text_str().piece(0).starts_with(kNodeMark);
}

}  // namespace

// Gives the source range of the graph nodes of one ONNX node. TorchScript prints its text where such a node fails, and,
// with a graph, its file name and its line.
jit::SourceRange location(size_t number, const NodeLabel& label) {
  const auto source =
      std::make_shared<jit::Source>(std::string(kNodeMark) + std::to_string(number), label.str(), number);
  return {source, 0, source->size()};
}

void stamp(jit::Node* node, const jit::SourceRange& range) {
  node->setSourceRange(range);
  for (jit::Block* block : node->blocks()) {
    for (jit::Node* inner : block->nodes()) {
      // The nodes of a subgraph keep the source range that they were stamped with before.
      if (!has_location(inner)) stamp(inner, range);
    }
  }
}

std::optional<size_t> node_number(const jit::Node* node) {
  if (!has_location(node)) return {};
  return node->sourceRange().source()->starting_line_no();
}

std::optional<size_t> node_number(const std::string& message) {
  // The innermost frame of a TorchScript traceback stands last.
  static const std::regex pattern(std::string(kNodeMark) + "([0-9]+)");
  std::optional<size_t> number;
  for (auto i = std::sregex_iterator(message.begin(), message.end(), pattern); i != std::sregex_iterator(); ++i) {
    number = std::stoul((*i)[1].str());
  }
  return number;
}

}  // namespace onnxtorch
