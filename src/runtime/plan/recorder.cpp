#include "runtime/plan/recorder.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "base/cpu_tensor.h"
#include "base/prepare_guard.h"
#include "graph/loops.h"
#include "graph/operator_traits.h"
#include "graph/walk.h"
#include "runtime/plan/data_flow.h"
#include "runtime/plan/lifetimes.h"
#include "runtime/plan/workspace.h"
#include "runtime/running_graph.h"
#include "runtime/separated.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using c10::IValue;

constexpr size_t kMostSteps = 20'000, kMostVisited = 400'000;  // once loops are unrolled
constexpr size_t kMostConstantBytes = 1 << 20;  // the most for what is computed once as it follows from sizes alone

struct NoPlan : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The knowledge of a value: its value in this run, and how much of it is every run's.
struct Known {
  enum class State : uint8_t {
    Fixed,   // all of it is every run's
    Formed,  // everything is but the elements, of a tensor, or of those of a list or tuple
    Open,    // nothing is
  };
  State state = State::Open;
  IValue now = {};
  size_t slot = Step::kNone;
  std::shared_ptr<std::vector<Known>> items = {};  // those of a list or a tuple of tensors, shared by whoever has it
  c10::TypePtr type = {};                          // the type of the list or the tuple
};

bool is_fixed(const Known& known) { return known.state == Known::State::Fixed; }

bool is_tensor(const c10::TypePtr& type) { return type->isSubtypeOf(*c10::TensorType::get()); }

bool is_tensor_list(const jit::Value* value) {
  const auto list = value->type()->cast<c10::ListType>();
  return list && is_tensor(list->getElementType());
}

// Tells whether the type is a list or a tuple of tensors, or a list of such tuples: their items are followed one by
// one.
bool is_structure(const c10::TypePtr& type) {
  if (const auto tuple = type->cast<c10::TupleType>()) return std::ranges::all_of(tuple->elements(), is_tensor);
  const auto list = type->cast<c10::ListType>();
  if (!list) return false;
  return is_tensor(list->getElementType()) ||
         (list->getElementType()->kind() == c10::TypeKind::TupleType && is_structure(list->getElementType()));
}

// Gives a tensor on the same memory with a storage of its own: the recorder tells by storages what is a view of what.
at::Tensor with_own_storage(const at::Tensor& t) {
  return at::from_blob(const_cast<void*>(t.const_data_ptr()), t.sizes(), t.strides(), t.options());
}

class PlanRecorder {
 public:
  PlanRecorder(const Program& program, std::span<const IValue> inputs, const c10::intrusive_ptr<StringPool>& strings,
               bool relies_on_branches)
      : program_(program), has_open_sizes_(has_open_sizes(program)), relies_on_branches_(relies_on_branches) {
    for_each_node(program.graph->block(), [&](const jit::Node* node) { writes_ |= writes_to_tensor(node); });
    size_t next = 0, place = 0;
    for (const GraphInput& input : program.graph_inputs) {
      Known& known = known_[program.graph->inputs()[place++]];
      switch (input.role) {
        case GraphInput::Role::Input:
          known = given(inputs[next], next);
          ++next;
          break;
        case GraphInput::Role::Constant:
          known = {.state = Known::State::Fixed, .now = program.constants[input.index].value};
          break;
        case GraphInput::Role::Strings:
          known = {.state = Known::State::Open, .now = strings, .slot = add_slot({.kind = Slot::Kind::Open})};
          plan_.strings = known.slot;
          break;
      }
    }
  }

  Recorded run(std::span<const IValue> inputs, const Targets& targets) {
    const Lent own = lent(targets, inputs, growths_of(program_));
    std::vector<Grown> grown;
    for (const Grown& of : own.grown) grown.push_back({of.past, with_own_storage(of.present)});
    {
      const GrownInPlace in_place(grown);
      visit(program_.graph->block());
    }
    Recorded recorded;
    for (const jit::Value* output : program_.graph->outputs()) {
      const Known& known = of(output);
      recorded.results.push_back(value_of(known));
      plan_.results.push_back(slot_of(known));
    }
    known_.clear();
    for (size_t i = 0; i < grown.size(); ++i) {
      for (IValue& result : recorded.results) {
        if (result.isTensor() && result.toTensor().is_same(grown[i].present)) result = own.grown[i].present;
      }
    }
    separate(recorded.results, targets);
    arrange(plan_);
    recorded.plan = std::make_shared<const Plan>(std::move(plan_));
    return recorded;
  }

