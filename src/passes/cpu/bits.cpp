#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/ir.h>

#include "graph/constants.h"
#include "graph/walk.h"
#include "graph/writes.h"
#include "kernels/cpu/packed/packed.h"
#include "passes/cpu/passes.h"
#include "passes/general/linear_of_bits.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// Gives the same weight in blocks of kLargestBlock, which a kernel takes, where its own are larger.
LinearOfBits in_smaller_blocks(LinearOfBits of) {
  constexpr int64_t kLargestBlock = 256;
  if (of.block_size <= kLargestBlock) return of;
  const int64_t out = of.numbers.size(0), parts = of.block_size / kLargestBlock;
  const int64_t blocks = (of.in - 1) / kLargestBlock + 1;  // blocks that only fill up the last one are left out
  const auto repeated = [&](const at::Tensor& of_blocks) {
    return of_blocks.defined() ? of_blocks.repeat_interleave(parts, 1).narrow(1, 0, blocks) : of_blocks;
  };
  of.numbers = of.numbers.reshape({out, of.numbers.size(1) * parts, -1}).narrow(1, 0, blocks);
  of.block_size = kLargestBlock;
  of.scales = repeated(of.scales);
  of.zero_points = repeated(of.zero_points);
  return of;
}

}  // namespace

void pack_bits(Program& program) {
  register_packed();
  const Constants constants(program);
  jit::Graph& graph = *program.graph;
  for_each_node(graph.block(), [&](jit::Node* node) {
    const auto found = linear_of_bits(node, constants);
    if (!found) return;
    const LinearOfBits linear = in_smaller_blocks(*found);
    const jit::WithInsertPoint at(node);
    jit::Value* const operation = bind_constant(program, c10::IValue(packed(linear)));
    jit::Node* const product =
        graph.create(linear.rounds_x ? kPackedNbitsInt8 : kPackedNbits, {node->namedInput("A"), operation});
    product->setSourceRange(node->sourceRange());
    graph.insertNode(product)->output()->setType(node->output()->type());
    node->output()->replaceAllUsesWith(product->output());
  });
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
