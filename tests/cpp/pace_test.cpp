#include "runtime/pace.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/irparser.h>

#include <string>

namespace onnxtorch {
namespace {

constexpr double kTenMegabytes = 1e7;

// Gives a program of so many ONNX nodes.
Program program(const std::string& ir, size_t nodes) {
  Program result;
  result.graph = std::make_shared<torch::jit::Graph>();
  torch::jit::parseIR(ir, result.graph.get());
  result.nodes.resize(nodes);
  return result;
}

TEST(Pace, OfAProductMayBeLong) {
  Pace pace;
  pace.expect(program("graph(%0 : Tensor):\n  %1 : Tensor = aten::mm(%0, %0)\n  return (%1)", 1));
  EXPECT_TRUE(pace.may_take_long(kTenMegabytes));
  EXPECT_FALSE(pace.may_take_long(1e5));
}

TEST(Pace, OfFewElementwiseNodesIsNotLong) {
  Pace pace;
  const std::string ir = "graph(%0 : Tensor):\n  %1 : Tensor = aten::relu(%0)\n  return (%1)";
  pace.expect(program(ir, 1));
  EXPECT_FALSE(pace.may_take_long(kTenMegabytes));
  EXPECT_FALSE(pace.may_take_long(1e8));
  pace.expect(program(ir, 100));  // a chain may stand for many
  EXPECT_TRUE(pace.may_take_long(kTenMegabytes));
}

TEST(Pace, OfOperandsThatMayBeBroadcastMayBeLong) {
  Pace pace;
  pace.expect(program("graph(%0 : Tensor, %1 : Tensor):\n  %2 : Tensor = aten::mul(%0, %1)\n  return (%2)", 1));
  EXPECT_TRUE(pace.may_take_long(kTenMegabytes));
}

TEST(Pace, IsThatOfTheLastRun) {
  Pace pace;
  pace.note(1e6, 1.0);
  EXPECT_TRUE(pace.may_take_long(1e6));
  EXPECT_FALSE(pace.may_take_long(1e9)) << "a copy of so much may not fit";
  pace.note(1e6, 1e-3);
  EXPECT_FALSE(pace.may_take_long(1e7));
}

}  // namespace
}  // namespace onnxtorch