 private:
  Known given(const IValue& value, size_t number) {
    if (!value.isTensor() || !lies_in_memory(value.toTensor())) throw NoPlan("an input is no dense tensor");
    const at::Tensor& t = value.toTensor();
    const size_t buffer = add_buffer(t, {.kind = Buffer::Kind::Input, .bytes = t.storage().nbytes(), .input = number});
    return {.state = Known::State::Formed, .now = value, .slot = add_slot(t, buffer, 0)};
  }

  // --- Values ---

  const Known& of(const jit::Value* value) const { return known_.at(value); }

  IValue value_of(const Known& known) const {
    if (!known.items) return known.now;
    std::vector<IValue> items;
    for (const Known& item : *known.items) items.push_back(value_of(item));
    return joined(*known.type, std::move(items));
  }

  size_t add_slot(Slot slot) {
    plan_.slots.push_back(std::move(slot));
    return plan_.slots.size() - 1;
  }

  size_t add_slot(const at::Tensor& t, size_t buffer, int64_t first) {
    Slot slot{.kind = Slot::Kind::Tensor};
    slot.form = {.buffer = buffer,
                 .sizes = t.sizes().vec(),
                 .strides = t.strides().vec(),
                 .offset = t.storage_offset() - first,
                 .type = t.scalar_type(),
                 .is_number = t.unsafeGetTensorImpl()->is_wrapped_number()};
    return add_slot(std::move(slot));
  }

  // Notes a buffer by the tensor's storage. The storage may go, but nothing else takes its address meanwhile.
  size_t add_buffer(const at::Tensor& t, Buffer buffer) {
    c10::StorageImpl* const storage = t.storage().unsafeGetStorageImpl();
    plan_.buffers.push_back(std::move(buffer));
    buffers_.insert_or_assign(storage, KnownBuffer{plan_.buffers.size() - 1, t.storage_offset(), t.element_size(),
                                                   t.storage().getWeakStorageImpl()});
    return plan_.buffers.size() - 1;
  }

  // Gives the slot of the value in the plan.
  size_t slot_of(const Known& known) {
    if (known.slot != Step::kNone) return known.slot;
    if (is_fixed(known)) return add_slot({.kind = Slot::Kind::Constant, .constant = apart(value_of(known))});
    Slot list{.kind = Slot::Kind::Several, .type = known.type};
    std::vector<size_t> items;
    bool is_open = false;
    for (const Known& item : *known.items) {
      items.push_back(slot_of(item));
      is_open |= plan_.slots[items.back()].kind == Slot::Kind::Open;
    }
    if (!is_open) {
      list.items = std::move(items);
      return add_slot(std::move(list));
    }
    const size_t made = add_slot({.kind = Slot::Kind::Open});
    plan_.steps.push_back({Step::Call{joining(known.type, items.size())}, std::move(items), {made}});
    return made;
  }

  // --- Nodes ---

  void visit(jit::Block* block) {
    const auto& last = last_uses(block);
    for (jit::Node* node : block->nodes()) {
      visit(node);
      if (has_open_sizes_) check_sizes(node);
      const auto found = last.find(node);
      if (found == last.end()) continue;
      for (const jit::Value* value : found->second) known_.erase(value);
    }
  }

  // Throws where a tensor has other sizes than trials have told, as a run without a plan does.
  void check_sizes(const jit::Node* node) const {
    for (const jit::Value* output : node->outputs()) {
      const auto found = known_.find(output);
      const bool is_known = found != known_.end() && found->second.now.isTensor();
      if (is_known && !has_known_sizes(found->second.now.toTensor(), output))
        throw NoPlan("other sizes than are known");
    }
  }

