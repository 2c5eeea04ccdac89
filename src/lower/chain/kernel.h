// One pass over memory that computes a chain of element-wise operators, block by block in cache. Compiled once for each
// of ATen's CPU capabilities, so nothing here may be more than data: an inline function of the wrong one could be
// linked.
#pragma once

#include <cstdint>
#include <vector>

namespace onnxtorch::chain {

// The operators, by their ATen names. Those from Eq on take or give masks: bool tensors, as bits of floats.
enum class Op : uint8_t {
  Abs,
  Neg,
  Exp,
  Expm1,
  Log,
  Log1p,
  Sqrt,
  Rsqrt,
  Reciprocal,
  Sigmoid,
  Tanh,
  Sin,
  Cos,
  Tan,
  Asin,
  Acos,
  Atan,
  Relu,
  Silu,
  Gelu,
  GeluTanh,
  HardSigmoid,
  HardSwish,
  LeakyRelu,  // of slope a
  Clamp,      // between a and b
  ClampMin,   // at least a
  ClampMax,   // at most a
  Floor,
  Ceil,
  Round,
  Trunc,
  Sign,
  Square,
  Cube,
  Add,
  Sub,
  Mul,
  Div,
  Maximum,
  Minimum,
  Pow,
  Eq,
  Ne,
  Lt,
  Le,
  Gt,
  Ge,
  IsNan,
  ToBool,
  LogicalNot,
  LogicalAnd,
  LogicalOr,
  LogicalXor,
  Where,    // gives floats
  ToFloat,  // gives floats
};

// Operands and results are slots.
struct Step {
  Op op;
  uint16_t result;
  uint16_t operands[3];
  float a, b;
};

// How an input's elements lie for the pass.
struct Source {
  enum class Kind : uint8_t { Direct, Splat, Strided };
  Kind kind;
  bool is_mask;                         // of bytes in memory
  std::vector<int64_t> sizes, strides;  // of the whole pass, where Strided
};

// The slots are: sources, constants, registers, results; in this order.
struct Loop {
  std::vector<Source> sources;
  std::vector<float> constants;
  uint16_t registers = 0;
  std::vector<uint8_t> results_are_masks;
  std::vector<Step> steps;

  uint64_t slots() const { return sources.size() + constants.size() + registers + results_are_masks.size(); }
};

constexpr uint64_t kMostSlots = 512;
// The slots that may need memory of a block's size.
constexpr uint64_t kMostBuffers = 128;

// Computes the elements from begin to end.
using Run = void(const Loop& loop, const void* const* sources, void* const* results, int64_t begin, int64_t end);

namespace DEFAULT {
Run run;
}
namespace AVX2 {
Run run;
}
namespace AVX512 {
Run run;
}

}  // namespace onnxtorch::chain
