#include "runtime/running_graph.h"

#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <vector>

#include "base/text_of.h"
#include "graph/loops.h"
#include "graph/symbols.h"
#include "graph/walk.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

constexpr int64_t kOpen = -1;
constexpr auto kOtherSizes = "a tensor has other sizes than the trials of open dimensions have told";
const auto kCheckSizes = c10::Symbol::fromQualString("onnx_torch::check_sizes");
const auto kSizes = c10::Symbol::attr("sizes");

bool fits(at::IntArrayRef sizes, at::IntArrayRef known) {
  return std::ranges::equal(sizes, known, [](int64_t size, int64_t of) { return of == kOpen || size == of; });
}

jit::Operation size_check(const jit::Node* node) {
  return [known = node->is(kSizes), name = node->input()->debugName()](jit::Stack& stack) {
    const at::Tensor t = jit::pop(stack).toTensor();
    if (!t.defined() || fits(t.sizes(), known)) return;
    std::ostringstream text;
    text << kOtherSizes << ": %" << name << " has " << t.sizes() << ", not " << at::IntArrayRef(known);
    throw std::runtime_error(text.str());
  };
}

const jit::RegisterOperators checks({jit::Operator(kCheckSizes, size_check, c10::AliasAnalysisKind::CONSERVATIVE)});

// Gives the sizes of a value, of which those that are not known are open; nothing where none is known.
std::optional<std::vector<int64_t>> known_sizes(const jit::Value* value) {
  const auto type = value->type()->cast<c10::TensorType>();
  const auto symbols = type ? type->symbolic_sizes().sizes() : std::nullopt;
  const auto is_static = [](const c10::ShapeSymbol& size) { return size.is_static(); };
  if (!symbols || std::ranges::none_of(*symbols, is_static)) return {};
  std::vector<int64_t> sizes;
  for (const c10::ShapeSymbol& size : *symbols) sizes.push_back(size.is_static() ? size.static_size() : kOpen);
  return sizes;
}

void check_sizes(jit::Value* value) {
  const auto sizes = known_sizes(value);
  if (!sizes) return;
  jit::Node* const node = value->node();
  jit::Node* const check = node->owningGraph()->create(kCheckSizes, {value}, 0)->is_(kSizes, *sizes);
  check->insertAfter(node)->setSourceRange(node->sourceRange());
}

}  // namespace

std::shared_ptr<jit::Graph> interruptible(const std::shared_ptr<jit::Graph>& graph) {
  if (loops_of(graph).empty()) return graph;
  std::shared_ptr<jit::Graph> copy = graph->copy();
  for (jit::Node* loop : loops_of(copy)) {
    jit::Node* const check = copy->create(c10::Symbol::fromQualString(kCheckRun), 0);
    loop->blocks()[0]->prependNode(check)->setSourceRange(loop->sourceRange());
  }
  keep_loops_apart(copy);
  return copy;
}

bool has_known_sizes(const at::Tensor& t, const jit::Value* value) {
  const auto known = known_sizes(value);
  return !t.defined() || !known || fits(t.sizes(), *known);
}

std::shared_ptr<jit::Graph> running_graph(const Program& program) {
  if (!has_open_sizes(program)) return interruptible(program.graph);
  std::shared_ptr<jit::Graph> copy = program.graph->copy();
  std::vector<jit::Value*> values;
  for_each_node(copy->block(), [&](jit::Node* node) {
    if (node->kind() == c10::prim::Constant) return;
    values.insert(values.end(), node->outputs().begin(), node->outputs().end());
  });
  std::ranges::for_each(values, check_sizes);
  return interruptible(copy);
}

bool has_other_sizes(const std::exception& failure) { return text_of(failure).find(kOtherSizes) != std::string::npos; }

}  // namespace onnxtorch
