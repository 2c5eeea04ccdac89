#include "graph/known_type.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <unordered_set>
#include <vector>

#include "graph/operator_traits.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using Type = std::optional<c10::ScalarType>;

// The one floating type of all floats among the operands, which a number beside them takes on as well; there is none
// where an operand's type is not known, or two differ.
class FloatingType {
 public:
  explicit FloatingType(at::ArrayRef<const jit::Value*> operands) : known_(take(operands)) {}
  Type operator*() const { return known_ ? found_ : std::nullopt; }

 private:
  bool take(at::ArrayRef<const jit::Value*> operands) {
    return std::ranges::all_of(operands, [this](const jit::Value* operand) { return take(operand); });
  }

  bool take(const jit::Value* operand) {
    const c10::Type& type = *operand->type();
    if (is_tensor(operand)) return take(type_of(operand));
    if (type.isSubtypeOf(*c10::ListType::ofTensors())) {  // nothing else may have appended to the list
      const bool is_plain = operand->node()->kind() == c10::prim::ListConstruct && operand->uses().size() == 1;
      return is_plain && take(operand->node()->inputs());
    }
    using Kind = c10::TypeKind;
    return type.kind() != Kind::OptionalType && type.kind() != Kind::NumberType && type.kind() != Kind::ComplexType;
  }

  bool take(Type type) {
    if (!type || c10::isIntegralType(*type, /*includeBool=*/true)) return type.has_value();
    if (!c10::isFloatingType(*type) || found_.value_or(*type) != *type) return false;
    found_ = type;
    return true;
  }

  Type found_;
  bool known_;
};

// Gives the element type of the tensors, or of the lists of tensors, that a node returns.
Type result_type(const jit::Node* node) {
  if (const jit::Value* const argument = dtype_argument(node)) {
    const auto named = jit::constant_as<int64_t>(argument);
    return named ? Type(static_cast<c10::ScalarType>(*named)) : std::nullopt;
  }
  if (has(node, Trait::IsMask)) return c10::kBool;
  if (has(node, Trait::KeepsType)) return type_of(node->input(0));
  if (has(node, Trait::Ternary)) return *FloatingType(node->inputs().slice(1));
  if (has(node, Trait::Computes, Trait::Moves)) return *FloatingType(node->inputs());
  if (node->kind() == c10::prim::ListUnpack && node->input()->uses().size() == 1)
    return result_type(node->input()->node());
  return {};
}

class Inference {
 public:
  void run(jit::Block* block) {
    for (jit::Node* node : block->nodes()) {
      if (node->kind() == c10::prim::Loop) {
        loop(node);
        continue;
      }
      for (jit::Block* inner : node->blocks()) run(inner);
      if (std::ranges::none_of(node->outputs(), is_open)) continue;
      if (node->kind() == c10::prim::If) {
        branches(node);
      } else if (const auto type = result_type(node)) {
        for (jit::Value* output : node->outputs()) set(output, type);
      }
    }
  }

 private:
  static bool is_open(const jit::Value* value) { return is_tensor(value) && !type_of(value); }

  void set(jit::Value* value, Type type) {
    if (!type || !is_open(value)) return;
    value->setType(type_like(value, type));
    found_.push_back(value);
  }

  void branches(jit::Node* node) {
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      const Type type = type_of(node->blocks()[0]->outputs()[i]);
      if (type == type_of(node->blocks()[1]->outputs()[i])) set(node->output(i), type);
    }
  }

  // Infers the types of the values that a loop carries: each is of the type of its first value, if the body, inferred
  // under this assumption, gives that type again.
  void loop(jit::Node* node) {
    constexpr size_t kFirst = 2;  // the first carried input, after the number of iterations and the condition
    constexpr int kMostAttempts = 8;
    jit::Block* const body = node->blocks()[0];
    const auto carried = body->inputs().slice(1);
    const auto differs = [&](const jit::Value* value) {
      return type_of(body->outputs()[value->offset()]) != type_of(value);
    };
    for (int attempt = 1;; ++attempt) {
      const auto known = static_cast<ptrdiff_t>(found_.size());
      for (size_t i = 0; i < carried.size(); ++i) {
        if (!differing_.contains(carried[i])) set(carried[i], type_of(node->input(kFirst + i)));
      }
      const std::vector<jit::Value*> assumed(found_.begin() + known, found_.end());
      run(body);
      if (std::ranges::none_of(assumed, differs)) break;
      // After the last attempt no type is assumed, since each attempt goes through all loops nested in the body again.
      std::ranges::copy_if(assumed, std::inserter(differing_, differing_.end()),
                           [&](const jit::Value* value) { return attempt == kMostAttempts || differs(value); });
      forget(known);
    }
    for (size_t i = 0; i < carried.size(); ++i) set(node->output(i), type_of(carried[i]));
  }

  void forget(ptrdiff_t known) {
    for (jit::Value* value : std::span(found_).subspan(known)) value->setType(type_like(value, std::nullopt));
    found_.resize(known);
  }

  std::vector<jit::Value*> found_;
  std::unordered_set<const jit::Value*> differing_;
};

}  // namespace

const jit::Value* dtype_argument(const jit::Node* node) {
  const c10::FunctionSchema* const schema = node->maybeSchema();
  const auto place = schema ? schema->argumentIndexWithName("dtype") : std::nullopt;
  return place && !node->input(*place)->mustBeNone() ? node->input(*place) : nullptr;
}

void infer_types(jit::Block* block) { Inference().run(block); }

}  // namespace onnxtorch
