#include "lower/precision.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "lower/cpu_features.h"
#include "lower/rounding.h"
#include "onnx_torch/error.h"
#include "passes/constants.h"
#include "passes/known_type.h"

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

// Which operands make a node one to compute in another type.
using Wanted = std::function<bool(const jit::Value* operand, const Constants& constants)>;

// Computes what is of one type in another, with results in the first. Operands are rounded to a third one before.
class Conversion {
 public:
  Conversion(Program& program, c10::ScalarType from, c10::ScalarType to, c10::ScalarType rounded, Wanted wanted)
      : program_(program),
        graph_(*program.graph),
        constants_(program),
        from_(from),
        to_(to),
        rounded_(rounded),
        wanted_(std::move(wanted)) {}

  void run(jit::Block* block) {
    std::unordered_map<jit::Value*, jit::Value*> casts;  // by what they cast; good for the rest of the block
    for (auto it = block->nodes().begin(); it != block->nodes().end();) {
      jit::Node* const node = *it++;
      for (jit::Block* inner : node->blocks()) run(inner);
      const std::vector<size_t> operands = operands_of(node);
      if (std::ranges::any_of(operands, [&](size_t i) { return wanted_(node->input(i), constants_); }))
        convert(node, operands, casts);
    }
  }

 private:
  void convert(jit::Node* node, const std::vector<size_t>& operands,
               std::unordered_map<jit::Value*, jit::Value*>& casts) {
    {
      const jit::WithInsertPoint before(node);
      for (const size_t i : operands) {
        jit::Value* const given = node->input(i);
        if (given->mustBeNone()) continue;
        jit::Value*& cast = casts[given];
        if (!cast) cast = converted(given, node);
        node->replaceInput(i, cast);
      }
    }
    if (from_ == to_) return;
    const jit::WithInsertPoint after(node->next());
    jit::Value* const result = node->output();
    jit::Value* const restored = inserted_cast(result, from_, node);
    restored->setType(result->type());
    result->setType(with_type(result->type()));
    result->replaceAllUsesAfterNodeWith(restored->node(), restored);
  }

  jit::Value* converted(jit::Value* value, const jit::Node* user) {
    if (const auto known = constants_.tensor(value)) return bind_constant(program_, known->to(rounded_).to(to_));
    jit::Value* const result = rounded_ == to_ ? inserted_cast(value, to_, user) : inserted_rounding(value, user);
    result->setType(with_type(value->type()));
    return result;
  }

  jit::Value* inserted_rounding(jit::Value* value, const jit::Node* user) {
    const auto kind = c10::Symbol::fromQualString("onnx_torch::rounded");
    jit::Node* const node = graph_.create(kind, {value, graph_.insertConstant(rounded_)});
    node->setSourceRange(user->sourceRange());
    return graph_.insertNode(node)->output();
  }

  jit::Value* inserted_cast(jit::Value* value, c10::ScalarType type, const jit::Node* user) {
    jit::Node* const cast =
        graph_.create(c10::aten::to, {value, graph_.insertConstant(type), graph_.insertConstant(false),
                                      graph_.insertConstant(false), graph_.insertConstant(c10::IValue())});
    cast->setSourceRange(user->sourceRange());
    return graph_.insertNode(cast)->output();
  }

  c10::TypePtr with_type(const c10::TypePtr& type) const {
    return type->expectRef<c10::TensorType>().withScalarType(to_);
  }

  Program& program_;
  jit::Graph& graph_;
  const Constants constants_;
  const c10::ScalarType from_, to_, rounded_;
  const Wanted wanted_;
};

// Whether the device has instructions for products of the type.
bool has_products(c10::ScalarType type, c10::Device device) {
  return !device.is_cpu() || (type == c10::kBFloat16 && cpu_features().bfloat16_products);
}

}  // namespace

c10::ScalarType precision_of(const std::string& name) {
  if (name == "float32") return c10::kFloat;
  if (name == "bfloat16") return c10::kBFloat16;
  if (name == "float16") return c10::kHalf;
  throw InputError("precision must be float32, bfloat16 or float16, not " + name);
}

void lower_precision(Program& program, c10::ScalarType type, c10::Device device) {
  register_rounding();
  const c10::InferenceMode inference;
  const c10::ScalarType computed = has_products(type, device) ? type : c10::kFloat;
  const auto is_weight = [=](const jit::Value* operand, const Constants& constants) {
    const auto known = constants.tensor(operand);
    const bool fits = known && known->defined() && known->dim() >= 2 && known->scalar_type() == c10::kFloat;
    // Its elements are sums of few products, and rounding takes as long.
    const bool is_depthwise = fits && known->dim() >= 3 && known->size(1) == 1;
    return fits && !(is_depthwise && computed == c10::kFloat);
  };
  Conversion(program, c10::kFloat, computed, type, is_weight).run(program.graph->block());
}

void widen_halves(Program& program) {
  const c10::InferenceMode inference;
  for (const c10::ScalarType type : {c10::kHalf, c10::kBFloat16}) {
    if (has_products(type, c10::kCPU)) continue;
    const auto is_half = [=](const jit::Value* operand, const Constants& constants) {
      const auto known = constants.tensor(operand);
      return known && known->defined() ? known->scalar_type() == type : type_of(operand) == type;
    };
    Conversion(program, type, c10::kFloat, c10::kFloat, is_half).run(program.graph->block());
  }
}

}  // namespace onnxtorch
