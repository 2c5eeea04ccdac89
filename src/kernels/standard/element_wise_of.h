// The computation of one element, on the CPU and by CUDA, as ATen's kernels for CUDA do it.
#pragma once

#include <cmath>

#include "base/both_sides.h"
#include "base/halves.h"
#include "kernels/standard/element_wise.h"

namespace onnxtorch {

// Give the larger and the smaller one. To CUDA -0 is less than 0; on the CPU they are equal.
ONNX_TORCH_BOTH inline float larger(float x, float y) {
#ifdef __CUDA_ARCH__
  return fmaxf(x, y);
#else
  return x < y ? y : x;
#endif
}
ONNX_TORCH_BOTH inline float smaller(float x, float y) {
#ifdef __CUDA_ARCH__
  return fminf(x, y);
#else
  return x > y ? y : x;
#endif
}

ONNX_TORCH_BOTH inline float at_least(float x, float low) { return x != x ? x : larger(x, low); }    // NaN stays
ONNX_TORCH_BOTH inline float at_most(float x, float high) { return x != x ? x : smaller(x, high); }  // NaN stays

ONNX_TORCH_BOTH inline float six_capped(float x) { return at_most(at_least(x + 3.0F, 0.0F), 6.0F); }

ONNX_TORCH_BOTH inline float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }

ONNX_TORCH_BOTH inline float gelu(float x) { return 0.5F * x * (1.0F + std::erf(x * 0.707106781F)); }

ONNX_TORCH_BOTH inline float gelu_by_tanh(float x) {
  constexpr float kFactor = 0.797884561F, kCubic = 0.044715F;  // the first is the root of 2 / pi
  return 0.5F * x * (1.0F + std::tanh(kFactor * (x + kCubic * x * x * x)));
}

// Gives several results of a step, whose operands operand(number, i) gives. Masks are 0 or 1.
template <uint32_t kElements, typename Operand>
ONNX_TORCH_BOTH void compute(const chain::Step& step, const Operand& operand, float* result) {
  using chain::Op;
  const auto of_one = [&](const auto& f) {
    for (uint32_t i = 0; i < kElements; ++i) result[i] = f(operand(0, i));
  };
  const auto of_two = [&](const auto& f) {
    for (uint32_t i = 0; i < kElements; ++i) result[i] = f(operand(0, i), operand(1, i));
  };
  const auto of_three = [&](const auto& f) {
    for (uint32_t i = 0; i < kElements; ++i) result[i] = f(operand(0, i), operand(1, i), operand(2, i));
  };
  const float a = step.a, b = step.b;
  switch (step.op) {
    case Op::Abs:
      return of_one([](float x) { return std::fabs(x); });
    case Op::Neg:
      return of_one([](float x) { return -x; });
    case Op::Exp:
      return of_one([](float x) { return std::exp(x); });
    case Op::Expm1:
      return of_one([](float x) { return std::expm1(x); });
    case Op::Log:
      return of_one([](float x) { return std::log(x); });
    case Op::Log1p:
      return of_one([](float x) { return std::log1p(x); });
    case Op::Sqrt:
      return of_one([](float x) { return std::sqrt(x); });
    case Op::Rsqrt:
      return of_one([](float x) { return 1.0F / std::sqrt(x); });
    case Op::Reciprocal:
      return of_one([](float x) { return 1.0F / x; });
    case Op::Sigmoid:
      return of_one([](float x) { return sigmoid(x); });
    case Op::Tanh:
      return of_one([](float x) { return std::tanh(x); });
    case Op::Erf:
      return of_one([](float x) { return std::erf(x); });
    case Op::Sin:
      return of_one([](float x) { return std::sin(x); });
    case Op::Cos:
      return of_one([](float x) { return std::cos(x); });
    case Op::Tan:
      return of_one([](float x) { return std::tan(x); });
    case Op::Asin:
      return of_one([](float x) { return std::asin(x); });
    case Op::Acos:
      return of_one([](float x) { return std::acos(x); });
    case Op::Atan:
      return of_one([](float x) { return std::atan(x); });
    case Op::Relu:
      return of_one([](float x) { return at_least(x, 0.0F); });
    case Op::Silu:
      return of_one([](float x) { return x / (1.0F + std::exp(-x)); });
    case Op::Gelu:
      return of_one([](float x) { return gelu(x); });
    case Op::GeluTanh:
      return of_one([](float x) { return gelu_by_tanh(x); });
    case Op::HardSigmoid:
      return of_one([](float x) { return six_capped(x) / 6.0F; });
    case Op::HardSwish:
      return of_one([](float x) { return x * six_capped(x) / 6.0F; });
    case Op::LeakyRelu:
      return of_one([a](float x) { return x > 0.0F ? x : x * a; });
    case Op::Clamp:
      return of_one([a, b](float x) { return at_most(at_least(x, a), b); });
    case Op::ClampMin:
      return of_one([a](float x) { return at_least(x, a); });
    case Op::ClampMax:
      return of_one([a](float x) { return at_most(x, a); });
    case Op::Floor:
      return of_one([](float x) { return std::floor(x); });
    case Op::Ceil:
      return of_one([](float x) { return std::ceil(x); });
    case Op::Round:
      return of_one([](float x) { return std::nearbyint(x); });
    case Op::Trunc:
      return of_one([](float x) { return std::trunc(x); });
    case Op::Sign:
      return of_one([](float x) { return static_cast<float>(x > 0.0F) - static_cast<float>(x < 0.0F); });
    case Op::Square:
      return of_one([](float x) { return x * x; });
    case Op::Cube:
      return of_one([](float x) { return x * x * x; });
    case Op::Add:
      return of_two([](float x, float y) { return x + y; });
    case Op::Sub:
      return of_two([](float x, float y) { return x - y; });
    case Op::Mul:
      return of_two([](float x, float y) { return x * y; });
    case Op::Div:
      return of_two([](float x, float y) { return x / y; });
    case Op::Maximum:
      return of_two([](float x, float y) { return x != x ? x : at_least(y, x); });
    case Op::Minimum:
      return of_two([](float x, float y) { return x != x ? x : at_most(y, x); });
    case Op::Pow:
      return of_two([](float x, float y) { return std::pow(x, y); });
    case Op::Eq:
      return of_two([](float x, float y) -> float { return x == y; });
    case Op::Ne:
      return of_two([](float x, float y) -> float { return x != y; });
    case Op::Lt:
      return of_two([](float x, float y) -> float { return x < y; });
    case Op::Le:
      return of_two([](float x, float y) -> float { return x <= y; });
    case Op::Gt:
      return of_two([](float x, float y) -> float { return x > y; });
    case Op::Ge:
      return of_two([](float x, float y) -> float { return x >= y; });
    case Op::IsNan:
      return of_one([](float x) -> float { return x != x; });
    case Op::IsInf:
      return of_one([](float x) -> float { return std::fabs(x) == INFINITY; });
    case Op::ToBool:
      return of_one([](float x) -> float { return x != 0.0F; });
    case Op::LogicalNot:
      return of_one([](float x) -> float { return x == 0.0F; });
    case Op::LogicalAnd:
      return of_two([](float x, float y) { return x * y; });
    case Op::LogicalOr:
      return of_two([](float x, float y) { return at_least(x, y); });
    case Op::LogicalXor:
      return of_two([](float x, float y) -> float { return x != y; });
    case Op::Where:
      return of_three([](float x, float y, float z) { return x != 0.0F ? y : z; });
    case Op::ToFloat:
      return of_one([](float x) { return x; });
  }
}

