#include "passes/precision.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <unordered_map>

#include "onnx_torch/error.h"
#include "passes/constants.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// The inputs of a convolution or a product that must be of one type; none for other nodes.
std::vector<size_t> operands_of(const jit::Node* node) {
  static const std::unordered_map<std::string, std::vector<size_t>> operands = {
      {"aten::convolution", {0, 1, 2}}, {"aten::linear", {0, 1, 2}}, {"aten::addmm", {0, 1, 2}},
      {"aten::matmul", {0, 1}},         {"aten::mm", {0, 1}},
  };
  const auto found = operands.find(node->kind().toQualString());
  return found == operands.end() || !node->maybeOperator() ? std::vector<size_t>() : found->second;
}

class Lowering {
 public:
  Lowering(Program& program, c10::ScalarType type)
      : program_(program), graph_(*program.graph), constants_(program), type_(type) {}

  void run(jit::Block* block) {
    std::unordered_map<jit::Value*, jit::Value*> casts;  // by what they cast; good for the rest of the block
    for (auto it = block->nodes().begin(); it != block->nodes().end();) {
      jit::Node* const node = *it++;
      for (jit::Block* inner : node->blocks()) run(inner);
      const std::vector<size_t> operands = operands_of(node);
      if (std::ranges::any_of(operands, [&](size_t i) { return is_weight(node->input(i)); }))
        lower(node, operands, casts);
    }
  }

 private:
  bool is_weight(const jit::Value* value) const {
    const auto known = constants_.tensor(value);
    return known && known->defined() && known->dim() >= 2 && known->scalar_type() == c10::kFloat;
  }

  void lower(jit::Node* node, const std::vector<size_t>& operands,
             std::unordered_map<jit::Value*, jit::Value*>& casts) {
    {
      const jit::WithInsertPoint before(node);
      for (const size_t i : operands) {
        jit::Value* const given = node->input(i);
        if (given->mustBeNone()) continue;
        jit::Value*& cast = casts[given];
        if (!cast) cast = lowered(given, node);
        node->replaceInput(i, cast);
      }
    }
    const jit::WithInsertPoint after(node->next());
    jit::Value* const result = node->output();
    jit::Value* const restored = inserted_cast(result, c10::kFloat, node);
    restored->setType(result->type());
    result->setType(with_type(result->type()));
    result->replaceAllUsesAfterNodeWith(restored->node(), restored);
  }

  jit::Value* lowered(jit::Value* value, const jit::Node* user) {
    if (const auto known = constants_.tensor(value)) return bind_constant(program_, known->to(type_));
    jit::Value* const cast = inserted_cast(value, type_, user);
    cast->setType(with_type(value->type()));
    return cast;
  }

  jit::Value* inserted_cast(jit::Value* value, c10::ScalarType type, const jit::Node* user) {
    jit::Node* const cast =
        graph_.create(c10::aten::to, {value, graph_.insertConstant(type), graph_.insertConstant(false),
                                      graph_.insertConstant(false), graph_.insertConstant(c10::IValue())});
    cast->setSourceRange(user->sourceRange());
    return graph_.insertNode(cast)->output();
  }

  c10::TypePtr with_type(const c10::TypePtr& type) const {
    return type->expectRef<c10::TensorType>().withScalarType(type_);
  }

  Program& program_;
  jit::Graph& graph_;
  const Constants constants_;
  const c10::ScalarType type_;
};

}  // namespace

c10::ScalarType precision_of(const std::string& name) {
  if (name == "float32") return c10::kFloat;
  if (name == "bfloat16") return c10::kBFloat16;
  if (name == "float16") return c10::kHalf;
  throw InputError("precision must be float32, bfloat16 or float16, not " + name);
}

void lower_precision(Program& program, c10::ScalarType type) {
  const c10::InferenceMode inference;
  Lowering(program, type).run(program.graph->block());
}

}  // namespace onnxtorch
