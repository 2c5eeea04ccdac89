#include "passes/device/placement.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <unordered_set>

#include "graph/graph_location.h"
#include "graph/walk.h"
#include "passes/device/host_work.h"
#include "passes/device/kernels_of.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// The work that the graph nodes of one ONNX node do.
struct Parts {
  std::set<std::string> host;  // the host's work, as its list names it
  bool device = false;
  bool scalars = false;
  bool lists = false;
};

bool holds_tensor(const c10::TypePtr& type) {
  if (type->isSubtypeOf(*c10::TensorType::get())) return true;
  return std::ranges::any_of(type->containedTypes(), holds_tensor);
}

bool gives_tensor(const jit::Node* node) {
  return std::ranges::any_of(node->outputs(), [](const jit::Value* output) { return holds_tensor(output->type()); });
}

void add(Parts& parts, const jit::Node* node, c10::Device device) {
  if (const char* const what = host_work(node, device)) {
    parts.host.insert(what);
  } else if (node->kind().is_prim() && (node->kind() != c10::prim::ListConstruct || gives_tensor(node))) {
    parts.lists = true;
  } else {
    (gives_tensor(node) ? parts.device : parts.scalars) = true;
  }
}

std::map<size_t, Parts> parts_by_node(const Program& program, c10::Device device) {
  std::map<size_t, Parts> parts;
  for_each_node(program.graph->block(), [&](const jit::Node* node) {
    if (node->kind() == c10::prim::Constant) return;
    if (const auto number = node_number(node)) add(parts[*number], node, device);
  });
  return parts;
}

// Gives the numbers of the ONNX nodes of which something is made from inputs, or at random, and not from constants
// alone.
std::set<size_t> changing_nodes(const Program& program) {
  std::unordered_set<const jit::Value*> changing;
  for (size_t i = 0; i < program.graph_inputs.size(); ++i) {
    if (program.graph_inputs[i].role == GraphInput::Role::Input) changing.insert(program.graph->inputs()[i]);
  }
  std::set<size_t> numbers;
  const auto visit = [&](const auto& self, jit::Block* block, bool inside) -> void {
    if (inside) changing.insert(block->inputs().begin(), block->inputs().end());
    for (jit::Node* node : block->nodes()) {
      bool changes = inside || (node->kind() != c10::prim::Constant && node->isNondeterministic()) ||
                     std::ranges::any_of(node->inputs(), [&](auto* input) { return changing.contains(input); });
      for (jit::Block* inner : node->blocks()) self(self, inner, true);
      changes |= !node->blocks().empty();
      if (!changes) continue;
      changing.insert(node->outputs().begin(), node->outputs().end());
      if (const auto number = node_number(node)) numbers.insert(*number);
    }
  };
  visit(visit, program.graph->block(), false);
  return numbers;
}

std::string joined(const std::set<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : ", ") + text;
  return all;
}

std::string name_of(c10::Device device) {
  std::string name = device.str();
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

NodePlacement placement_of(const Parts& parts, c10::Device device) {
  if (device.is_cpu()) return {"CPU", ""};
  const std::string host = joined(parts.host);
  if (parts.device) return {name_of(device), host.empty() ? "" : "the host's part: " + host};
  if (!parts.host.empty()) return {"CPU", "the host: " + host};
  return {"CPU", parts.scalars ? "the host: shape arithmetic" : "the host: a list or an optional, not what it holds"};
}

}  // namespace

std::vector<NodePlacement> placement(const Program& translated, const Program& lowered, c10::Device device) {
  const std::map<size_t, Parts> parts = parts_by_node(lowered, device);
  const std::set<size_t> changing = changing_nodes(translated);
  std::vector<NodePlacement> result;
  for (size_t number = 0; number < lowered.nodes.size(); ++number) {
    if (const auto found = parts.find(number); found != parts.end()) {
      result.push_back(placement_of(found->second, device));
    } else {
      result.push_back(
          {"", changing.contains(number) ? "part of another node" : "folded: nothing is left of it in a run"});
    }
  }
  return result;
}

void check_kernels(const Program& program, c10::Device device) {
  const c10::DispatchKey key = key_of(device);
  std::set<std::pair<size_t, std::string>> missing;
  for_each_node(program.graph->block(), [&](const jit::Node* node) {
    const auto op = dispatched(node);
    if (op && !op->hasComputedKernelForDispatchKey(key))
      missing.emplace(node_number(node).value_or(0), node->kind().toQualString());
  });
  if (missing.empty()) return;
  std::string lines;
  for (const auto& [number, op] : missing) lines += "\n  " + program.nodes.at(number).label.str() + ": " + op;
  throw UnsupportedError("these nodes need kernels that are not there for " + name_of(device) + ":" + lines,
                         program.nodes.at(missing.begin()->first).label);
}

}  // namespace onnxtorch
