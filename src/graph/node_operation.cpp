#include "graph/node_operation.h"

#include <c10/util/Exception.h>
#include <torch/csrc/jit/ir/constants.h>

#include <limits>
#include <unordered_set>
#include <utility>

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

bool divides_integers(const jit::Node* node) {
  static const std::unordered_set<c10::Symbol> kinds{c10::aten::floordiv, c10::aten::remainder,
                                                     c10::aten::__round_to_zero_floordiv};
  const auto is_integer = [node](size_t i) { return node->input(i)->type()->kind() == c10::TypeKind::IntType; };
  return kinds.contains(node->kind()) && node->inputs().size() == 2 && is_integer(0) && is_integer(1);
}

bool have_quotient(int64_t a, int64_t b) { return b != 0 && (b != -1 || a != std::numeric_limits<int64_t>::min()); }

}  // namespace

jit::Operation operation_of(const jit::Node* node) {
  jit::Operation operation = node->getOperation();
  if (!divides_integers(node)) return operation;
  return [operation = std::move(operation)](jit::Stack& stack) mutable {
    TORCH_CHECK(have_quotient(jit::peek(stack, 0, 2).toInt(), jit::peek(stack, 1, 2).toInt()), "division by zero");
    operation(stack);
  };
}

bool divides_by_zero(const jit::Node* node) {
  if (!divides_integers(node)) return false;
  const auto a = jit::constant_as<int64_t>(node->input(0)), b = jit::constant_as<int64_t>(node->input(1));
  return a && b && !have_quotient(*a, *b);
}

}  // namespace onnxtorch
