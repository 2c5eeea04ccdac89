// Weights in the layouts of kernels of our own: when one is laid out, dropped, restored and taken from another.
#include "kernels/cpu/packed/held_weight.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace onnxtorch {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

at::Tensor some_weight() { return at::arange(19 * 33).to(at::kFloat).reshape({19, 33}); }

void expect_alike(const at::Tensor& found, const at::Tensor& expected) {
  EXPECT_EQ(found.strides(), expected.strides());
  EXPECT_TRUE(found.equal(expected));
}

bool same_memory(const at::Tensor& a, const at::Tensor& b) { return a.const_data_ptr() == b.const_data_ptr(); }

// A layout in which the bytes of the transposed weight lie; it counts how often a weight is laid out.
HeldWeight::Layout transposed(const at::Tensor& weight, int& laid_out, bool is_sound = true) {
  return {.name = "transposed",
          .lay =
              [&laid_out](const at::Tensor& plain) {
                ++laid_out;
                return plain.t().contiguous().view(at::kByte);
              },
          .restore = [type = weight.scalar_type()](const at::Tensor& bytes) { return bytes.view(type).t(); },
          .sound = [is_sound](const at::Tensor&) { return is_sound; }};
}

TEST(HeldWeight, LiesInOneLayout) {
  const at::Tensor weight = some_weight();
  const HeldWeight laid(weight);
  int count = 0;
  const at::Tensor bytes = laid.get(transposed(weight, count));
  EXPECT_TRUE(bytes.view(at::kFloat).equal(weight.t()));
  EXPECT_TRUE(same_memory(laid.get(transposed(weight, count)), bytes));
  EXPECT_EQ(count, 1);
  EXPECT_EQ(weight.use_count(), 1U);
  expect_alike(laid.plain(), weight);
}

TEST(HeldWeight, TakesALayoutThatIsSound) {
  const at::Tensor weight = some_weight();
  const HeldWeight other(weight, "out"), laid(weight, "out"), distrusted(weight, "out"), stranger(weight, "in");
  int count = 0;
  const at::Tensor bytes = other.get(transposed(weight, count));
  ASSERT_THAT(other.saved(), SizeIs(1));
  EXPECT_EQ(other.saved()[0].layout, "out:transposed");
  for (const HeldWeight* const each : {&laid, &distrusted, &stranger}) each->take(other.saved());
  EXPECT_TRUE(same_memory(laid.get(transposed(weight, count)), bytes));
  expect_alike(laid.plain(), weight);
  EXPECT_EQ(count, 1);
  EXPECT_FALSE(same_memory(distrusted.get(transposed(weight, count, /*is_sound=*/false)), bytes));
  EXPECT_EQ(count, 2);
  EXPECT_FALSE(same_memory(stranger.get(transposed(weight, count)), bytes));
  EXPECT_EQ(count, 3);
}

TEST(HeldWeight, HasAFormWithoutMemory) {
  const at::Tensor weight = some_weight().t();
  const HeldWeight held(weight);
  EXPECT_TRUE(held.form().is_meta());
  EXPECT_EQ(held.form().strides(), weight.strides());
  EXPECT_TRUE(same_memory(held.plain(), weight));
  EXPECT_THAT(held.saved(), IsEmpty());
}

TEST(HeldWeight, IsMadeEachTimeUntilItIsLaidOut) {
  const at::Tensor weight = some_weight();
  int made = 0, laid_out = 0;
  const HeldWeight held(form_of(weight), [&] {
    ++made;
    return weight;
  });
  held.plain();
  EXPECT_EQ(made, 1);
  held.get(transposed(weight, laid_out));
  EXPECT_EQ(made, 2);
  expect_alike(held.plain(), weight);
  EXPECT_EQ(made, 2);
}

// Kernels read vectors from them.
TEST(HeldWeight, TakesNoBytesThatAreNotAligned) {
  const at::Tensor weight = some_weight();
  int laid_out = 0;
  const at::Tensor bytes = HeldWeight(weight).get(transposed(weight, laid_out));
  for (const int64_t begin : {1, 32, 64}) {
    const at::Tensor moved = at::empty({bytes.numel() + begin}, at::kByte).slice(0, begin);
    moved.copy_(bytes.flatten());
    const HeldWeight held(weight);
    held.take({{"weight:transposed", moved}});
    EXPECT_EQ(same_memory(held.get(transposed(weight, laid_out)), moved), begin == 64);
  }
}

}  // namespace
}  // namespace onnxtorch
