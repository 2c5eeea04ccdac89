#include "passes/cpu/chains.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "graph/constants.h"
#include "graph/known_type.h"
#include "graph/writes.h"
#include "kernels/cpu/chain/chain.h"
#include "kernels/standard/element_wise.h"
#include "passes/cpu/elements.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using chain::Element;
using chain::Elements;
using chain::Type;

// The limits of chains on a device.
struct ChainLimits {
  size_t nodes;
  bool alone;    // a chain may be of one operator, on a large result
  bool reduced;  // a chain may have reductions at its end
  bool halves;   // a chain may be of float16 or bfloat16
};

constexpr ChainLimits kOnCpu{.nodes = 400, .alone = true, .reduced = true, .halves = false};
constexpr ChainLimits kOnCuda{.nodes = ElementWise::kMostSteps, .alone = false, .reduced = false, .halves = true};

// A chain that is being made of nodes: its program, and a graph that computes the same by ATen. Inputs are added first,
// then constants, then elements, then reductions.
class Draft {
 public:
  explicit Draft(const Constants& constants) : constants_(constants) {}

  void add_input(jit::Value* value, Type type) {
    number(value);
    program_.input_types.push_back(type);
    inputs_.push_back(value);
    copies_[value] = plain_->addInput()->setType(c10::TensorType::get());
  }

  void add_constant(const jit::Value* value, float constant) {
    number(value);
    program_.constants.push_back(constant);
  }

  void add(jit::Node* node, const Element& element) {
    ChainProgram::Instruction step{element.op, element.result, {}, element.a, element.b};
    for (size_t i = 0; i < element.operands.size(); ++i) step.operands.push_back(numbers_.at(node->input(i)));
    program_.instructions.push_back(std::move(step));
    number(node->output());
    copy(node);
  }

  void add(jit::Node* node, ChainProgram::Reduction reduction) {
    reduction.value = numbers_.at(node->input(0));
    program_.reductions.push_back(std::move(reduction));
    number(node->output());
    copy(node);
  }

  void add_result(jit::Value* value) {
    program_.results.push_back(numbers_.at(value));
    results_.push_back(value);
    plain_->registerOutput(copies_.at(value));
  }

  // Puts the chain where this node is. The nodes are left without a use.
  void insert(Program& program, jit::Node* before) {
    jit::Graph& graph = *program.graph;
    const jit::WithInsertPoint at(before);
    jit::Value* const list = graph.insertNode(graph.createList(c10::TensorType::get(), inputs_))->output();
    jit::Value* const operation =
        bind_constant(program, c10::IValue(c10::make_intrusive<Chain>(std::move(program_), plain_)));
    jit::Node* const node = graph.create(c10::Symbol::fromQualString("onnx_torch::chain"), {list, operation});
    node->setSourceRange(before->sourceRange());
    node->output()->setType(c10::ListType::ofTensors());
    graph.insertNode(node);
    jit::Node* const unpacked = graph.insertNode(graph.createListUnpack(node->output(), results_.size()));
    for (size_t i = 0; i < results_.size(); ++i) {
      unpacked->output(i)->setType(results_[i]->type());
      results_[i]->replaceAllUsesWith(unpacked->output(i));
    }
  }

 private:
  void number(const jit::Value* value) { numbers_.emplace(value, numbers_.size()); }

  void copy(jit::Node* node) {
    const auto operand = [&](jit::Value* value) {
      jit::Value*& known = copies_[value];
      if (!known) known = plain_->insertConstant(*constants_(value));
      return known;
    };
    jit::Node* const copied = plain_->insertNode(plain_->createClone(node, operand));
    copies_[node->output()] = copied->output()->setType(c10::TensorType::get());
  }

  const Constants& constants_;
  ChainProgram program_;
  std::shared_ptr<jit::Graph> plain_ = std::make_shared<jit::Graph>();
  std::vector<jit::Value*> inputs_, results_;
  std::unordered_map<const jit::Value*, size_t> numbers_;      // the numbers of values in the program
  std::unordered_map<const jit::Value*, jit::Value*> copies_;  // the copies of values in the plain graph
};

