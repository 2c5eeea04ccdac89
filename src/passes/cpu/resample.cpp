#include <torch/csrc/jit/ir/ir.h>

#include "graph/pattern.h"
#include "graph/walk.h"
#include "graph/writes.h"
#include "kernels/cpu/operators.h"
#include "passes/cpu/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

}  // namespace

// The script `resampled`, as it is written.
void find_resampling(Program& program) {
  register_resample();
  const char* const pattern = R"(graph(%x, %axis, %indices, %taps, %shape):
    %none : NoneType = prim::Constant()
    %true : bool = prim::Constant[value=1]()
    %zero : int = prim::Constant[value=0]()
    %one : int = prim::Constant[value=1]()
    %rows : Tensor = aten::slice(%indices, %zero, %none, %none, %one)
    %first : Tensor = aten::select(%rows, %one, %zero)
    %picked : Tensor = aten::index_select(%x, %axis, %first)
    %weights : Tensor = aten::slice(%taps, %zero, %none, %none, %one)
    %weight : Tensor = aten::select(%weights, %one, %zero)
    %factor : Tensor = aten::reshape(%weight, %shape)
    %start : Tensor = aten::mul(%picked, %factor)
    %count : int = aten::size(%taps, %one)
    %steps : int = aten::__range_length(%one, %count, %one)
    %y : Tensor = prim::Loop(%steps, %true, %start)
      block0(%i : int, %sum : Tensor):
        %k : int = aten::__derive_index(%i, %one, %one)
        %rows_k : Tensor = aten::slice(%indices, %zero, %none, %none, %one)
        %index_k : Tensor = aten::select(%rows_k, %one, %k)
        %picked_k : Tensor = aten::index_select(%x, %axis, %index_k)
        %weights_k : Tensor = aten::slice(%taps, %zero, %none, %none, %one)
        %weight_k : Tensor = aten::select(%weights_k, %one, %k)
        %factor_k : Tensor = aten::reshape(%weight_k, %shape)
        %part : Tensor = aten::mul(%picked_k, %factor_k)
        %next : Tensor = aten::add(%sum, %part, %one)
        -> (%true, %next)
    return (%y))";
  for_each_place(program, pattern, [](jit::Node* loop, const Found& found) {
    replace(loop, "onnx_torch::resample", {found["x"], found["axis"], found["indices"], found["taps"]});
    loop->destroy();  // what writes to a list is not taken for dead
  });
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