  // Gives for each node the values of its block that nothing needs after it.
  const std::unordered_map<const jit::Node*, std::vector<const jit::Value*>>& last_uses(jit::Block* block) {
    auto [found, is_new] = last_uses_.try_emplace(block);
    if (!is_new) return found->second;
    std::unordered_map<const jit::Value*, const jit::Node*> last;
    const auto look_at = [&](const jit::Value* value) {
      const jit::Node* latest = nullptr;
      for (const jit::Use& use : value->uses()) {
        const jit::Node* user = use.user;
        while (user->owningBlock() != block) user = user->owningBlock()->owningNode();
        if (user == block->return_node()) return;
        if (!latest || latest->isBefore(user)) latest = user;
      }
      if (latest) found->second[latest].push_back(value);
    };
    if (block->owningNode()) std::ranges::for_each(block->inputs(), look_at);
    for (const jit::Node* node : block->nodes()) std::ranges::for_each(node->outputs(), look_at);
    return found->second;
  }

  void visit(jit::Node* node) {
    check_preparation();
    if (plan_.steps.size() > kMostSteps || ++visited_ > kMostVisited) throw NoPlan("too many calls");
    switch (node->kind()) {
      case c10::prim::Constant:
        known_[node->output()] = {.state = Known::State::Fixed, .now = *jit::toIValue(node->output())};
        return;
      case c10::prim::If:
        return visit_if(node);
      case c10::prim::Loop:
        return visit_loop(node);
      case c10::prim::Uninitialized:
        known_[node->output()] = {.state = Known::State::Fixed, .now = IValue::uninitialized()};
        return;
      case c10::prim::unchecked_cast:
      case c10::prim::unchecked_unwrap_optional:
        known_[node->output()] = of(node->input());
        return;
      default:
        break;
    }
    if (!node->blocks().empty()) throw NoPlan(std::string("a node ") + node->kind().toQualString());
    if (!visit_structure(node)) visit_operator(node);
  }

  void visit_if(jit::Node* node) {
    const Known condition = of(node->input());
    if (!is_fixed(condition)) {
      if (!relies_on_branches_ || draws_) return interpret(node);
      expect_branch(condition);
    }
    jit::Block* const taken = node->blocks()[condition.now.toBool() ? 0 : 1];
    visit(taken);
    for (size_t i = 0; i < node->outputs().size(); ++i) known_[node->output(i)] = of(taken->outputs()[i]);
  }

  // Adds a step that expects the branch of this run, as data decides the branch: with another one the plan has another
  // form. That run is done again, so nothing may have drawn random numbers by then.
  void expect_branch(const Known& condition) {
    const auto check = [wanted = condition.now.toBool()](jit::Stack& stack) {
      if (jit::pop(stack).toBool() != wanted) throw OtherForm("another branch than in a run of the same sizes before");
    };
    Step step{Step::Call{check}, {slot_of(condition)}, {}};
    step.name = "prim::If";
    plan_.steps.push_back(std::move(step));
  }

  void visit_loop(jit::Node* node) {
    jit::Block* const body = node->blocks()[0];
    if (!is_fixed(of(node->input(0))) || !is_fixed(of(node->input(1))) || may_come_of_data(body->outputs()[0])) {
      return interpret(node);
    }
    const int64_t most = of(node->input(0)).now.toInt();
    bool goes_on = of(node->input(1)).now.toBool();
    std::vector<Known> carried;
    for (const jit::Value* input : node->inputs().slice(2)) carried.push_back(of(input));
    for (int64_t i = 0; goes_on && i < most; ++i) {
      known_[body->inputs()[0]] = {.state = Known::State::Fixed, .now = i};
      for (size_t k = 0; k < carried.size(); ++k) known_[body->inputs()[k + 1]] = carried[k];
      visit(body);
      const Known next = of(body->outputs()[0]);
      if (!is_fixed(next)) throw NoPlan("a loop that data ends");
      goes_on = next.now.toBool();
      for (size_t k = 0; k < carried.size(); ++k) carried[k] = of(body->outputs()[k + 1]);
    }
    for (size_t k = 0; k < carried.size(); ++k) known_[node->output(k)] = carried[k];
  }