// The chains of one block. A unit is a chain, or a node that is in none; it is named by the index of one of its nodes.
class Block {
 public:
  Block(Program& program, jit::Block* block, const Constants& constants, const Writers& writers,
        const Elements& elements, const ChainLimits& limits)
      : program_(program), block_(block), constants_(constants), writers_(writers), limits_(limits) {
    for (jit::Node* node : block->nodes()) {
      numbers_[node] = nodes_.size();
      nodes_.push_back(node);
    }
    for (const jit::Node* node : nodes_) {
      elements_.push_back(elements.element(node));
      reductions_.push_back(limits.reduced ? elements.reduction(node) : nullptr);
    }
    parent_.resize(nodes_.size());
    std::iota(parent_.begin(), parent_.end(), 0);
    for (size_t i = 0; i < nodes_.size(); ++i) members_.push_back({i});
    find_needs();
  }

  void run() {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!elements_[i]) continue;
      for (const jit::Value* operand : operands(i)) {
        if (const auto from = number_of(operand); from && elements_[*from]) join(*from, i);
      }
    }
    // Reductions come last, so that element-wise operators are joined as if there were none. A chain does not read the
    // results of its reductions.
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!reductions_[i]) continue;
      if (const auto from = number_of(nodes_[i]->input(0))) join(*from, i);
    }
    if (std::ranges::none_of(members_, [&](const auto& members) { return is_chain(members); })) return;
    sort();
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (unit(i) == i && is_chain(members_[i])) replace(members_[i]);
    }
  }

 private:
  // Tells whether nodes become a chain. A large result gains by a chain of one: it takes memory that an earlier run has
  // given up, and ATen is slow where an operand is not contiguous or is repeated. Of masks alone, though, ATen computes
  // more at a time. Gelu gains always: ATen has oneDNN compute it, which takes long to be asked, and below AVX-512
  // loses the sign of zeros.
  bool is_chain(const std::vector<size_t>& members) const {
    if (members.size() != 1 || !limits_.alone) return members.size() > 1;
    const Element* const element = elements_[members[0]];
    const bool is_of_masks = element && element->result == Type::Mask &&
                             std::ranges::all_of(element->operands, [](Type type) { return type == Type::Mask; });
    return element && !is_of_masks &&
           (element->op == chain::Op::Gelu || has_at_least(nodes_[members[0]]->output(), kLeastAlone));
  }

  std::optional<size_t> number_of(const jit::Value* value) const {
    const auto found = numbers_.find(value->node());
    return found == numbers_.end() ? std::nullopt : std::optional(found->second);
  }

  // Finds the nodes whose results each node needs. A node that has effects, or draws random numbers, needs the last
  // such node before it.
  void find_needs() {
    std::optional<size_t> effect;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      std::unordered_set<size_t> needs;
      const std::function<void(const jit::Node*)> visit = [&](const jit::Node* node) {
        for (const jit::Value* input : node->inputs()) {
          if (const auto from = number_of(input)) needs.insert(*from);
        }
        for (const jit::Block* inner : node->blocks()) {
          for (const jit::Node* within : inner->nodes()) visit(within);
          visit(inner->return_node());
        }
      };
      visit(nodes_[i]);
      if (!elements_[i] && keeps_its_place(nodes_[i])) {
        if (effect) needs.insert(*effect);
        effect = i;
      }
      needs_.emplace_back(needs.begin(), needs.end());
    }
  }

  bool keeps_its_place(jit::Node* node) const {
    return node->hasSideEffects() || node->isNondeterministic() || !node->blocks().empty() ||
           writers_.has_writers(node) || (node->maybeSchema() && node->schema().is_mutable());
  }

  at::ArrayRef<jit::Value*> operands(size_t number) const {
    return nodes_[number]->inputs().slice(0, elements_[number]->operands.size());
  }

  size_t unit(size_t number) const {
    while (parent_[number] != number) number = parent_[number];
    return number;
  }

  // Makes one chain of two where nothing outside of it is between its nodes.
  void join(size_t a, size_t b) {
    a = unit(a);
    b = unit(b);
    if (a == b || members_[a].size() + members_[b].size() > limits_.nodes) return;
    std::unordered_set<size_t> seen = {a, b};
    std::vector<size_t> open;
    const size_t first = std::min(members_[a].front(), members_[b].front());
    const auto open_needs = [&](size_t of, bool itself) {
      for (const size_t member : members_[of]) {
        for (const size_t need : needs_[member]) {
          const size_t next = unit(need);
          if (!itself && (next == a || next == b)) return false;
          if (members_[next].back() > first && seen.insert(next).second) open.push_back(next);
        }
      }
      return true;
    };
    open_needs(a, true);
    open_needs(b, true);
    while (!open.empty()) {
      const size_t next = open.back();
      open.pop_back();
      if (!open_needs(next, false)) return;
    }
    parent_[b] = a;
    members_[a].insert(members_[a].end(), members_[b].begin(), members_[b].end());
    members_[b].clear();
    std::ranges::sort(members_[a]);
  }

  // Brings the nodes of each chain together, and otherwise leaves nodes where they are as far as that goes.
  void sort() {
    std::vector<size_t> units;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (unit(i) == i) units.push_back(i);
    }
    std::ranges::sort(units, {}, [&](size_t of) { return members_[of].back(); });
    std::vector<bool> placed(nodes_.size());
    const std::function<void(size_t)> place = [&](size_t of) {
      if (placed[of]) return;
      placed[of] = true;
      for (const size_t member : members_[of]) {
        for (const size_t need : needs_[member]) place(unit(need));
      }
      for (const size_t member : members_[of]) nodes_[member]->moveBefore(block_->return_node());
    };
    for (const size_t of : units) place(of);
  }

  void replace(const std::vector<size_t>& members) {
    std::vector<size_t> elements, reductions;
    for (const size_t member : members) (elements_[member] ? elements : reductions).push_back(member);
    const auto is_member = [&](const jit::Node* node) {
      const auto found = numbers_.find(node);
      return found != numbers_.end() && std::ranges::binary_search(members, found->second);
    };
    Draft draft(constants_);
    add_operands(draft, elements, is_member);
    for (const size_t member : elements) draft.add(nodes_[member], *elements_[member]);
    for (const size_t member : reductions) draft.add(nodes_[member], *reductions_[member]);
    for (const size_t member : members) {
      jit::Value* const result = nodes_[member]->output();
      const auto leaves = [&](const jit::Use& use) { return !is_member(use.user); };
      if (std::ranges::any_of(result->uses(), leaves)) draft.add_result(result);
    }
    draft.insert(program_, nodes_[members.back()]);
  }

  // Adds the operands that come from outside of the chain.
  template <typename IsMember>
  void add_operands(Draft& draft, const std::vector<size_t>& elements, const IsMember& is_member) const {
    std::unordered_set<const jit::Value*> seen;
    std::vector<std::pair<const jit::Value*, float>> constants;
    for (const size_t member : elements) {
      const auto& types = elements_[member]->operands;
      for (size_t i = 0; i < types.size(); ++i) {
        jit::Value* const operand = nodes_[member]->input(i);
        if (is_member(operand->node()) || !seen.insert(operand).second) continue;
        if (const auto number = constant(operand, types[i])) {
          constants.emplace_back(operand, *number);
        } else {
          draft.add_input(operand, types[i]);
        }
      }
    }
    for (const auto& [value, number] : constants) draft.add_constant(value, number);
  }

  // Gives the number that an operand is, where it adds no dimensions to a result.
  std::optional<float> constant(const jit::Value* operand, Type type) const {
    if (type == Type::Mask) return {};
    const auto known = constants_(operand);
    const auto number = constants_.number(operand);
    if (!known || !number || (known->isTensor() && known->toTensor().dim() > 0)) return {};
    return static_cast<float>(*number);
  }

  Program& program_;
  jit::Block* block_;
  const Constants& constants_;
  const Writers& writers_;
  const ChainLimits limits_;
  std::vector<jit::Node*> nodes_;
  std::unordered_map<const jit::Node*, size_t> numbers_;
  std::vector<const Element*> elements_;  // null for a node that chains cannot compute
  std::vector<const ChainProgram::Reduction*> reductions_;
  std::vector<std::vector<size_t>> needs_;
  std::vector<size_t> parent_;
  std::vector<std::vector<size_t>> members_;  // the nodes of units, in the graph's order
};

void find_chains_within(Program& program, const ChainLimits& limits) {
  register_chain();
  const Constants constants(program);
  const Writers writers(program.graph);
  const Elements elements(program, constants, writers, limits.halves);
  const std::function<void(jit::Block*)> visit = [&](jit::Block* block) {
    for (jit::Node* node : block->nodes()) {
      for (jit::Block* inner : node->blocks()) visit(inner);
    }
    Block(program, block, constants, writers, elements, limits).run();
  };
  visit(program.graph->block());
  eliminate_dead_code(program.graph);
}

}  // namespace

void find_chains(Program& program) { find_chains_within(program, kOnCpu); }

void find_cuda_chains(Program& program) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("onnx_torch::element_wise", "");
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CUDA)) find_chains_within(program, kOnCuda);
}

}  // namespace onnxtorch
