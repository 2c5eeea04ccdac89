// The program of a chain: the instructions and reductions that it computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/simd/chain.h"

namespace onnxtorch {

// The instructions and reductions of a chain. Values are numbered: the inputs, the constants, what each instruction
// gives, then what each reduction gives.
struct ChainProgram {
  struct Instruction {
    chain::Op op;
    chain::Type type;  // of the result
    std::vector<size_t> operands;
    float a = 0, b = 0;
  };

  struct Reduction {
    chain::Reducer reducer;
    bool is_mean = false;
    std::vector<int64_t> dims = {};  // empty: all dimensions
    bool keepdim = false;
    size_t value = 0;  // that of an instruction
  };

  std::vector<chain::Type> input_types;
  std::vector<float> constants;
  std::vector<Instruction> instructions;
  std::vector<Reduction> reductions;
  std::vector<size_t> results;  // instructions' and reductions' values

  size_t first_instruction() const { return input_types.size() + constants.size(); }
  size_t first_reduction() const { return first_instruction() + instructions.size(); }
};

}  // namespace onnxtorch
