// The plan by which a chain runs on inputs of known sizes and strides: in passes over memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "kernels/cpu/chain/program.h"
#include "kernels/simd/chain.h"
#include "kernels/standard/element_wise_pass.h"

namespace onnxtorch {

// The passes of a chain. Instructions whose results are of one shape are computed in one pass; the smaller shapes come
// first. Tensors are numbered: the inputs, then what each pass gives.
struct ChainPlan {
  struct Layout {
    std::vector<int64_t> sizes, strides;
  };

  // A reduction that ATen does, of a tensor that a pass gives.
  struct Rest {
    size_t tensor;
    chain::Reducer reducer;
    std::vector<int64_t> dims;
    bool keepdim, has_parts;  // parts are the last dimension
    float divisor;
  };

  // A pass over memory. Its tensors are numbered in this order: the results, what the loop reduces, what the rests come
  // to.
  struct Pass {
    chain::Loop loop;
    std::vector<size_t> sources;
    std::vector<size_t> results;
    std::vector<std::optional<size_t>> over;  // the tensor whose memory a result may take, where nothing else reads it
    Layout layout;                            // of the results
    int64_t items = 0;                        // elements, or strips of parts of what is reduced
    int64_t cost = 0;                         // of an item, as parallel_for takes it
    std::vector<Layout> reduced;
    std::vector<Rest> rests;
    c10::intrusive_ptr<ElementWisePass> elsewhere;  // the same for another device than the CPU
  };

  std::vector<Pass> passes;
  std::vector<size_t> results;
  size_t inputs = 0, tensors = 0;
};

// Plans a chain; returns none where the sizes do not fit, or the passes are too large.
std::optional<ChainPlan> plan_chain(const ChainProgram& program, at::TensorList inputs);

}  // namespace onnxtorch