// Gives the element of a source that counts as this one of the results'.
ONNX_TORCH_BOTH inline float element(const ElementWise::Source& source, const void* data, uint32_t number) {
  int64_t at = 0;
  for (uint32_t d = source.rank; d > 1; --d) {
    const uint32_t rest = number / source.sizes[d - 1];
    at += static_cast<int64_t>(number - rest * source.sizes[d - 1]) * source.strides[d - 1];
    number = rest;
  }
  if (source.rank > 0) at += static_cast<int64_t>(number) * source.strides[0];
  switch (source.type) {
    case chain::Type::Mask:
      return static_cast<float>(static_cast<const bool*>(data)[at]);
    case chain::Type::Float16:
      return of_float16(static_cast<const uint16_t*>(data)[at]);
    case chain::Type::BFloat16:
      return of_bfloat16(static_cast<const uint16_t*>(data)[at]);
    case chain::Type::Float:
      break;
  }
  return static_cast<const float*>(data)[at];
}

ONNX_TORCH_BOTH inline void store(float x, chain::Type type, void* data, uint32_t at) {
  switch (type) {
    case chain::Type::Mask:
      static_cast<bool*>(data)[at] = x != 0.0F;
      break;
    case chain::Type::Float16:
      static_cast<uint16_t*>(data)[at] = to_float16(x);
      break;
    case chain::Type::BFloat16:
      static_cast<uint16_t*>(data)[at] = to_bfloat16(x);
      break;
    case chain::Type::Float:
      static_cast<float*>(data)[at] = x;
      break;
  }
}

ONNX_TORCH_BOTH inline float rounded(float x, chain::Type type) {
  if (type == chain::Type::Float16) return of_float16(to_float16(x));
  return type == chain::Type::BFloat16 ? of_bfloat16(to_bfloat16(x)) : x;
}

// Computes several elements, which are `distance` apart; those past the last stand for it.
template <uint32_t kElements>
ONNX_TORCH_BOTH void compute_elements(const ElementWise& of, const ElementWiseMemory& memory, uint32_t first,
                                      uint32_t distance) {
  float locals[ElementWise::kMostLocals][kElements];
  uint32_t numbers[kElements];
  for (uint32_t e = 0; e < kElements; ++e) {
    const uint64_t number = first + static_cast<uint64_t>(e) * distance;
    numbers[e] = number < of.count ? static_cast<uint32_t>(number) : of.count - 1;
  }
  const auto operand = [&](uint32_t slot, uint32_t e) {
    if (slot < of.source_count) return element(of.sources[slot], memory.sources[slot], numbers[e]);
    slot -= of.source_count;
    return slot < of.constant_count ? of.constants[slot] : locals[slot - of.constant_count][e];
  };
  for (uint32_t s = 0; s < of.step_count; ++s) {
    const chain::Step& step = of.steps[s];
    float* const result = locals[step.result - of.source_count - of.constant_count];
    compute<kElements>(step, [&](uint32_t number, uint32_t e) { return operand(step.operands[number], e); }, result);
    for (uint32_t e = 0; e < kElements; ++e) result[e] = rounded(result[e], step.type);
  }
  for (uint32_t r = 0; r < of.result_count; ++r) {
    const float* const result = locals[of.local_count - of.result_count + r];
    for (uint32_t e = 0; e < kElements; ++e) store(result[e], of.result_types[r], memory.results[r], numbers[e]);
  }
}

}  // namespace onnxtorch
