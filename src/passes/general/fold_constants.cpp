#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/interruption.h"
#include "base/prepare_guard.h"
#include "base/run_apart.h"
#include "base/run_guard.h"
#include "graph/constants.h"
#include "graph/operator_traits.h"
#include "graph/walk.h"
#include "graph/writes.h"
#include "passes/general/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using c10::IValue;

// A result may take more memory than what it is made of, but not much more: an expanded constant is better expanded
// anew.
constexpr size_t kMostGrowth = 8, kSmall = 1 << 20;

size_t bytes(const IValue& value) {
  size_t sum = 0;
  if (value.isTensor() && value.toTensor().defined()) sum = value.toTensor().nbytes();
  if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) sum += tensor.nbytes();
  }
  return sum;
}

// An operator on so many bytes may take longer than preparing may, or than one who presses Ctrl-C will wait. A thread
// of its own takes a quarter of a millisecond.
constexpr size_t kLarge = 1 << 16, kHuge = 1 << 24;

bool may_take_long(size_t bytes) {
  const PrepareGuard* const guard = guard_of_preparation();
  return (bytes >= kLarge && guard && guard->has_end()) || (bytes >= kHuge && is_interruptible());
}

// Tells whether the time to prepare is not over.
bool goes_on() {
  check_interruption();
  const PrepareGuard* const guard = guard_of_preparation();
  return !guard || !guard->is_over();
}

// A call of an operator on a stack, and whether it succeeded.
struct Operation {
  jit::Operation call;
  jit::Stack stack;
  double most_bytes;
  bool succeeded = false;

  void operator()() noexcept {
    try {
      const MemoryScope memory(most_bytes);
      call(stack);
      succeeded = true;
    } catch (...) {
      // The run will say what is wrong, if it gets there.
    }
  }
};

class ConstantFolding {
 public:
  explicit ConstantFolding(Program& program) : program_(program), constants_(program), writers_(program.graph) {}

  void run() {
    jit::Block* const all = program_.graph->block();
    for_each_node(all, [&](jit::Node* node) { fold(node); });
    for_each_node(all, [&](jit::Node* node) {
      const auto found = node->outputs().size() == 1 ? results_.find(node->output()) : results_.end();
      if (found == results_.end() || !found->second.isTensor()) return;
      node->output()->replaceAllUsesWith(bind_constant(program_, found->second));
    });
    eliminate_dead_code(program_.graph);
  }

 private:
  void fold(jit::Node* node) {
    if (!is_pure(node)) return;
    jit::Stack stack;
    size_t given = 0;
    for (const jit::Value* input : node->inputs()) {
      auto known = value(input);
      if (!known) return;
      given += bytes(*known);
      stack.push_back(*std::move(known));
    }
    if (given == 0) return;  // a value made of numbers alone is known already, or large
    if (node->kind() == c10::prim::ListConstruct) {
      c10::List<at::Tensor> list;
      for (const IValue& item : stack) list.push_back(item.toTensor());
      keep(node, std::move(list));
      return;
    }
    check_preparation();
    const auto operation = std::make_shared<Operation>(node->getOperation(), std::move(stack), most_bytes_ - held_);
    bool is_done = true;
    if (may_take_long(given)) {
      is_done = run_apart([operation] { (*operation)(); }, goes_on);
      check_preparation();
    } else {
      (*operation)();
    }
    if (!is_done || !operation->succeeded) return;
    const IValue& result = operation->stack.back();
    if (result.isTensor() && bytes(result) <= std::max(kSmall, kMostGrowth * given)) keep(node, result);
  }

  void keep(const jit::Node* node, IValue result) {
    if (result.isTensor()) held_ += static_cast<double>(bytes(result));
    results_.emplace(node->output(), std::move(result));
    for (const jit::Value* input : node->inputs()) {
      if (is_list(input->node())) {
        for (const jit::Value* item : input->node()->inputs()) forget_if_used_up(item);
      }
      forget_if_used_up(input);
    }
  }

  // Forgets a result that only goes into other results, once these no longer need it.
  void forget_if_used_up(const jit::Value* value) {
    const auto found = results_.find(value);
    if (found == results_.end() || is_needed(value)) return;
    if (found->second.isTensor()) held_ -= static_cast<double>(bytes(found->second));
    found->second = IValue();
  }

  // Tells whether a result is still needed. Lists do not become constants, but their items do.
  bool is_needed(const jit::Value* value) const {
    return std::ranges::any_of(value->uses(), [&](const jit::Use& use) {
      if (use.user->outputs().size() != 1) return true;
      const jit::Value* const result = use.user->output();
      return !results_.contains(result) || (is_list(use.user) && is_needed(result));
    });
  }

  static bool is_list(const jit::Node* node) {
    return node->kind() == c10::prim::ListConstruct && node->output()->type()->isSubtypeOf(*c10::ListType::ofTensors());
  }

  bool is_pure(jit::Node* node) const {
    if (node->outputs().size() != 1 || !node->blocks().empty() || node->hasSideEffects() ||
        node->isNondeterministic()) {
      return false;
    }
    const bool is_operator = (node->kind().is_aten() || has(node, Trait::Folds)) && node->maybeOperator() &&
                             !node->schema().is_mutable() &&
                             node->output()->type()->kind() == c10::TypeKind::TensorType;
    return (is_list(node) || is_operator) && !writers_.has_writers(node);
  }

  std::optional<IValue> value(const jit::Value* value) const {
    if (const auto found = results_.find(value); found != results_.end()) return found->second;
    const auto known = constants_(value);
    return known ? known : sizes(value);
  }

  // Gives a list of known integers.
  std::optional<IValue> sizes(const jit::Value* value) const {
    const jit::Node* const node = value->node();
    if (node->kind() != c10::prim::ListConstruct || !value->type()->isSubtypeOf(*c10::ListType::ofInts())) return {};
    if (writers_.has_writers(node)) return {};
    c10::List<int64_t> list;
    for (const jit::Value* item : node->inputs()) {
      const auto known = constants_.get<int64_t>(item);
      if (!known) return {};
      list.push_back(*known);
    }
    return list;
  }

  Program& program_;
  const Constants constants_;
  const Writers writers_;
  std::unordered_map<const jit::Value*, IValue> results_;
  const double most_bytes_ = most_constant_bytes();
  double held_ = 0;  // bytes of the results
};

}  // namespace

void fold_constants(Program& program) {
  const c10::InferenceMode inference;
  ConstantFolding(program).run();
}

}  // namespace onnxtorch
