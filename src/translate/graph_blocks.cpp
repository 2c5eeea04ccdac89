// The translation of branches and loops.
#include <torch/csrc/jit/ir/constants.h>

#include <limits>

#include "graph/graph_location.h"
#include "graph/symbols.h"
#include "translate/graph_translator.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using c10::IValue;

// Tells whether two tensors are known to be of different element types.
bool are_other_elements(const ValueType& a, const ValueType& b) {
  const bool are_tensors = a.kind == ValueType::Kind::Tensor && b.kind == ValueType::Kind::Tensor;
  return are_tensors && a.known() && b.known() && a.element != b.element;
}

// Gives the type of what a loop carries, whose first value this is: an empty optional says nothing of what it will
// hold, but its ONNX type does, and a tensor's elements and sizes say nothing of those that follow.
c10::TypePtr carried_type(const Value& first) {
  const c10::TypePtr type = first.graph->type();
  if (type->kind() == c10::TypeKind::NoneType) return torchscript_type(first.type);
  return type->isSubtypeOf(*c10::TensorType::get()) ? c10::TensorType::get() : type;
}

}  // namespace

// Gives a value as a branch or an iteration returns it beside `other`: host values stay on the host only where both
// are.
Value GraphTranslator::unified(const Value& value, const Value& other) {
  if (value.absent()) return {graph_->insertConstant(IValue()), other.type};
  const bool same = !other.absent() && *value.graph->type() == *other.graph->type();
  return same ? value : tensor(value);
}

Values GraphTranslator::branch(Value condition, const std::function<Values()>& then_branch,
                               const std::function<Values()>& else_branch) {
  condition = boolean(condition);
  if (const auto known = facts_.value(condition.graph)) return known->toBool() ? then_branch() : else_branch();

  jit::Node* node = graph_->insertNode(graph_->create(c10::prim::If, {condition.graph}, 0));
  Values results[2];
  for (int i = 0; i < 2; ++i) {
    const jit::WithInsertPoint inside(node->addBlock());
    results[i] = i == 0 ? then_branch() : else_branch();
  }
  if (results[0].size() != results[1].size()) throw InvalidModelError("the branches give different numbers of outputs");
  Values outputs;
  for (size_t k = 0; k < results[0].size(); ++k) {
    const Value sides[2] = {results[0][k], results[1][k]};
    Value merged[2];
    for (int i = 0; i < 2; ++i) {
      const jit::WithInsertPoint inside(node->blocks()[i]);
      merged[i] = unified(sides[i], sides[1 - i]);
      node->blocks()[i]->registerOutput(merged[i].graph);
    }
    const auto type = c10::unifyTypes(merged[0].graph->type(), merged[1].graph->type());
    if (!type || are_other_elements(merged[0].type, merged[1].type))
      throw InvalidModelError("the branches give output " + std::to_string(k) + " different types");
    ValueType onnx_type = merged[0].type.known() ? merged[0].type : merged[1].type;
    if ((*type)->kind() == c10::TypeKind::OptionalType && onnx_type.kind != ValueType::Kind::Optional) {
      onnx_type = ValueType::optional(onnx_type);
    }
    outputs.push_back({node->addOutput()->setType(*type), onnx_type});
  }
  stamp(node, location_);
  return outputs;
}

Values GraphTranslator::loop(Value trip_count, Value condition, Values carried,
                             const std::function<Step(Value, const Values&)>& body) {
  const Value count = trip_count.absent() ? scalar(std::numeric_limits<int64_t>::max()) : integer(trip_count);
  const Value first = condition.absent() ? scalar(true) : boolean(condition);
  jit::Node* node = graph_->create(c10::prim::Loop, {count.graph, first.graph}, 0);
  for (Value& value : carried) {
    value = tensor(value);
    if (value.absent()) value.graph = graph_->insertConstant(IValue());
    node->addInput(value.graph);
  }
  graph_->insertNode(node);
  jit::Block* block = node->addBlock();
  const Value iteration{block->addInput()->setType(c10::IntType::get()), ValueType::tensor(ElementType::Int64)};
  Values inside;
  for (const Value& value : carried) {
    inside.push_back({block->addInput()->setType(carried_type(value)), value.type});
  }
  {
    const jit::WithInsertPoint at(block);
    if (options_.variant.guarded) mark(kCheckRun, {iteration.graph});  // the body may hold no node
    Step step = body(iteration, inside);
    if (step.carried.size() != carried.size())
      throw InvalidModelError("the loop body returns a different number of values");
    block->registerOutput((step.condition.absent() ? scalar(true) : boolean(step.condition)).graph);
    for (size_t i = 0; i < carried.size(); ++i) {
      const Value next =
          step.carried[i].absent() ? Value{graph_->insertConstant(IValue()), inside[i].type} : tensor(step.carried[i]);
      if (!next.graph->type()->isSubtypeOf(*inside[i].graph->type())) {
        throw InvalidModelError("the loop carries a value that changes from " + inside[i].graph->type()->str() +
                                " to " + next.graph->type()->str());
      }
      if (are_other_elements(inside[i].type, next.type)) {
        throw InvalidModelError("the loop carries a value that changes from " + inside[i].type.str() + " to " +
                                next.type.str());
      }
      block->registerOutput(next.graph);
      if (!carried[i].type.known()) carried[i].type = next.type;
    }
  }
  Values outputs;
  for (size_t i = 0; i < carried.size(); ++i) {
    outputs.push_back({node->addOutput()->setType(inside[i].graph->type()), carried[i].type});
  }
  stamp(node, location_);
  return outputs;
}

}  // namespace onnxtorch
