// Tests of the checks in a graph that runs.
#include "runtime/running_graph.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "parsed_graph.h"
#include "runtime/executable.h"

namespace onnxtorch {
namespace {

// A program that says of a result that it has three elements, whatever comes in.
Program program_of_three(Dim size) {
  Program program;
  program.graph = testing::parsed(R"(graph(%x : Float(*)):
    %y : Float(3) = aten::relu(%x)
    %z : Float(*) = aten::neg(%y)
    return (%z))");
  program.graph_inputs = {{GraphInput::Role::Input, 0}};
  program.inputs = {{"x", {}, std::vector<Dim>{std::move(size)}}};
  return program;
}

std::vector<c10::IValue> run(const Executable& executable, int64_t size) {
  return executable.run(std::vector<c10::IValue>{at::ones(size)}, {});
}

TEST(RunningGraph, LooksAtWhatTrialsHaveToldOfSizes) {
  const Executable executable(program_of_three({-1, "N"}));
  EXPECT_EQ(run(executable, 3)[0].toTensor().numel(), 3);
  try {
    run(executable, 2);
    FAIL() << "the wrong size was not seen";
  } catch (const std::exception& failure) {
    EXPECT_TRUE(has_other_sizes(failure)) << failure.what();
  }
}

TEST(RunningGraph, TakesSizesForTrueOnceItIsTold) {
  const Executable executable(program_of_three({-1, "N"}));
  executable.trust_sizes();
  EXPECT_EQ(run(executable, 2)[0].toTensor().numel(), 2);
}

TEST(RunningGraph, DoesNotLookWhereAllSizesAreFixed) {
  const Program program = program_of_three({2, ""});
  EXPECT_EQ(running_graph(program), program.graph);
}

}  // namespace
}  // namespace onnxtorch
