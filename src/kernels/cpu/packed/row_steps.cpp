#include "kernels/cpu/packed/row_steps.h"

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <map>
#include <string>

#include "base/parallel.h"
#include "kernels/cpu/cpu_features.h"

namespace onnxtorch {
namespace {

using chain::Op;

Op op_of(const PostOp& step) {
  static const std::map<std::string, Op> activations{{"relu", Op::Relu},          {"leaky_relu", Op::LeakyRelu},
                                                     {"sigmoid", Op::Sigmoid},    {"tanh", Op::Tanh},
                                                     {"silu", Op::Silu},          {"gelu", Op::Gelu},
                                                     {"gelu_tanh", Op::GeluTanh}, {"hardswish", Op::HardSwish},
                                                     {"clamp", Op::Clamp},        {"hardsigmoid", Op::HardSigmoid}};
  switch (step.kind) {
    case PostOp::Kind::Activation:
      return activations.at(step.activation);
    case PostOp::Kind::Mul:
      return Op::Mul;
    default:
      return Op::Add;
  }
}

}  // namespace

RowSteps::RowSteps(std::span<const PostOp> steps)
    : adds_(!steps.empty() && steps.front().kind == PostOp::Kind::Add), has_relu_(false) {
  if (adds_) steps = steps.subspan(1);
  has_relu_ = !steps.empty() && steps.front().activation == "relu";
  if (has_relu_) steps = steps.subspan(1);
  if (steps.empty()) return;
  const auto is_operand = [](const PostOp& step) { return step.kind != PostOp::Kind::Activation; };
  const auto operands = static_cast<uint16_t>(std::ranges::count_if(steps, is_operand));
  const chain::Source direct{chain::Source::Kind::Direct, chain::Type::Float, {}, {}};
  pass_.sources.assign(operands + 1, direct);
  pass_.registers = static_cast<uint16_t>(steps.size() - 1);
  pass_.result_types = {chain::Type::Float};
  uint16_t from = 0, next_operand = 1, to = operands + 1;  // slots: sources, registers, the result
  for (const PostOp& step : steps) {
    const uint16_t operand = is_operand(step) ? next_operand++ : 0;
    pass_.steps.push_back({op_of(step),
                           chain::Type::Float,
                           to,
                           {from, operand, 0},
                           static_cast<float>(step.alpha),
                           static_cast<float>(step.beta)});
    from = to++;
  }
}

void RowSteps::run(float* y, int64_t count, std::span<const float* const> operands) const {
  constexpr int64_t kCost = 8;  // of a step, as parallel_for counts
  if (pass_.steps.empty()) return;
  c10::SmallVector<const void*, 4> sources{y};
  sources.append(operands.begin(), operands.end());
  void* const results[] = {y};
  parallel_for(count, kCost * static_cast<int64_t>(pass_.steps.size()), [&](int64_t begin, int64_t end) {
    for_this_cpu<chain::Kernels>().run(pass_, sources.data(), results, begin, end);
  });
}

}  // namespace onnxtorch
