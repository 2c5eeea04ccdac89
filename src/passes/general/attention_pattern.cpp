#include "passes/general/attention_pattern.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <vector>

#include "base/size.h"
#include "graph/constants.h"
#include "graph/known_type.h"
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

bool is_product(const jit::Value* value) { return value->node()->kind() == c10::aten::matmul && used_once(value); }

// Takes sums with masks off scores, the last one first. Gives the product that the scores are, with its factor taken
// off; null where they are none.
jit::Value* unmasked(jit::Value* scores, double& scale, std::vector<jit::Value*>& masks, const Constants& constants) {
  double factor = 1;
  if (jit::Value* const product = unscaled(scores, factor, constants); is_product(product)) {
    scale *= factor;
    return product;
  }
  if (!is(scores, kAdd) || !used_once(scores) || constants.number(scores->node()->input(2)) != 1.0) return nullptr;
  for (const size_t i : {0, 1}) {
    jit::Value* const mask = scores->node()->input(1 - i);
    masks.push_back(mask);
    if (jit::Value* const product = unmasked(scores->node()->input(i), scale, masks, constants)) return product;
    masks.pop_back();
  }
  return nullptr;
}

// Gives the sum of two constant masks where it is not too large to be held.
std::optional<at::Tensor> constant_sum(const std::optional<at::Tensor>& a, const std::optional<at::Tensor>& b) {
  constexpr int64_t kMostElements = 1 << 22;
  if (!a || !b || !a->defined() || !b->defined() || !at::are_expandable(a->sizes(), b->sizes())) return {};
  const bool is_small = product_of(at::infer_size_dimvector(a->sizes(), b->sizes())).is_at_most(kMostElements);
  return is_small ? std::optional(at::add(*a, *b)) : std::nullopt;
}

// Inserts the sum of masks before the node; gives null where there are none.
jit::Value* sum_of(const std::vector<jit::Value*>& masks, Program& program, jit::Node* node,
                   const Constants& constants) {
  if (masks.empty()) return nullptr;
  const jit::WithInsertPoint at(node);
  jit::Value* sum = masks.back();
  for (size_t i = masks.size() - 1; i-- > 0;) {
    if (const auto known = constant_sum(constants.tensor(sum), constants.tensor(masks[i]))) {
      sum = bind_constant(program, *known);
    } else {
      sum = program.graph->insert(c10::aten::add, {sum, masks[i]}, {}, node->sourceRange());
      sum->setType(c10::TensorType::get()->withScalarType(type_of(masks[i])));
    }
  }
  return sum;
}

// Gives the attention whose last product this node is; none where what it multiplies is no softmax of a product.
std::optional<Attention> attention_of(jit::Node* product, Program& program, const Constants& constants) {
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
  std::vector<jit::Value*> masks;
  scores = unmasked(scores, found.scale, masks, constants);
  if (!scores || (scaled_after_mask && !masks.empty())) return {};
  found.query = unscaled(scores->node()->input(0), found.scale, constants);
  found.key = unscaled(scores->node()->input(1), found.scale, constants);
  found.mask = sum_of(masks, program, product, constants);
  return found;
}

}  // namespace

void for_each_attention(Program& program, const std::function<void(jit::Node*, const Attention&)>& visit) {
  const Constants constants(program);
  for_each_node(program.graph->block(), [&](jit::Node* node) {
    const auto found = node->kind() == c10::aten::matmul ? attention_of(node, program, constants) : std::nullopt;
    if (found) visit(node, *found);
  });
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
