// The plans of chains of element-wise operators: what is computed in which pass over memory, and where it lies.
#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "kernels/cpu/chain/chain.h"
#include "kernels/cpu/chain/plan.h"

namespace onnxtorch {
namespace {

using chain::Op;
using chain::Reducer;
using chain::Source;
using chain::Type;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Optional;
using testing::SizeIs;

using Ints = std::vector<int64_t>;

// A program, whose values are numbered in this order: inputs, constants, steps and reductions.
class ProgramBuilder {
 public:
  size_t input(Type type = Type::Float) {
    program.input_types.push_back(type);
    return program.input_types.size() - 1;
  }
  size_t constant(float number) {
    program.constants.push_back(number);
    return program.first_instruction() - 1;
  }
  size_t step(Op op, const std::vector<size_t>& operands, Type type = Type::Float) {
    program.instructions.push_back({op, type, operands});
    return program.first_reduction() - 1;
  }
  size_t reduction(const ChainProgram::Reduction& reduction) {
    program.reductions.push_back(reduction);
    return program.first_reduction() + program.reductions.size() - 1;
  }
  size_t sum(size_t of, const Ints& dims, bool keepdim = false) {
    return reduction({.reducer = Reducer::Sum, .dims = dims, .keepdim = keepdim, .value = of});
  }