  // Follows lists of tensors and tuples item by item. Gives false where the node does nothing of the kind.
  bool visit_structure(const jit::Node* node) {
    const std::string_view name = node->kind().toQualString();
    const auto items_of = [&](size_t i) { return i < node->inputs().size() ? of(node->input(i)).items : nullptr; };
    if ((name == "prim::TupleConstruct" || name == "prim::ListConstruct") && is_structure(node->output()->type())) {
      Known made{.state = Known::State::Formed,
                 .items = std::make_shared<std::vector<Known>>(),
                 .type = node->output()->type()};
      for (const jit::Value* input : node->inputs()) made.items->push_back(of(input));
      known_[node->output()] = std::move(made);
      return true;
    }
    const auto items = items_of(0);
    if (!items) return false;
    if (name == "prim::ListUnpack" || name == "prim::TupleUnpack") {
      if (items->size() != node->outputs().size()) throw NoPlan("a list of another length");
      for (size_t i = 0; i < items->size(); ++i) known_[node->output(i)] = (*items)[i];
      return true;
    }
    if (name == "aten::append") {
      items->push_back(of(node->input(1)));
      if (!node->outputs().empty()) known_[node->output()] = of(node->input(0));
      return true;
    }
    if (name == "aten::len") {
      known_[node->output()] = {.state = Known::State::Fixed, .now = static_cast<int64_t>(items->size())};
      return true;
    }
    if ((name == "aten::__getitem__" || name == "prim::TupleIndex") && is_fixed(of(node->input(1)))) {
      const int64_t index = of(node->input(1)).now.toInt(), count = static_cast<int64_t>(items->size());
      if (index < -count || index >= count) throw NoPlan("an index beyond a list");
      known_[node->output()] = (*items)[index < 0 ? index + count : index];
      return true;
    }
    if (writes(node)) throw NoPlan("a list of tensors that is written to");
    return false;
  }

  void visit_operator(jit::Node* node) {
    if (is_foreign(node)) throw NoPlan("an operator of the user's");  // it may keep anything
    jit::Operation operation = operation_of(node);
    bool fixed = true, forms = true;  // the arguments
    std::vector<Known> arguments;
    for (const jit::Value* input : node->inputs()) {
      arguments.push_back(of(input));
      const Known& known = arguments.back();
      fixed &= is_fixed(known);
      const bool is_tensor = known.items || known.now.isTensor();
      const bool is_pool = input->node()->kind() == c10::prim::Param && known.slot == plan_.strings;
      forms &= is_fixed(known) || is_pool || (known.state == Known::State::Formed && is_tensor && !is_open(known));
    }
    const bool writing = writes(node), writing_tensors = writing && writes_to_tensor(node);
    if (writing_tensors && is_fixed(arguments[0])) throw NoPlan("a constant that is written to");
    if (writing && !writing_tensors && !fixed) throw NoPlan("a list that data is put into");
    jit::Stack stack;
    for (const Known& known : arguments) stack.push_back(value_of(known));
    const jit::Stack given = stack;
    operation(stack);
    draws_ |= draws_random_numbers(node);
    const bool reads_form =
        !fixed && (forms ? reads_form_alone(node, given) : reads_dims_alone(node, arguments, given));
    if (reads_form || (fixed && !draws_random_numbers(node) && stays(stack, given))) {
      for (size_t i = 0; i < node->outputs().size(); ++i) {
        known_[node->output(i)] = {.state = Known::State::Fixed, .now = std::move(stack[i])};
      }
      return;
    }
    if (node->hasSideEffects() && !writing) throw NoPlan(std::string("a node ") + node->kind().toQualString());
    forms = forms && form_follows(node, given) && (relies_on_branches_ || !form_may_differ(node));
    add_step(node, operation, arguments, given, std::move(stack), forms);
  }

  // Gives the operation of a node; some nodes are instructions of the interpreter's, and have none of their own.
  static jit::Operation operation_of(const jit::Node* node) {
    switch (node->kind()) {
      case c10::prim::ListConstruct:
      case c10::prim::TupleConstruct:
        return joining(node->output()->type(), node->inputs().size());
      case c10::prim::ListUnpack:
        return [count = node->outputs().size()](jit::Stack& stack) {
          const IValue list = jit::pop(stack);
          if (list.toListRef().size() != count) throw OtherForm("a list of another length");
          stack.insert(stack.end(), list.toListRef().begin(), list.toListRef().end());
        };
      case c10::prim::TupleUnpack:
        return [](jit::Stack& stack) {
          const IValue tuple = jit::pop(stack);
          stack.insert(stack.end(), tuple.toTupleRef().elements().begin(), tuple.toTupleRef().elements().end());
        };
      default:
        if (!node->maybeOperator()) throw NoPlan(std::string("a node ") + node->kind().toQualString());
        return node->getOperation();
    }
  }

