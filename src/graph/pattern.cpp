#include "graph/pattern.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/irparser.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_set>

#include "base/fork_safe.h"
#include "graph/symbols.h"
#include "graph/walk.h"
#include "graph/writes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// The number of steps that it takes to compute each value.
using Depths = std::unordered_map<const jit::Value*, size_t>;

void sort_operands(jit::Block* block, const Constants& constants, Depths& depths) {
  const auto rank = [&](const jit::Value* value) {
    const auto found = depths.find(value);
    return constants(value) ? -1 : found == depths.end() ? 0 : static_cast<int64_t>(found->second);
  };
  for (jit::Node* node : block->nodes()) {
    for (jit::Block* inner : node->blocks()) sort_operands(inner, constants, depths);
    const bool commutes = node->matches(kMul) || (node->matches(kAdd) && constants.number(node->input(2)) == 1.0);
    if (commutes && rank(node->input(0)) < rank(node->input(1))) {
      jit::Value* const first = node->input(0);
      node->replaceInput(0, node->input(1));
      node->replaceInput(1, first);
    }
    size_t depth = 0;
    for (const jit::Value* input : node->inputs()) {
      if (const auto found = depths.find(input); found != depths.end()) depth = std::max(depth, found->second + 1);
    }
    for (const jit::Value* output : node->outputs()) depths[output] = std::max<size_t>(depth, 1);
  }
}

bool has_kind(const jit::Block& block, c10::Symbol kind) {
  return std::ranges::any_of(block.nodes(), [kind](const jit::Node* node) {
    return node->kind() == kind ||
           std::ranges::any_of(node->blocks(), [kind](const jit::Block* inner) { return has_kind(*inner, kind); });
  });
}

// Gives the kinds of a pattern's nodes, each of which stands between " = " and "(" or "[".
std::vector<c10::Symbol> kinds_in(std::string_view pattern) {
  constexpr std::string_view kMark = " = ";
  std::vector<c10::Symbol> kinds;
  for (size_t at = pattern.find(kMark); at != std::string_view::npos; at = pattern.find(kMark, at)) {
    at += kMark.size();
    kinds.push_back(c10::Symbol::fromQualString(std::string(pattern.substr(at, pattern.find_first_of("([", at) - at))));
  }
  return kinds;
}

// A pattern. It is read when it is first looked for in a graph that has nodes of each of its kinds, since to read it
// takes longer than to look for it.
class Pattern {
 public:
  explicit Pattern(std::string text) : text_(std::move(text)), kinds_(kinds_in(text_)) {}

  bool may_be_in(const jit::Graph& graph) const {
    return std::ranges::all_of(kinds_, [&](c10::Symbol kind) { return has_kind(*graph.block(), kind); });
  }

  struct Read {
    jit::Graph graph;
    std::unordered_map<std::string, jit::Value*> names;
    jit::Node* last() { return graph.outputs().at(0)->node(); }
  };
  Read& read() const {
    once_([this] {
      read_ = std::make_unique<Read>();
      jit::parseIR(text_, &read_->graph, read_->names);
    });
    return *read_;
  }

 private:
  const std::string text_;
  const std::vector<c10::Symbol> kinds_;
  mutable Once once_;
  mutable std::unique_ptr<Read> read_;
};

// Gives the pattern of a text, which is kept. Patterns stand in the code, so there are only so many of them.
const Pattern& pattern_of(const std::string& text) {
  static ForkSafeMutex mutex;
  static auto& patterns = *new std::map<std::string, Pattern>;  // torch's symbols may be gone when a process ends
  const std::lock_guard lock(mutex);
  return patterns.try_emplace(text, text).first->second;
}

// A comparison of a pattern with a graph, blocks included: it tells whether both compute the same, and which value of
// the graph stands for which of the pattern's.
class Comparison {
 public:
  bool same(jit::Node* wanted, jit::Node* there) {
    if (wanted->kind() != there->kind() || wanted->outputs().size() != there->outputs().size() ||
        !same(wanted->inputs(), there->inputs())) {
      return false;
    }
    bind(wanted->outputs(), there->outputs());
    nodes_.insert(there);
    return std::ranges::equal(wanted->blocks(), there->blocks(),
                              [this](jit::Block* a, jit::Block* b) { return same(*a, *b); });
  }

  const std::unordered_map<const jit::Value*, jit::Value*>& values() const { return values_; }
  const std::unordered_set<const jit::Node*>& nodes() const { return nodes_; }

 private:
  bool same(jit::Value* wanted, jit::Value* there) {
    if (wanted->node()->kind() == c10::prim::Constant) return jit::toIValue(wanted) == jit::toIValue(there);
    const auto [known, is_new] = values_.emplace(wanted, there);
    if (!is_new) return known->second == there;
    return wanted->node()->kind() == c10::prim::Param ||
           (wanted->offset() == there->offset() && same(wanted->node(), there->node()));
  }

