// The translation of a model for nothing but what goes wrong.
#pragma once

#include <unordered_set>

#include "translate/graph_translator.h"

namespace onnxtorch {

// A translator that goes on where a node fails: the node gives values that nothing is known of.
class ProblemFinder final : public GraphTranslator {
 public:
  using GraphTranslator::GraphTranslator;
  std::vector<Problem> problems();

 private:
  Values outputs_of(const NodeView& view) override;
  bool lacks_inputs(const NodeView& view) const;
  void note(Problem problem);

  bool lacking_ = false;  // the node, or one around it, has an input that a failed node should have given
  size_t failures_ = 0;
  std::unordered_set<const torch::jit::Value*> unknown_;  // values that rest on failed nodes
  std::vector<Problem> problems_;
};

}  // namespace onnxtorch
