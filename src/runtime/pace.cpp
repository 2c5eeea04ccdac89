#include "runtime/pace.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

#include "graph/operator_traits.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

constexpr double kPatience = 0.4;  // seconds
// Seconds a byte: below, a copy of the inputs would be a tenth of the run, and no operator takes long by itself.
constexpr double kCopying = 5e-9;
constexpr double kMostCopied = 1 << 28;  // bytes; memory may have no room for a copy of more
// Seconds a byte of what is not measured: of a convolutional network on one processor, and of one node that computes
// each element from one.
constexpr float kNetwork = 2e-7F, kElementwise = 1e-9F;

// Tells whether the node computes each element from one element. A chain of several operands may broadcast them.
bool is_elementwise(const jit::Node* node) {
  static const c10::Symbol chain = c10::Symbol::fromQualString("onnx_torch::chain");
  if (node->kind() == chain) return node->input(0)->node()->inputs().size() == 1;
  return node->kind() == c10::prim::Constant || node->kind() == c10::prim::ListConstruct ||
         node->kind() == c10::prim::ListUnpack || has(node, Trait::Unary, Trait::Arranges);
}

}  // namespace

void Pace::expect(const Program& program) {
  const auto nodes = static_cast<float>(program.nodes.size());
  const bool is_simple = std::ranges::all_of(program.graph->nodes(), is_elementwise);
  seconds_per_byte_ = is_simple ? std::min(kNetwork, nodes * kElementwise) : kNetwork;
}

bool Pace::may_take_long(double bytes) const {
  const double pace = seconds_per_byte_;
  return bytes <= kMostCopied && pace >= kCopying && pace * bytes >= kPatience;
}

}  // namespace onnxtorch