  ChainProgram program;
};

at::Tensor tensor(const Ints& sizes) { return at::empty(sizes); }

// Gives a tensor whose dimensions lie in the opposite order.
at::Tensor turned(const at::Tensor& t) {
  Ints back;
  for (int64_t dim = t.dim(); dim-- > 0;) back.push_back(dim);
  return t.permute(back).contiguous().permute(back);
}

// Gives a tensor with the same elements and as large gaps between them.
at::Tensor with_gaps(const at::Tensor& t) { return at::stack({t, t}, -1).select(-1, 0); }

// Plans the exponentials of one input.
ChainPlan plan_of_exp(const at::Tensor& x) {
  ProgramBuilder b;
  b.program.results = {b.step(Op::Exp, {b.input()})};
  return plan_chain(b.program, {x}).value();
}

// Plans the sum of two inputs; none where their sizes do not fit.
std::optional<ChainPlan> plan_of_sum(const at::Tensor& x, const at::Tensor& y) {
  ProgramBuilder b;
  const size_t first = b.input(), second = b.input();
  b.program.results = {b.step(Op::Add, {first, second})};
  return plan_chain(b.program, {x, y});
}

// Plans a sum over dimensions of the exponentials of one input.
std::optional<ChainPlan> plan_of_reduction(const Ints& sizes, const Ints& dims, bool keepdim = false) {
  ProgramBuilder b;
  b.program.results = {b.sum(b.step(Op::Exp, {b.input()}), dims, keepdim)};
  return plan_chain(b.program, {tensor(sizes)});
}

TEST(ChainPlan, ComputesStepsOfOneShapeInOnePass) {
  ProgramBuilder b;
  const size_t x = b.input(), two = b.constant(2), exp = b.step(Op::Exp, {x});
  b.program.results = {b.step(Op::Mul, {exp, two})};
  const ChainPlan plan = plan_chain(b.program, {tensor({3, 4})}).value();
  ASSERT_THAT(plan.passes, SizeIs(1));
  const ChainPlan::Pass& pass = plan.passes[0];
  EXPECT_THAT(pass.sources, ElementsAre(0));
  EXPECT_THAT(pass.loop.constants, ElementsAre(2));
  EXPECT_EQ(pass.loop.registers, 1);
  EXPECT_THAT(pass.loop.result_types, ElementsAre(Type::Float));
  ASSERT_THAT(pass.loop.steps, SizeIs(2));
  EXPECT_EQ(pass.loop.steps[0].op, Op::Exp);
  EXPECT_EQ(pass.loop.steps[0].operands[0], 0);
  EXPECT_EQ(pass.loop.steps[0].result, 2);  // the register, after the source and the constant
  EXPECT_EQ(pass.loop.steps[1].op, Op::Mul);
  EXPECT_EQ(pass.loop.steps[1].operands[0], 2);
  EXPECT_EQ(pass.loop.steps[1].operands[1], 1);
  EXPECT_EQ(pass.loop.steps[1].result, 3);
  EXPECT_EQ(pass.layout.sizes, Ints({3, 4}));
  EXPECT_EQ(pass.layout.strides, Ints({4, 1}));
  EXPECT_EQ(pass.items, 12);
  EXPECT_THAT(plan.results, ElementsAre(1));
  EXPECT_EQ(plan.inputs, 1U);
  EXPECT_EQ(plan.tensors, 2U);
}

TEST(ChainPlan, ComputesASmallerShapeFirst) {
  ProgramBuilder b;
  const size_t x = b.input(), row = b.input(), wide = b.step(Op::Exp, {x}), narrow = b.step(Op::Neg, {row});
  b.program.results = {b.step(Op::Add, {wide, narrow})};
  const ChainPlan plan = plan_chain(b.program, {tensor({3, 4}), tensor({4})}).value();
  ASSERT_THAT(plan.passes, SizeIs(2));
  EXPECT_EQ(plan.passes[0].layout.sizes, Ints({4}));
  EXPECT_THAT(plan.passes[0].sources, ElementsAre(row));
  EXPECT_THAT(plan.passes[0].results, ElementsAre(2));
  EXPECT_EQ(plan.passes[1].layout.sizes, Ints({3, 4}));
  EXPECT_THAT(plan.passes[1].sources, ElementsAre(x, 2));
  EXPECT_THAT(plan.results, ElementsAre(3));
  EXPECT_EQ(plan.tensors, 4U);
}

TEST(ChainPlan, ComputesFewerDimensionsFirstWhereElementsAreAsMany) {
  ProgramBuilder b;
  const size_t row = b.input(), one = b.input(), negated = b.step(Op::Neg, {row});
  b.program.results = {b.step(Op::Add, {one, negated})};
  const ChainPlan plan = plan_chain(b.program, {tensor({4}), tensor({1, 1})}).value();
  ASSERT_THAT(plan.passes, SizeIs(2));
  EXPECT_EQ(plan.passes[0].layout.sizes, Ints({4}));
  EXPECT_EQ(plan.passes[1].layout.sizes, Ints({1, 4}));
}

TEST(ChainPlan, OfScalarsHasOneItem) {
  const ChainPlan plan = plan_of_sum(tensor({}), tensor({})).value();
  ASSERT_THAT(plan.passes, SizeIs(1));
  EXPECT_EQ(plan.passes[0].layout.sizes, Ints());
  EXPECT_EQ(plan.passes[0].items, 1);
  EXPECT_EQ(plan.passes[0].loop.sources[0].kind, Source::Kind::Splat);
  EXPECT_THAT(plan.passes[0].over, ElementsAre(std::nullopt));
}

TEST(ChainPlan, IsNoneWhereSizesDoNotFit) {
  EXPECT_FALSE(plan_of_sum(tensor({3, 4}), tensor({3})));
  EXPECT_FALSE(plan_of_sum(tensor({2, 4}), tensor({3, 4})));
  EXPECT_TRUE(plan_of_sum(tensor({3, 1}), tensor({4})));
}

TEST(ChainPlan, ReadsEachSourceAsItLies) {
  const auto expect = [](const at::Tensor& other, Source::Kind kind, const Ints& sizes, const Ints& strides) {
    const ChainPlan plan = plan_of_sum(tensor({2, 3, 4}), other).value();
    const Source& source = plan.passes.back().loop.sources[1];
    EXPECT_EQ(source.kind, kind) << other.sizes();
    if (kind != Source::Kind::Strided) return;
    EXPECT_EQ(source.sizes, sizes) << other.sizes();
    EXPECT_EQ(source.strides, strides) << other.sizes();
  };
  expect(tensor({2, 3, 4}), Source::Kind::Direct, {}, {});
  expect(tensor({}), Source::Kind::Splat, {}, {});
  expect(tensor({1, 1, 1}), Source::Kind::Splat, {}, {});
  expect(tensor({4}), Source::Kind::Strided, {6, 4}, {0, 1});
  expect(tensor({3, 1}), Source::Kind::Strided, {2, 3, 4}, {0, 1, 0});
  expect(tensor({2, 1, 1}), Source::Kind::Strided, {2, 12}, {1, 0});
  expect(tensor({1, 3, 4}), Source::Kind::Strided, {2, 12}, {0, 1});
  expect(tensor({2, 3, 8}).narrow(2, 0, 4), Source::Kind::Strided, {6, 4}, {8, 1});
  expect(with_gaps(tensor({2, 3, 4})), Source::Kind::Strided, {24}, {2});
  expect(turned(tensor({2, 3, 4})), Source::Kind::Strided, {2, 3, 4}, {1, 2, 6});
}

TEST(ChainPlan, ReadsNothingAlongDimensionsOfSize1) {
  const ChainPlan plan = plan_of_sum(tensor({2, 1, 4}), tensor({2, 1, 1})).value();
  EXPECT_EQ(plan.passes[0].loop.sources[0].kind, Source::Kind::Direct);
  EXPECT_EQ(plan.passes[0].loop.sources[1].sizes, Ints({2, 4}));
  EXPECT_EQ(plan.passes[0].loop.sources[1].strides, Ints({1, 0}));
}

TEST(ChainPlan, GivesTheLayoutOfTheFirstDenseSourceOfTheResultsSize) {
  const auto strides = [](const at::Tensor& x, const at::Tensor& y) {
    return plan_of_sum(x, y).value().passes.back().layout.strides;
  };
  const at::Tensor dense = tensor({2, 3, 4}), other = turned(dense), gaps = with_gaps(dense), row = tensor({4});
  EXPECT_EQ(strides(dense, other), Ints({12, 4, 1}));
  EXPECT_EQ(strides(other, dense), Ints({1, 2, 6}));
  EXPECT_EQ(strides(row, other), Ints({1, 2, 6}));
  EXPECT_EQ(strides(gaps, other), Ints({1, 2, 6}));
  EXPECT_EQ(strides(gaps, gaps), Ints({12, 4, 1}));
  EXPECT_EQ(strides(other.narrow(1, 0, 1), dense), Ints({12, 4, 1}));
  EXPECT_EQ(strides(tensor({2, 1, 4}), turned(tensor({3, 1}))), Ints({12, 4, 1}));
  const ChainPlan plan = plan_of_sum(other, dense).value();
  EXPECT_EQ(plan.passes[0].loop.sources[0].kind, Source::Kind::Direct);
  EXPECT_EQ(plan.passes[0].loop.sources[1].strides, Ints({1, 4, 12}));
}

TEST(ChainPlan, LetsAResultTakeTheMemoryOfItsSource) {
  EXPECT_THAT(plan_of_exp(tensor({3, 4})).passes[0].over, ElementsAre(Optional(0)));
  EXPECT_THAT(plan_of_exp(turned(tensor({3, 4}))).passes[0].over, ElementsAre(Optional(0)));
  EXPECT_THAT(plan_of_exp(with_gaps(tensor({3, 4}))).passes[0].over, ElementsAre(std::nullopt));
  EXPECT_THAT(plan_of_sum(tensor({4}), tensor({3, 4}))->passes[0].over, ElementsAre(Optional(1)));
  EXPECT_THAT(plan_of_sum(tensor({1, 4}), tensor({4}))->passes[0].over, ElementsAre(Optional(0)));
}

TEST(ChainPlan, KeepsASourceThatIsReadAfterTheResultIsWritten) {
  ProgramBuilder b;
  const size_t x = b.input(), exp = b.step(Op::Exp, {x}), sum = b.step(Op::Add, {exp, x});
  b.program.results = {exp, sum};
  EXPECT_THAT(plan_chain(b.program, {tensor({3})})->passes[0].over, ElementsAre(std::nullopt, Optional(0)));
}

TEST(ChainPlan, GivesTheMemoryOfASourceToOneResult) {
  ProgramBuilder b;
  const size_t x = b.input(), y = b.input(), sum = b.step(Op::Add, {x, y}), negated = b.step(Op::Neg, {sum});
  const size_t again = b.step(Op::Neg, {negated});
  b.program.results = {sum, negated, again};
  EXPECT_THAT(plan_chain(b.program, {tensor({3}), tensor({3})})->passes[0].over,
              ElementsAre(Optional(0), Optional(1), std::nullopt));
}

TEST(ChainPlan, KeepsASourceThatALaterPassReads) {
  for (const bool is_read : {false, true}) {
    ProgramBuilder b;
    const size_t x = b.input(), row = b.input(), negated = b.step(Op::Neg, {row}), sum = b.step(Op::Add, {x, negated});
    b.program.results = {is_read ? b.step(Op::Mul, {sum, row}) : sum};
    const ChainPlan plan = plan_chain(b.program, {tensor({3, 4}), tensor({4})}).value();
    ASSERT_THAT(plan.passes, SizeIs(2));
    EXPECT_THAT(plan.passes[0].over, ElementsAre(is_read ? std::nullopt : std::optional(row)));
    EXPECT_THAT(plan.passes[1].over, ElementsAre(Optional(x)));
  }
}

TEST(ChainPlan, LetsNoMaskTakeMemory) {
  ProgramBuilder b;
  const size_t x = b.input(), zero = b.constant(0), less = b.step(Op::Lt, {x, zero}, Type::Mask);
  b.program.results = {less, b.step(Op::ToFloat, {less})};
  const ChainPlan plan = plan_chain(b.program, {tensor({3})}).value();
  EXPECT_THAT(plan.passes[0].loop.result_types, ElementsAre(Type::Mask, Type::Float));
  EXPECT_THAT(plan.passes[0].over, ElementsAre(std::nullopt, Optional(x)));
}

TEST(ChainPlan, TakesNoMemoryOfAMask) {
  ProgramBuilder b;
  b.program.results = {b.step(Op::ToFloat, {b.input(Type::Mask)})};
  const ChainPlan plan = plan_chain(b.program, {tensor({3}).to(at::kBool)}).value();
  EXPECT_EQ(plan.passes[0].loop.sources[0].type, Type::Mask);
  EXPECT_THAT(plan.passes[0].over, ElementsAre(std::nullopt));
}

TEST(ChainPlan, AValueThatIsTwoResultsIsOneTensor) {
  ProgramBuilder b;
  const size_t exp = b.step(Op::Exp, {b.input()});
  b.program.results = {exp, exp};
  const ChainPlan plan = plan_chain(b.program, {tensor({3})}).value();
  EXPECT_THAT(plan.results, ElementsAre(1, 1));
  EXPECT_THAT(plan.passes[0].results, ElementsAre(1));
}

TEST(ChainPlan, TakesARegisterAgainWhereItsValueIsNotNeededAnyMore) {
  const auto registers = [](bool keeps_first) {
    ProgramBuilder b;
    const size_t first = b.step(Op::Exp, {b.input()});
    size_t last = first;
    for (int i = 0; i < 100; ++i) last = b.step(Op::Mul, {last, last});
    b.program.results = {b.step(Op::Add, {last, keeps_first ? first : last})};
    return plan_chain(b.program, {tensor({3})})->passes[0].loop.registers;
  };
  EXPECT_EQ(registers(false), 1);
  EXPECT_EQ(registers(true), 2);
}

TEST(ChainPlan, HasNoMoreSlotsThanTheKernelsTake) {
  const auto with_constants = [](uint64_t count) {
    ProgramBuilder b;
    size_t sum = b.input();
    for (uint64_t i = 0; i < count; ++i) b.constant(1);
    for (uint64_t i = 0; i < count; ++i) sum = b.step(Op::Add, {sum, 1 + i});
    b.program.results = {sum};
    return plan_chain(b.program, {tensor({3})});
  };
  constexpr uint64_t kOthers = 3;  // the source, the register and the result
  EXPECT_TRUE(with_constants(chain::kMostSlots - kOthers));
  EXPECT_FALSE(with_constants(chain::kMostSlots - kOthers + 1));
}

TEST(ChainPlan, HasNoMoreBuffersThanTheKernelsTake) {
  const auto with_results = [](uint64_t count) {
    ProgramBuilder b;
    const size_t x = b.input();
    for (uint64_t i = 0; i < count; ++i) b.program.results.push_back(b.step(Op::Exp, {x}));
    return plan_chain(b.program, {tensor({3})});
  };
  EXPECT_TRUE(with_results(chain::kMostBuffers - 1));
  EXPECT_FALSE(with_results(chain::kMostBuffers));
}

TEST(ChainPlan, CostsAsMuchAsItsOperatorsUpToALimit) {
  const auto cost = [](Op op, int count) {
    ProgramBuilder b;
    size_t last = b.input();
    for (int i = 0; i < count; ++i) last = b.step(op, {last});
    b.program.results = {last};
    return plan_chain(b.program, {tensor({3})})->passes[0].cost;
  };
  EXPECT_EQ(cost(Op::Neg, 2), 2 * cost(Op::Neg, 1));
  EXPECT_GT(cost(Op::Exp, 1), cost(Op::Neg, 2));
  EXPECT_EQ(cost(Op::Exp, 1000), cost(Op::Exp, 100));
}

TEST(ChainPlan, ReducesInThePass) {
  const ChainPlan plan = plan_of_reduction({3, 4}, {1}).value();
  ASSERT_THAT(plan.passes, SizeIs(1));
  const ChainPlan::Pass& pass = plan.passes[0];
  EXPECT_THAT(pass.results, IsEmpty());
  ASSERT_THAT(pass.reduced, SizeIs(1));
  EXPECT_EQ(pass.reduced[0].sizes, Ints({3}));
  EXPECT_EQ(pass.reduced[0].strides, Ints({1}));
  EXPECT_FALSE(pass.loop.gives_doubles);
  EXPECT_THAT(pass.rests, IsEmpty());
  EXPECT_EQ(pass.items, 3);
  EXPECT_THAT(plan.results, ElementsAre(1));
  EXPECT_EQ(plan.tensors, 2U);
}

TEST(ChainPlan, KeepsReducedDimensionsWhereItIsToldTo) {
  EXPECT_EQ(plan_of_reduction({3, 4}, {-1}, true)->passes[0].reduced[0].sizes, Ints({3, 1}));
  EXPECT_EQ(plan_of_reduction({3, 4}, {0}, true)->passes[0].reduced[0].sizes, Ints({1, 4}));
  EXPECT_EQ(plan_of_reduction({3, 4}, {}, true)->passes[0].reduced[0].sizes, Ints({1, 1}));
  EXPECT_EQ(plan_of_reduction({3, 4}, {})->passes[0].reduced[0].sizes, Ints());
}

TEST(ChainPlan, IsNoneWhereDimensionsDoNotFit) {
  EXPECT_FALSE(plan_of_reduction({3, 4}, {2}));
  EXPECT_FALSE(plan_of_reduction({3, 4}, {-3}));
  EXPECT_FALSE(plan_of_reduction({3, 4}, {1, -1}));
  EXPECT_TRUE(plan_of_reduction({3, 4}, {1, -2}));
  EXPECT_TRUE(plan_of_reduction({}, {0}));
  EXPECT_TRUE(plan_of_reduction({}, {-1}));
  EXPECT_FALSE(plan_of_reduction({}, {1}));
  EXPECT_FALSE(plan_of_reduction({}, {0, -1}));
}

TEST(ChainPlan, LeavesDimensionsThatDoNotLieTogether) {
  const ChainPlan plan = plan_of_reduction({2, 3, 4}, {0, 2}).value();
  const ChainPlan::Pass& pass = plan.passes[0];
  EXPECT_TRUE(pass.loop.gives_doubles);
  EXPECT_EQ(pass.reduced[0].sizes, Ints({2, 3, 1}));
  ASSERT_THAT(pass.rests, SizeIs(1));
  EXPECT_EQ(pass.rests[0].tensor, 1U);
  EXPECT_EQ(pass.rests[0].dims, Ints({0, 2}));
  EXPECT_FALSE(pass.rests[0].has_parts);
  EXPECT_THAT(plan.results, ElementsAre(2));
  EXPECT_EQ(plan.tensors, 3U);
}

TEST(ChainPlan, DividesALargeReductionIntoParts) {
  constexpr int64_t kElements = 1 << 20;
  const ChainPlan plan = plan_of_reduction({kElements}, {0}).value();
  const ChainPlan::Pass& pass = plan.passes[0];
  EXPECT_GT(pass.items, 1);
  EXPECT_EQ(pass.loop.rows.parts(), pass.items);
  EXPECT_EQ(pass.reduced[0].sizes, Ints({1, pass.items}));
  ASSERT_THAT(pass.rests, SizeIs(1));
  EXPECT_TRUE(pass.rests[0].has_parts);
  EXPECT_EQ(pass.rests[0].dims, Ints({0, 1}));
  EXPECT_EQ(plan_of_reduction({kElements / 4, 4}, {1})->passes[0].loop.rows.parts(), 1);
}

TEST(ChainPlan, DividesAMeanByAllThatItReduces) {
  const auto divisors = [](const Ints& dims) {
    ProgramBuilder b;
    const size_t exp = b.step(Op::Exp, {b.input()});
    b.program.results = {b.reduction({.reducer = Reducer::Sum, .is_mean = true, .dims = dims, .value = exp})};
    const ChainPlan plan = plan_chain(b.program, {tensor({2, 3, 4})}).value();
    const ChainPlan::Pass& pass = plan.passes[0];
    return std::pair(pass.loop.reductions[0].divisor, pass.rests.empty() ? 1 : pass.rests[0].divisor);
  };
  EXPECT_EQ(divisors({2}), std::pair(4.0F, 1.0F));
  EXPECT_EQ(divisors({}), std::pair(24.0F, 1.0F));
  EXPECT_EQ(divisors({0, 2}), std::pair(1.0F, 8.0F));
}

TEST(ChainPlan, ReducesOtherDimensionsAfterThePass) {
  ProgramBuilder b;
  const size_t exp = b.step(Op::Exp, {b.input()}), rows = b.sum(exp, {1}), columns = b.sum(exp, {0});
  b.program.results = {columns, rows};
  const ChainPlan plan = plan_chain(b.program, {tensor({3, 4})}).value();
  const ChainPlan::Pass& pass = plan.passes[0];
  EXPECT_THAT(pass.results, ElementsAre(1));  // what is reduced afterwards
  EXPECT_THAT(pass.reduced, SizeIs(1));
  ASSERT_THAT(pass.rests, SizeIs(1));
  EXPECT_EQ(pass.rests[0].tensor, 1U);
  EXPECT_EQ(pass.rests[0].dims, Ints({0}));
  EXPECT_THAT(plan.results, ElementsAre(3, 2));
}

TEST(ChainPlan, ReducesNoMoreInAPassThanTheKernelsTake) {
  ProgramBuilder b;
  const size_t exp = b.step(Op::Exp, {b.input()});
  for (uint64_t i = 0; i <= chain::kMostReductions; ++i) b.program.results.push_back(b.sum(exp, {1}));
  const ChainPlan plan = plan_chain(b.program, {tensor({3, 4})}).value();
  EXPECT_THAT(plan.passes[0].loop.reductions, SizeIs(chain::kMostReductions));
  EXPECT_THAT(plan.passes[0].rests, SizeIs(1));
  EXPECT_EQ(std::set<size_t>(plan.results.begin(), plan.results.end()).size(), plan.results.size());
}

// --- What plans compute ---

c10::intrusive_ptr<Chain> chain_of(const ChainProgram& program) {
  return c10::make_intrusive<Chain>(program, std::make_shared<torch::jit::Graph>());
}

TEST(ChainPlan, IsNotMadeForNoElements) {
  ProgramBuilder b;
  b.program.results = {b.step(Op::Exp, {b.input()})};
  EXPECT_TRUE(chain_of(b.program)->planned({tensor({1})}));
  EXPECT_FALSE(chain_of(b.program)->planned({tensor({0})}));
  EXPECT_FALSE(chain_of(b.program)->planned({tensor({2, 0})}));
}

// Computes one instruction by ATen.
at::Tensor by_aten(const ChainProgram::Instruction& step, const std::vector<at::Tensor>& values) {
  const auto operand = [&](size_t i) { return values[step.operands[i]]; };
  switch (step.op) {
    case Op::Neg:
      return at::neg(operand(0));
    case Op::Add:
      return at::add(operand(0), operand(1));
    case Op::Maximum:
      return at::maximum(operand(0), operand(1));
    case Op::Lt:
      return at::lt(operand(0), operand(1));
    case Op::Where:
      return at::where(operand(0), operand(1), operand(2));
    default:
      ADD_FAILURE() << "no such operator";
      return {};
  }
}

at::Tensor by_aten(const ChainProgram::Reduction& reduction, const std::vector<at::Tensor>& values) {
  const at::Tensor& of = values[reduction.value];
  if (reduction.reducer == Reducer::Maximum) return at::amax(of, reduction.dims, reduction.keepdim);
  if (reduction.reducer == Reducer::Minimum) return at::amin(of, reduction.dims, reduction.keepdim);
  return reduction.is_mean ? at::mean(of, reduction.dims, reduction.keepdim)
                           : at::sum(of, reduction.dims, reduction.keepdim);
}

std::vector<at::Tensor> by_aten(const ChainProgram& program, std::vector<at::Tensor> values) {
  for (const float number : program.constants) values.push_back(at::scalar_tensor(number));
  for (const auto& step : program.instructions) values.push_back(by_aten(step, values));
  for (const auto& reduction : program.reductions) values.push_back(by_aten(reduction, values));
  std::vector<at::Tensor> results;
  for (const size_t value : program.results) results.push_back(values[value]);
  return results;
}

// A random program of numbers and masks, and inputs for it that can be broadcast together.
class RandomProgram {
 public:
  explicit RandomProgram(unsigned seed) : random_(seed) {
    const Ints sizes = {2, 3, 1, number(4, 5)};
    for (int i = number(1, 3); i > 0; --i) {
      inputs.push_back(input(sizes));
      numbers_.push_back(b_.input());
    }
    const size_t constant = b_.constant(3);
    std::set<size_t> unused;
    for (int i = number(1, 12); i > 0; --i) {
      const size_t made = step(constant);
      for (const size_t operand : b_.program.instructions.back().operands) unused.erase(operand);
      unused.insert(made);
    }
    for (int i = number(0, 2); i > 0; --i) reduce(unused);
    auto& results = b_.program.results;
    results.insert(results.end(), unused.begin(), unused.end());
    results.push_back(number(0, 1) == 1 ? results.front() : b_.program.first_instruction());
  }

