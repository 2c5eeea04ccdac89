#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <vector>

#include "graph/pattern.h"
#include "graph/walk.h"
#include "graph/writes.h"
#include "kernels/cpu/operators.h"
#include "passes/cpu/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

jit::Node* insert_top_k(jit::Node* before, at::ArrayRef<jit::Value*> inputs) {
  const jit::WithInsertPoint at(before);
  jit::Graph& graph = *before->owningGraph();
  jit::Node* const made = graph.insertNode(graph.create(c10::Symbol::fromQualString("onnx_torch::top_k"), inputs, 2));
  made->setSourceRange(before->sourceRange());
  return made;
}

void use_instead(jit::Value* old, jit::Value* now) {
  now->setType(old->type());
  old->replaceAllUsesWith(now);
}

// The keys of the script top_k_by_key, which nothing else makes: they stand for the elements that are gathered.
void find_keys(Program& program) {
  const char* const pattern = R"(graph(%x, %elements, %numbers, %k, %dim, %largest):
    %half : int = prim::Constant[value=32]()
    %low_half : int = prim::Constant[value=4294967295]()
    %sorted : bool = prim::Constant[value=1]()
    %sparse : bool = prim::Constant[value=0]()
    %high : Tensor = aten::bitwise_left_shift(%elements, %half)
    %low : Tensor = aten::bitwise_and(%numbers, %low_half)
    %keys : Tensor = aten::bitwise_or(%high, %low)
    %chosen : Tensor, %indices : Tensor = aten::topk(%keys, %k, %dim, %largest, %sorted)
    %values : Tensor = aten::gather(%x, %dim, %indices, %sparse)
    return (%values))";
  for_each_place(program, pattern, [](jit::Node* gather, const Found& found) {
    jit::Node* const topk = found["indices"]->node();
    jit::Node* const made = insert_top_k(topk, {found["x"], found["k"], found["dim"], found["largest"]});
    use_instead(gather->output(), made->output(0));
    use_instead(topk->output(1), made->output(1));
  });
}

// The first k of the results of a stable sort, of which nothing else is used.
void find_sorted(Program& program) {
  const Constants constants(program);
  for_each_node(program.graph->block(), [&](jit::Node* sort) {
    if (sort->kind() != c10::aten::sort || sort->inputs().size() != 4 || constants.get<bool>(sort->input(1)) != true) {
      return;
    }
    std::vector<jit::Node*> taken;
    for (jit::Value* const sorted : sort->outputs()) {
      for (const jit::Use& use : sorted->uses()) taken.push_back(use.user);
    }
    const auto takes_as_many = [&](const jit::Node* node) {
      return node->kind() == c10::aten::narrow && node->input(1) == sort->input(2) &&
             constants.get<int64_t>(node->input(2)) == 0 && node->input(3) == taken.front()->input(3);
    };
    if (taken.empty() || !std::ranges::all_of(taken, takes_as_many)) return;
    jit::Node* const first = *std::ranges::min_element(taken, [](auto* a, auto* b) { return a->isBefore(b); });
    jit::Node* const made = insert_top_k(first, {sort->input(0), first->input(3), sort->input(2), sort->input(3)});
    for (jit::Node* const node : taken) use_instead(node->output(), made->output(node->input(0)->offset()));
  });
}

}  // namespace

void find_top_k(Program& program) {
  register_top_k();
  find_keys(program);
  find_sorted(program);
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
