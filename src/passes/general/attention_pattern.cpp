#include "passes/general/attention_pattern.h"

#include <ATen/ATen.h>

#include "graph/constants.h"
#include "graph/symbols.h"
#include "graph/walk.h"
#include "graph/writes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

bool is(const jit::Value* value, const char* schema) { return value->node()->matches(schema); }
bool used_once(const jit::Value* value) { return value->uses().size() == 1; }

// Tells whether a product with the factor may have more dimensions than the other operand.
bool adds_dimensions(const std::optional<at::Tensor>& factor, const jit::Value* other) {
  if (!factor || !factor->defined() || factor->dim() == 0) return false;
  const auto rank = other->type()->expectRef<c10::TensorType>().sizes().size();
  return !rank || static_cast<int64_t>(*rank) < factor->dim();
}

// Takes a constant factor off a value that nothing else uses.
jit::Value* unscaled(jit::Value* value, double& scale, const Constants& constants) {
  const jit::Node* const node = value->node();
  if (!used_once(value) || node->inputs().size() != 2) return value;
  const bool product = node->matches(kMul);
  if (!product && !node->matches(kDiv)) return value;
  for (const size_t i : {1, 0}) {
    if (!product && i == 0) break;
    const auto factor = constants.number(node->input(i));
    jit::Value* const other = node->input(1 - i);
    if (!factor || adds_dimensions(constants.tensor(node->input(i)), other)) continue;
    scale *= product ? *factor : 1 / *factor;
    return other;
  }
  return value;
}

// Gives x of where(isnan(x), 0, x); null where the value is something else.
jit::Value* without_nan_guard(jit::Value* value, const Constants& constants) {
  if (!is(value, kWhere) || !used_once(value)) return nullptr;
  const jit::Node* const where = value->node();
  jit::Value* const guarded = where->input(2);
  const bool fits = is(where->input(0), "aten::isnan(Tensor self) -> Tensor") &&
                    where->input(0)->node()->input(0) == guarded && constants.number(where->input(1)) == 0.0 &&
                    guarded->uses().size() == 2;
  return fits ? guarded : nullptr;
}

// Gives the attention whose last product this node is; none where what it multiplies is no softmax of a product.
std::optional<Attention> attention_of(const jit::Node* product, const Constants& constants) {
  Attention found{nullptr, nullptr, product->input(1)};
  jit::Value* weights = product->input(0);
  if (jit::Value* const guarded = without_nan_guard(weights, constants)) {
    found.without_nan = true;
    weights = guarded;
  } else if (!used_once(weights)) {
    return {};
  }
  if (!is(weights, "aten::softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor")) return {};
  const jit::Node* const softmax = weights->node();
  const auto rank = softmax->input(0)->type()->expectRef<c10::TensorType>().sizes().size();
  const auto dim = constants.get<int64_t>(softmax->input(1));
  const bool is_last = dim && (*dim == -1 || (rank && *dim == static_cast<int64_t>(*rank) - 1));
  if (!is_last || !softmax->input(2)->mustBeNone()) return {};

  jit::Value* scores = unscaled(softmax->input(0), found.scale, constants);
  const bool scaled_after_mask = found.scale != 1;
  if (is(scores, kAdd) && used_once(scores) && !scaled_after_mask &&
      constants.number(scores->node()->input(2)) == 1.0) {
    const jit::Node* const sum = scores->node();
    for (const size_t i : {0, 1}) {
      double scale = 1;
      jit::Value* const inner = unscaled(sum->input(i), scale, constants);
      if (inner->node()->kind() != c10::aten::matmul || !used_once(inner)) continue;
      found.mask = sum->input(1 - i);
      found.scale = scale;
      scores = inner;
      break;
    }
  }
  if (scores->node()->kind() != c10::aten::matmul || !used_once(scores)) return {};
  found.query = unscaled(scores->node()->input(0), found.scale, constants);
  found.key = unscaled(scores->node()->input(1), found.scale, constants);
  return found;
}

}  // namespace

void for_each_attention(Program& program, const std::function<void(jit::Node*, const Attention&)>& visit) {
  const Constants constants(program);
  for_each_node(program.graph->block(), [&](jit::Node* node) {
    const auto found = node->kind() == c10::aten::matmul ? attention_of(node, constants) : std::nullopt;
    if (found) visit(node, *found);
  });
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