  const ChainProgram& program() const { return b_.program; }

  std::vector<at::Tensor> inputs;

 private:
  int number(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }
  size_t one_of(const std::vector<size_t>& list) { return list[number(0, static_cast<int>(list.size()) - 1)]; }

  at::Tensor input(Ints sizes) {
    if (number(0, 1) == 1) {
      for (int64_t& size : sizes) size = number(0, 2) == 0 ? 1 : size;
      sizes.erase(sizes.begin(), sizes.begin() + number(0, 4));
    }
    const int64_t count = c10::multiply_integers(sizes);
    const at::Tensor x = at::arange(count, at::kFloat).mul(7).add(number(0, 9)).remainder(17).sub(8).reshape(sizes);
    const int way = number(0, 3);
    return way == 0 ? turned(x) : way == 1 ? with_gaps(x) : x;
  }

  size_t step(size_t constant) {
    const size_t x = one_of(numbers_), y = number(0, 3) == 0 ? constant : one_of(numbers_);
    const int way = number(0, 4);
    if (way == 0 || (way == 1 && masks_.empty())) {
      masks_.push_back(b_.step(Op::Lt, {x, y}, Type::Mask));
      return masks_.back();
    }
    numbers_.push_back(way == 1   ? b_.step(Op::Where, {one_of(masks_), x, y})
                       : way == 2 ? b_.step(Op::Neg, {x})
                       : way == 3 ? b_.step(Op::Maximum, {x, y})
                                  : b_.step(Op::Add, {x, y}));
    return numbers_.back();
  }