  // Makes a list or a tuple of so many values.
  static jit::Operation joining(c10::TypePtr type, size_t count) {
    return [type = std::move(type), count](jit::Stack& stack) {
      const auto last = jit::last(stack, count);
      IValue whole = joined(*type, last.vec());
      jit::drop(stack, count);
      stack.push_back(std::move(whole));
    };
  }

  bool is_open(const Known& known) const {
    if (known.state == Known::State::Open) return true;
    return known.items && std::ranges::any_of(*known.items, [&](const Known& item) { return is_open(item); });
  }

  // Tells whether the node reads the rank or the type of an open tensor alone. These do not depend on data but for rare
  // cases, for which the plan looks in each run.
  bool reads_dims_alone(const jit::Node* node, const std::vector<Known>& arguments, const jit::Stack& given) {
    const bool reads = has(node, Trait::ReadsKind) && arguments[0].state == Known::State::Open;
    if (!reads || !given[0].isTensor() || !lies_in_memory(given[0].toTensor())) return false;
    Slot& slot = plan_.slots[arguments[0].slot];
    slot.dims = given[0].toTensor().dim();
    slot.element = given[0].toTensor().scalar_type();
    return true;
  }

  // Tells whether the node reads sizes, types, or whether something is there, and nothing else.
  static bool reads_form_alone(const jit::Node* node, const jit::Stack& given) {
    const std::string_view name = node->kind().toQualString();
    if (name == "aten::__is__" || name == "aten::__isnot__") return given[0].isNone() || given[1].isNone();
    return has(node, Trait::ReadsForm);
  }

  // Tells whether what follows from constants is small enough to be a constant, too. Views of constants are.
  bool stays(const jit::Stack& results, const jit::Stack& given) {
    size_t bytes = 0;
    for (const IValue& result : results) {
      if (result.isTuple() || result.isObject() || is_tensor_list_value(result)) return false;
      if (!result.isTensor() || !result.toTensor().defined() || is_view_of_any(result.toTensor(), given)) continue;
      if (writes_) return false;
      bytes += result.toTensor().nbytes();
    }
    if (constant_bytes_ + bytes > kMostConstantBytes) return false;
    constant_bytes_ += bytes;
    return true;
  }

  static bool is_view_of_any(const at::Tensor& t, const jit::Stack& given) {
    return std::ranges::any_of(given, [&](const IValue& value) {
      if (value.isTensor()) return value.toTensor().defined() && value.toTensor().is_alias_of(t);
      return value.isTensorList() && is_view_of_any(t, value.toListRef().vec());
    });
  }

  static bool is_tensor_list_value(const IValue& value) {
    return value.isTensorList() || (value.isList() && std::ranges::any_of(value.toListRef(), [](const IValue& item) {
                                      return item.isTensor();
                                    }));
  }

  // The state before a step, which tells what its results lie in.
  struct Before {
    size_t buffers;           // how many there were
    const jit::Stack& given;  // the step's arguments
    bool shares = false;      // whether a result shares memory with a constant, or with another result
  };

  // Notes what is known of a value that a step gives. The result is kNone where it lies where something has lain
  // before.
  Known given_by_step(IValue value, bool forms, Before& before, std::vector<size_t>& results, bool& is_new) {
    if (value.isTensor() && forms && lies_in_memory(value.toTensor())) {
      if (shares_memory(value.toTensor(), before)) {  // in the plan each has its own, and the run copies it there
        before.shares = true;
        value = value.toTensor().clone();
      }
      const at::Tensor& t = value.toTensor();
      const auto found = buffers_.find(t.storage().unsafeGetStorageImpl());
      const bool is_view = found != buffers_.end();
      if (is_view && t.element_size() != found->second.element_size && t.storage_offset() != found->second.first) {
        throw NoPlan("a view of another type");
      }
      const size_t buffer = is_view ? found->second.number : add_buffer(t, {.bytes = t.storage().nbytes()});
      const int64_t first = is_view ? found->second.first : t.storage_offset();
      const size_t slot = add_slot(t, buffer, first);
      results.push_back(is_view ? Step::kNone : slot);
      is_new |= !is_view;
      return {.state = Known::State::Formed, .now = value, .slot = slot};
    }
    is_new = true;
    const size_t slot = add_slot({.kind = Slot::Kind::Open});
    results.push_back(slot);
    return {.state = Known::State::Open, .now = value, .slot = slot};
  }