  bool same(at::ArrayRef<jit::Value*> wanted, at::ArrayRef<jit::Value*> there) {
    return std::ranges::equal(wanted, there, [this](jit::Value* a, jit::Value* b) { return same(a, b); });
  }

  bool same(jit::Block& wanted, jit::Block& there) {
    if (wanted.inputs().size() != there.inputs().size()) return false;
    bind(wanted.inputs(), there.inputs());
    return std::ranges::equal(steps(wanted), steps(there), [this](jit::Node* a, jit::Node* b) { return same(a, b); }) &&
           same(wanted.outputs(), there.outputs());
  }

  static std::vector<jit::Node*> steps(jit::Block& block) {
    std::vector<jit::Node*> found;
    for (jit::Node* node : block.nodes()) {
      if (node->kind() != c10::prim::Constant) found.push_back(node);
    }
    return found;
  }

  void bind(at::ArrayRef<jit::Value*> wanted, at::ArrayRef<jit::Value*> there) {
    for (size_t i = 0; i < wanted.size(); ++i) values_[wanted[i]] = there[i];
  }

  std::unordered_map<const jit::Value*, jit::Value*> values_;
  std::unordered_set<const jit::Node*> nodes_;
};

// A place of a graph where a pattern fits.
struct Match {
  jit::Node* node;  // the node that computes the result
  std::unordered_map<std::string, jit::Value*> values;
  std::unordered_set<const jit::Node*> nodes;

  // Tells whether nothing else uses the values in between, all of which are computed in one block.
  bool stands_alone() const {
    return std::ranges::all_of(nodes, [this](const jit::Node* inner) {
      const auto used_within = [this](const jit::Value* value) {
        return std::ranges::all_of(value->uses(), [this](const jit::Use& use) { return nodes.contains(use.user); });
      };
      return inner == node ||
             (inner->owningBlock() == node->owningBlock() && std::ranges::all_of(inner->outputs(), used_within));
    });
  }
};

// Visits the places where a pattern fits. Each is looked for in the graph as the visits before have left it.
void visit_matches(jit::Graph& graph, const std::string& text, const std::function<void(Match& match)>& visit) {
  const Pattern& pattern = pattern_of(text);
  if (!pattern.may_be_in(graph)) return;
  Pattern::Read& wanted = pattern.read();
  for_each_node(graph.block(), [&](jit::Node* node) {
    Comparison comparison;
    if (!comparison.same(wanted.last(), node)) return;
    Match match{node, {}, comparison.nodes()};
    for (const auto& [name, value] : wanted.names) {
      if (const auto known = comparison.values().find(value); known != comparison.values().end())
        match.values[name] = known->second;
    }
    visit(match);
  });
}

}  // namespace

bool Found::is(const std::string& name, double number) const {
  const jit::Value* const value = values_.at(name);
  if (const auto tensor = constants.tensor(value); tensor && tensor->defined() && tensor->dim() > 0) return false;
  const auto known = constants.number(value);
  return known && std::abs(*known - number) <= 1e-6 * std::max(1.0, std::abs(number));
}

bool Found::is_last(const std::string& dim, const std::string& tensor) const {
  const auto known = constants.number(values_.at(dim));
  const auto rank = values_.at(tensor)->type()->expectRef<c10::TensorType>().sizes().size();
  return known && (*known == -1 || (rank && *known == static_cast<double>(*rank) - 1));
}

void sort_operands(Program& program) {
  Depths depths;
  sort_operands(program.graph->block(), Constants(program), depths);
}

bool rewrite(Program& program, const std::string& pattern, const Replace& replace) {
  const Constants constants(program);
  bool is_changed = false;
  visit_matches(*program.graph, pattern, [&](Match& match) {
    if (!match.stands_alone()) return;
    const jit::WithInsertPoint at(match.node);
    jit::Value* const result = replace(Found(constants, std::move(match.values)), *program.graph);
    if (!result) return;
    jit::Value* const old = match.node->output();
    result->node()->setSourceRange(match.node->sourceRange());
    result->setType(old->type());
    old->replaceAllUsesWith(result);
    is_changed = true;
  });
  if (is_changed) eliminate_dead_code(program.graph);
  return is_changed;
}

void for_each_place(Program& program, const std::string& pattern,
                    const std::function<void(jit::Node* node, const Found& found)>& visit) {
  const Constants constants(program);
  visit_matches(*program.graph, pattern,
                [&](Match& match) { visit(match.node, Found(constants, std::move(match.values))); });
}

}  // namespace onnxtorch