  void reduce(std::set<size_t>& unused) {
    const size_t value = numbers_.back();
    if (value < b_.program.first_instruction()) return;
    const int64_t rank = by_aten(with_result(value), inputs)[0].dim();
    Ints dims;
    for (int64_t dim = 0; dim < rank; ++dim) {
      if (number(0, 1) == 1) dims.push_back(number(0, 1) == 1 ? dim : dim - rank);
    }
    const auto reducer = static_cast<Reducer>(number(0, 2));
    const bool is_mean = reducer == Reducer::Sum && number(0, 1) == 1;
    b_.program.results.push_back(b_.reduction(
        {.reducer = reducer, .is_mean = is_mean, .dims = dims, .keepdim = number(0, 1) == 1, .value = value}));
    unused.erase(value);
  }

  ChainProgram with_result(size_t value) const {
    ChainProgram result = b_.program;
    result.results = {value};
    return result;
  }

  std::mt19937 random_;
  ProgramBuilder b_;
  std::vector<size_t> numbers_, masks_;  // values
};

// Gives the same elements in memory of their own, in the same layout.
std::vector<at::Tensor> copies(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& t : tensors) result.push_back(t.is_non_overlapping_and_dense() ? t.clone() : with_gaps(t));
  return result;
}

void expect_same(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].scalar_type(), expected[i].scalar_type()) << "result " << i;
    ASSERT_EQ(found[i].sizes(), expected[i].sizes()) << "result " << i;
    EXPECT_TRUE(at::allclose(found[i].to(at::kDouble), expected[i].to(at::kDouble))) << "result " << i;
  }
}