  bool shares_memory(const at::Tensor& t, const Before& before) const {
    const auto found = buffers_.find(t.storage().unsafeGetStorageImpl());
    return found == buffers_.end() ? is_view_of_any(t, before.given) : found->second.number >= before.buffers;
  }

  // Notes a list of tensors with forms, which is a result of as many slots.
  Known list_given_by_step(const IValue& value, Before& before, std::vector<size_t>& results, bool& is_new) {
    Known list{.state = Known::State::Formed,
               .items = std::make_shared<std::vector<Known>>(),
               .type = c10::ListType::ofTensors()};
    Slot slot{.kind = Slot::Kind::Several, .type = list.type};
    for (const IValue& item : value.toListRef()) {
      std::vector<size_t> place;
      list.items->push_back(given_by_step(item, true, before, place, is_new));
      slot.items.push_back(place[0]);
    }
    results.push_back(add_slot(std::move(slot)));
    return list;
  }

  void add_step(jit::Node* node, const jit::Operation& operation, std::vector<Known>& arguments,
                const jit::Stack& given, jit::Stack outputs, bool forms) {
    std::vector<size_t> results;
    bool is_new = node->outputs().empty();
    Before before{plan_.buffers.size(), given};
    for (size_t i = 0; i < outputs.size(); ++i) {
      const IValue& value = outputs[i];
      const bool is_list =
          forms && is_tensor_list(node->output(i)) &&
          std::ranges::all_of(value.toListRef(), [](const IValue& item) { return lies_in_memory(item.toTensor()); });
      known_[node->output(i)] = is_list ? list_given_by_step(value, before, results, is_new)
                                        : given_by_step(value, forms, before, results, is_new);
    }
    if (!is_new && !writes(node)) return;  // its results are views of what there is
    std::vector<size_t> slots;
    for (const Known& known : arguments) slots.push_back(slot_of(known));
    Step step{Step::Call{operation}, std::move(slots), std::move(results)};
    step.name = node->kind().toQualString();
    step.may_give_views = may_give_views(node);
    if (forms && !before.shares && !writes(node)) {
      if (auto call = planned_call(node, given, outputs, step)) {
        step.what = *std::move(call);
      } else if (const auto into = overload_into(node)) {
        step.what = Step::CallInto{*into};
        step.arguments.push_back(step.results[0]);
      }
    }
    plan_.steps.push_back(std::move(step));
  }

  // Makes the call of a kernel by memory alone; none where the operator has no planner that takes these operands.
  std::optional<Step::Planned> planned_call(const jit::Node* node, const jit::Stack& given, const jit::Stack& outputs,
                                            const Step& step) {
    std::vector<at::Tensor> results;
    std::vector<size_t> slots;
    const auto add = [&](const IValue& value, size_t slot) {
      if (value.isTensor()) {
        results.push_back(value.toTensor());
        slots.push_back(slot);
        return;
      }
      for (size_t i = 0; i < value.toListRef().size(); ++i) {
        results.push_back(value.toListRef()[i].toTensor());
        slots.push_back(plan_.slots[slot].items[i]);
      }
    };
    for (size_t i = 0; i < outputs.size(); ++i) {
      const bool is_formed = step.results[i] != Step::kNone && plan_.slots[step.results[i]].kind != Slot::Kind::Open;
      if (!is_formed) return {};
      add(outputs[i], step.results[i]);
    }
    if (std::ranges::count(slots, Step::kNone) > 0) return {};
    std::shared_ptr<const PlannedCall> call = plan_call(node->kind(), {given, results});
    if (!call) return {};
    Step::Planned made{std::move(call), {}};
    for (const size_t slot : step.arguments) add_places(slot, made.places);
    for (const size_t slot : slots) add_places(slot, made.places);
    if (const size_t bytes = made.call->work_bytes()) {
      plan_.buffers.push_back({.kind = Buffer::Kind::Arena, .bytes = bytes});
      made.places.push_back({plan_.buffers.size() - 1, 0});
    }
    return made;
  }

