// Element-wise operators on floats of 32 and 16 bits and masks (bool tensors), one after another on each element. All
// are computed as floats of 32 bits. Nothing here is more than data, as kernels are compiled for several kinds of CPUs
// with it.
#pragma once

#include <cstdint>

namespace onnxtorch {
namespace chain {

enum class Type : uint8_t { Float, Float16, BFloat16, Mask };

// The operators, by their ATen names. Those from Eq on take or give masks: bool tensors, as bits of floats in a
// kernel that works on vectors.
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
  Erf,
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
  IsInf,
  ToBool,
  LogicalNot,
  LogicalAnd,
  LogicalOr,
  LogicalXor,
  Where,    // gives floats
  ToFloat,  // gives floats
};

// An operator in a program; its operands and its result are slots.
struct Step {
  Op op;
  Type type;  // that the result is rounded to
  uint16_t result;
  uint16_t operands[3];
  float a, b;
};

}  // namespace chain

// The program that computes each element, as a kernel of a device takes it. The slots are: sources, constants, locals,
// of which the last are the results.
struct ElementWise {
  static constexpr uint32_t kMostDims = 6, kMostSources = 16, kMostConstants = 32, kMostLocals = 24, kMostResults = 8,
                            kMostSteps = 64;

  // The layout of a tensor's elements, in the order of the results'. A tensor of no dimensions has the same element for
  // all.
  struct Source {
    chain::Type type;
    uint32_t rank;
    uint32_t sizes[kMostDims];
    int64_t strides[kMostDims];
  };

  uint32_t count;  // of elements
  uint32_t source_count, constant_count, local_count, result_count, step_count;
  Source sources[kMostSources];
  float constants[kMostConstants];
  chain::Type result_types[kMostResults];
  chain::Step steps[kMostSteps];
};

// The memory of the sources and the results; masks are bytes.
struct ElementWiseMemory {
  const void* sources[ElementWise::kMostSources];
  void* results[ElementWise::kMostResults];
};

}  // namespace onnxtorch