// The inputs are given away, so that results lie over them wherever the plan allows it.
TEST(ChainPlan, ComputesWhatItsProgramSays) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    const RandomProgram random(seed);
    const auto chain = chain_of(random.program());
    ASSERT_TRUE(plan_chain(random.program(), random.inputs));
    expect_same(chain->run(copies(random.inputs)), by_aten(random.program(), random.inputs));
    if (HasFailure()) return;
  }
}

TEST(ChainPlan, ReducesLargeTensorsToTheSame) {
  const at::Tensor x = at::arange(1 << 19, at::kFloat).remainder(17).sub(8);
  for (const Ints& sizes : std::vector<Ints>{{1 << 19}, {1 << 17, 4}, {4, 1 << 17}, {64, 128, 64}}) {
    for (const bool keepdim : {false, true}) {
      ProgramBuilder b;
      const size_t negated = b.step(Op::Neg, {b.input()});
      for (const Ints& dims : std::vector<Ints>{{}, {0}, {-1}})
        b.program.results.push_back(b.sum(negated, dims, keepdim));
      const std::vector<at::Tensor> inputs = {x.reshape(sizes)};
      expect_same(chain_of(b.program)->run(copies(inputs)), by_aten(b.program, inputs));
      std::ranges::reverse(b.program.reductions);  // so that other dimensions are reduced in the pass
      expect_same(chain_of(b.program)->run(copies(inputs)), by_aten(b.program, inputs));
    }
  }
}

}  // namespace
}  // namespace onnxtorch
