#include "onnx_torch/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace onnxtorch {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;

const std::string kEndless(1'000'000, 'n');

std::string text_of(const Error& error) { return error.what(); }

TEST(Error, NamesItsNode) {
  EXPECT_EQ(text_of(Error("no such operator", {"Frob", "frob_1", "my", 3})),
            "my.Frob \"frob_1\" (opset 3): no such operator");
  EXPECT_EQ(text_of(InputError("x is missing")), "x is missing");
}

TEST(Error, HasATextWithAnEndWhateverNamesAModelHas) {
  const RunError error("sizes do not fit", {"Add", kEndless, "", 21});
  EXPECT_THAT(text_of(error), testing::AllOf(StartsWith("Add \"nnn"), HasSubstr("…"), EndsWith("sizes do not fit")));
  EXPECT_THAT(text_of(error), SizeIs(testing::Lt(1000)));
  EXPECT_EQ(error.node().name, kEndless);  // the whole name
  EXPECT_THAT(text_of(InvalidModelError("nothing defines \"" + kEndless + "\"")), SizeIs(testing::Lt(1000)));
  EXPECT_THAT(text_of(UnsupportedError(kEndless)), SizeIs(testing::Lt(1000)));
}

TEST(Error, StaysAsItIsWhereItIsThrownAgain) {
  const Error first("nothing defines \"" + kEndless + "\"", {"Add", kEndless, "", 21});
  EXPECT_EQ(text_of(Error(first.what())), text_of(first));
}

TEST(Error, KeepsAListOfManyLines) {
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += "\n  Frob (opset 21): no such operator";
  EXPECT_EQ(text_of(UnsupportedError(lines)), lines);
}

}  // namespace
}  // namespace onnxtorch
