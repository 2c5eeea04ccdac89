#include "translate/inlining.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <unordered_map>

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using c10::IValue;

// A value that nothing can write to.
bool is_plain(const IValue& value) {
  return value.isNone() || value.isBool() || value.isInt() || value.isDouble() || value.isString();
}

class Inlining {
 public:
  Inlining(jit::Graph& graph, jit::Graph& script, at::ArrayRef<jit::Value*> arguments) : graph_(graph) {
    for (size_t i = 0; i < arguments.size(); ++i) values_[script.inputs()[i]] = arguments[i];
  }

  void insert(jit::Block& block) {
    for (jit::Node* node : block.nodes()) {
      if (node->kind() == c10::prim::If) {
        if (const auto decided = jit::constant_as<bool>(values_.at(node->input()))) {
          jit::Block& taken = *node->blocks()[*decided ? 0 : 1];
          insert(taken);
          map(node->outputs(), results(taken));
          continue;
        }
      }
      if (const auto known = condition(node)) {
        values_[node->output()] = graph_.insertConstant(*known);
        continue;
      }
      jit::Node* const same = graph_.insertNode(graph_.createClone(node, [&](jit::Value* v) { return values_.at(v); }));
      map(node->outputs(), same->outputs());
    }
  }

  std::vector<jit::Value*> results(const jit::Block& block) const {
    std::vector<jit::Value*> found;
    for (const jit::Value* output : block.outputs()) found.push_back(values_.at(output));
    return found;
  }

 private:
  void map(at::ArrayRef<jit::Value*> from, at::ArrayRef<jit::Value*> to) {
    for (size_t i = 0; i < from.size(); ++i) values_[from[i]] = to[i];
  }

  // What a comparison, or what else gives a bool, comes to where all that it reads is constant.
  std::optional<IValue> condition(const jit::Node* node) const {
    if (!node->kind().is_aten() || node->outputs().size() != 1 ||
        node->output()->type()->kind() != c10::TypeKind::BoolType) {
      return {};
    }
    if (const auto presence = is_none(node)) return presence;
    jit::Stack stack;
    for (const jit::Value* input : node->inputs()) {
      auto known = jit::toIValue(values_.at(input));
      if (!known || !is_plain(*known)) return {};
      stack.push_back(*std::move(known));
    }
    node->getOperation()(stack);
    return stack.back();
  }

  // `x is None`, or `is not`, of a value that cannot be.
  std::optional<IValue> is_none(const jit::Node* node) const {
    const bool is = node->kind() == c10::aten::__is__;
    if (!is && node->kind() != c10::aten::__isnot__) return {};
    const bool present =
        values_.at(node->input(0))->mustNotBeNone() && jit::toIValue(values_.at(node->input(1))) == IValue();
    return present ? std::optional<IValue>(!is) : std::nullopt;
  }

  jit::Graph& graph_;
  std::unordered_map<const jit::Value*, jit::Value*> values_;  // of the script, in the graph
};

}  // namespace

jit::Value* insert_script(jit::Graph& graph, jit::Graph& script, at::ArrayRef<jit::Value*> arguments) {
  Inlining inlining(graph, script, arguments);
  inlining.insert(*script.block());
  return inlining.results(*script.block()).at(0);
}

}  // namespace onnxtorch