  void add_places(size_t slot, std::vector<PlannedPlace>& places) {
    const Slot s = plan_.slots[slot];
    if (s.kind == Slot::Kind::Tensor) {
      places.push_back({s.form.buffer, s.form.offset * c10::elementSize(s.form.type)});
    } else if (s.kind == Slot::Kind::Several) {
      for (const size_t item : s.items) add_places(item, places);
    } else if (s.kind == Slot::Kind::Constant && s.constant.isTensor() && s.constant.toTensor().defined()) {
      const at::Tensor& t = s.constant.toTensor();
      plan_.buffers.push_back({.kind = Buffer::Kind::Constant, .bytes = t.nbytes(), .constant = t});
      places.push_back({plan_.buffers.size() - 1, 0});
    } else if (s.kind == Slot::Kind::Constant && is_tensor_list_value(s.constant)) {
      for (const IValue& item : s.constant.toListRef()) {
        plan_.buffers.push_back(
            {.kind = Buffer::Kind::Constant, .bytes = item.toTensor().nbytes(), .constant = item.toTensor()});
        places.push_back({plan_.buffers.size() - 1, 0});
      }
    }
  }

  // Leaves a node that data decides to TorchScript's interpreter.
  void interpret(jit::Node* node) {
    if (writes_outside(node)) throw NoPlan("a branch that data decides writes to what is outside of it");
    auto graph = std::make_shared<jit::Graph>();
    std::unordered_map<jit::Value*, jit::Value*> inside;
    Step step{Step::Interpret{}, {}, {}};
    jit::Stack stack;
    for (jit::Value* value : captured(node)) {
      inside[value] = graph->addInput()->copyMetadata(value);
      inside[value]->setType(value->type());
      step.arguments.push_back(slot_of(of(value)));
      stack.push_back(apart(value_of(of(value))));
    }
    jit::Node* const copy = graph->insertNode(graph->createClone(node, [&](jit::Value* v) { return inside.at(v); }));
    for (jit::Value* output : copy->outputs()) graph->registerOutput(output);
    const auto code = std::make_shared<const jit::Code>(interruptible(graph), "part");
    jit::InterpreterState(*code).run(stack);
    step.what = Step::Interpret{code};
    step.name = node->kind().toQualString();
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      bool is_new = false;
      const bool relies = relies_on_branches_ && node->kind() == c10::prim::If && stack[i].isTensor() &&
                          lies_in_memory(stack[i].toTensor());
      // Another branch may give another tensor than this one, and this one may be a view of something, so it is copied.
      const IValue result = relies ? stack[i].toTensor().clone(at::MemoryFormat::Contiguous) : stack[i];
      Before before{plan_.buffers.size(), stack};
      known_[node->output(i)] = given_by_step(result, relies, before, step.results, is_new);
    }
    plan_.steps.push_back(std::move(step));
  }

  struct KnownBuffer {
    size_t number;
    int64_t first;  // the offset at which the buffer begins, in elements
    int64_t element_size;
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // keeps anything else from getting its address
  };

  const Program& program_;
  const bool has_open_sizes_, relies_on_branches_;
  bool writes_ = false;  // whether some node writes to a tensor
  bool draws_ = false;   // whether some node draws random numbers
  Plan plan_;
  size_t constant_bytes_ = 0, visited_ = 0;
  std::unordered_map<const jit::Value*, Known> known_;
  std::unordered_map<const c10::StorageImpl*, KnownBuffer> buffers_;
  std::unordered_map<const jit::Block*, std::unordered_map<const jit::Node*, std::vector<const jit::Value*>>>
      last_uses_;
};

}  // namespace

Recorded record_plan(const Program& program, std::span<const IValue> inputs,
                     const c10::intrusive_ptr<StringPool>& strings, const Targets& targets, bool relies_on_branches) {
  std::vector<IValue> own;
  for (const IValue& input : inputs) {
    own.push_back(input.isTensor() && lies_in_memory(input.toTensor()) ? with_own_storage(input.toTensor()) : input);
  }
  return PlanRecorder(program, own, strings, relies_on_branches).run(own, targets);
}

}  // namespace onnxtorch
