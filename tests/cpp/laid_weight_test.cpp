// Weights in the layouts of primitives: when one is shared, made anew, dropped and restored.
#include "kernels/cpu/onednn/laid_weight.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace onnxtorch::onednn {
namespace {

using Desc = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;
using Ints = std::vector<int64_t>;
using testing::IsEmpty;
using testing::SizeIs;

// Gives numbers that all types of weights have.
at::Tensor numbers(const Ints& sizes, c10::ScalarType type = at::kFloat) {
  return at::arange(c10::multiply_integers(sizes)).mul(7).remainder(251).sub(125).to(type).reshape(sizes);
}

Desc desc_of(const at::Tensor& t) { return {t.sizes().vec(), named(t.scalar_type()), t.strides().vec()}; }

Desc blocked(const at::Tensor& t, Tag tag) { return {t.sizes().vec(), named(t.scalar_type()), tag}; }

// Describes a weight as who does not hold it does.
dnnl::memory form(const at::Tensor& t) { return borrowed(desc_of(t), form_of(t)); }

// Gives the elements of a laid out weight as a tensor like another.
at::Tensor elements(const Laid& laid, const at::Tensor& like) {
  at::Tensor result = at::empty_strided(like.sizes(), like.strides(), like.options());
  reorder(laid.memory, borrowed(desc_of(result), result));
  return result;
}

void expect_alike(const at::Tensor& found, const at::Tensor& expected) {
  EXPECT_EQ(found.scalar_type(), expected.scalar_type());
  EXPECT_EQ(found.strides(), expected.strides());
  EXPECT_TRUE(found.equal(expected));
}

bool same_memory(const at::Tensor& a, const at::Tensor& b) { return a.const_data_ptr() == b.const_data_ptr(); }

TEST(LaidWeight, IsSharedByThoseThatWantTheSameLayout) {
  const at::Tensor weight = numbers({19, 33});
  const LaidWeight laid(weight);
  const Laid first = laid.get(form(weight), blocked(weight, Tag::AB16b16a));
  const Laid again = laid.get(form(weight), blocked(weight, Tag::AB16b16a));
  EXPECT_TRUE(same_memory(first.bytes, again.bytes));
  EXPECT_EQ(first.memory.get_data_handle(), first.bytes.data_ptr());
  EXPECT_TRUE(elements(first, weight).equal(weight));
  EXPECT_THAT(laid.saved(), SizeIs(1));
}

TEST(LaidWeight, IsKeptInEachLayout) {
  const at::Tensor weight = numbers({19, 33});
  const LaidWeight laid(weight);
  EXPECT_TRUE(laid.first().is_zero());
  const Laid one = laid.get(form(weight), blocked(weight, Tag::AB16b16a));
  const Laid other = laid.get(form(weight), blocked(weight, Tag::BA16a64b));
  EXPECT_FALSE(same_memory(one.bytes, other.bytes));
  EXPECT_TRUE(elements(other, weight).equal(weight));
  EXPECT_TRUE(same_memory(laid.get(form(weight), blocked(weight, Tag::AB16b16a)).bytes, one.bytes));
  EXPECT_TRUE(same_memory(laid.get(form(weight), blocked(weight, Tag::BA16a64b)).bytes, other.bytes));
  EXPECT_EQ(laid.first(), blocked(weight, Tag::AB16b16a));
}

TEST(LaidWeight, LiesInItsOwnMemoryWhereThatIsTheLayout) {
  const at::Tensor weight = numbers({19, 33}).t();
  const LaidWeight laid(weight);
  const Laid own = laid.get(form(weight), desc_of(weight));
  EXPECT_TRUE(same_memory(own.bytes, weight));
  EXPECT_EQ(own.bytes.nbytes(), weight.nbytes());
  laid.get(form(weight), blocked(weight, Tag::AB16b16a));
  EXPECT_TRUE(same_memory(laid.plain(), weight));
}

// The memory of what is laid out in another layout is not needed twice.
TEST(LaidWeight, IsDroppedAsItCameOnceItIsLaidOut) {
  for (const c10::ScalarType type : {at::kFloat, at::kChar}) {
    for (const Ints& sizes : std::vector<Ints>{{1, 1}, {16, 16}, {19, 33}, {130, 7}}) {
      for (const bool is_turned : {false, true}) {
        const at::Tensor weight = is_turned ? numbers(sizes, type).t() : numbers(sizes, type);
        const LaidWeight laid(weight);
        EXPECT_EQ(weight.use_count(), 2U);
        EXPECT_TRUE(same_memory(laid.plain(), weight));
        const Laid blocks = laid.get(form(weight), blocked(weight, Tag::BA16a16b2a));
        EXPECT_EQ(weight.use_count(), 1U);
        EXPECT_TRUE(elements(blocks, weight).equal(weight));
        expect_alike(laid.plain(), weight);
        EXPECT_TRUE(elements(laid.get(form(weight), blocked(weight, Tag::AB16b16a)), weight).equal(weight));
      }
    }
  }
}

TEST(LaidWeight, OfAConvolutionIsRestored) {
  for (const c10::ScalarType type : {at::kFloat, at::kChar}) {
    for (const at::Tensor& weight :
         {numbers({19, 5, 3, 2}, type), numbers({19, 3, 2, 5}, type).permute({0, 3, 1, 2})}) {
      const LaidWeight laid(weight);
      laid.get(form(weight), blocked(weight, Tag::ABcd8a16b2a));
      EXPECT_EQ(weight.use_count(), 1U);
      expect_alike(laid.plain(), weight);
    }
  }
}

TEST(LaidWeight, IsRestoredAsItCameHoweverItIsDescribed) {
  for (const c10::ScalarType type : {at::kFloat, at::kChar}) {
    const at::Tensor weight = numbers({6, 19, 33}, type), described = weight.view({2, 3, 19, 33}).transpose(2, 3);
    const LaidWeight laid(weight);
    EXPECT_TRUE(elements(laid.get(form(described), blocked(described, Tag::ABcd8b8a)), described).equal(described));
    EXPECT_EQ(weight.use_count(), 1U);
    expect_alike(laid.plain(), weight);
  }
}

// oneDNN may lay sums of the weight behind it.
TEST(LaidWeight, OfBytesIsRestoredFromTheLayoutThatThisCpuWants) {
  constexpr int64_t kIn = 37, kOut = 70;
  using Type = dnnl::memory::data_type;
  for (const Type source : {Type::s8, Type::u8}) {
    const dnnl::matmul::primitive_desc wanted(engine(), {{5, kIn}, source, Tag::ab}, {{kIn, kOut}, Type::s8, Tag::any},
                                              {{5, kOut}, Type::f32, Tag::ab});
    const at::Tensor weight = numbers({kIn, kOut}, at::kChar);
    const LaidWeight laid(weight);
    laid.get(form(weight), wanted.weights_desc());
    expect_alike(laid.plain(), weight);
  }
}

TEST(LaidWeight, StaysAsItCameWhereALayoutHasAnotherType) {
  const at::Tensor weight = numbers({19, 33}).div(2);
  const LaidWeight laid(weight);
  laid.get(form(weight), Desc({19, 33}, named(at::kChar), Tag::AB16b16a));
  EXPECT_TRUE(same_memory(laid.plain(), weight));
}

TEST(LaidWeight, IsCopiedWhereItHasGaps) {
  const at::Tensor weight = numbers({19, 40}).narrow(1, 3, 33), dense = weight.contiguous();
  const LaidWeight laid(weight);
  EXPECT_EQ(laid.form().sizes(), dense.sizes());
  EXPECT_EQ(laid.form().strides(), dense.strides());
  expect_alike(laid.plain(), dense);
  laid.get(form(dense), blocked(dense, Tag::AB16b16a));
  expect_alike(laid.plain(), dense);
}

TEST(LaidWeight, HasAFormWithoutMemory) {
  const at::Tensor weight = numbers({19, 33}).t(), without = form_of(weight);
  EXPECT_TRUE(without.is_meta());
  EXPECT_EQ(without.sizes(), weight.sizes());
  EXPECT_EQ(without.strides(), weight.strides());
  EXPECT_EQ(without.scalar_type(), weight.scalar_type());
  EXPECT_EQ(form(weight).get_data_handle(), nullptr);
}

TEST(LaidWeight, IsMadeEachTimeUntilItIsLaidOut) {
  const at::Tensor weight = numbers({19, 33});
  int made = 0;
  const LaidWeight laid(form_of(weight), [&] {
    ++made;
    return weight;
  });
  EXPECT_EQ(made, 0);
  laid.plain();
  laid.plain();
  EXPECT_EQ(made, 2);
  laid.get(form(weight), blocked(weight, Tag::AB16b16a));
  EXPECT_EQ(made, 3);
  expect_alike(laid.plain(), weight);
  laid.get(form(weight), blocked(weight, Tag::BA16a64b));
  EXPECT_EQ(made, 3);
}

TEST(LaidWeight, IsTakenFromWhoHoldsIt) {
  const at::Tensor weight = numbers({19, 33});
  const LaidWeight laid;
  const Laid blocks = laid.get(borrowed(desc_of(weight), weight), blocked(weight, Tag::AB16b16a));
  EXPECT_EQ(weight.use_count(), 1U);
  EXPECT_TRUE(elements(blocks, weight).equal(weight));
  EXPECT_FALSE(same_memory(laid.get(borrowed(desc_of(weight), weight), desc_of(weight)).bytes, weight));
}

// --- Weights that another object has laid out ---

// A weight that must not be asked for: what another has laid out stands for it.
LaidWeight never_made(const at::Tensor& weight) {
  return LaidWeight(form_of(weight), [form = form_of(weight)] {
    ADD_FAILURE() << "the weight is made";
    return at::zeros_like(form, at::kCPU);
  });
}

TEST(LaidWeight, TakesWhatAnotherHasLaidOut) {
  for (const c10::ScalarType type : {at::kFloat, at::kChar}) {
    const at::Tensor weight = numbers({19, 33}, type);
    const LaidWeight other(weight), laid = never_made(weight);
    const Laid blocks = other.get(form(weight), blocked(weight, Tag::BA16a16b2a));
    laid.take(other.saved());
    EXPECT_THAT(laid.saved(), IsEmpty());
    EXPECT_TRUE(same_memory(laid.get(form(weight), blocked(weight, Tag::BA16a16b2a)).bytes, blocks.bytes));
    EXPECT_THAT(laid.saved(), SizeIs(1));
    expect_alike(laid.plain(), weight);
  }
}

TEST(LaidWeight, TakesEachLayoutThatAnotherHas) {
  const at::Tensor weight = numbers({19, 33});
  const LaidWeight other(weight), laid = never_made(weight);
  const Laid one = other.get(form(weight), blocked(weight, Tag::AB16b16a));
  const Laid two = other.get(form(weight), blocked(weight, Tag::BA16a64b));
  laid.take(other.saved());
  EXPECT_TRUE(same_memory(laid.get(form(weight), blocked(weight, Tag::BA16a64b)).bytes, two.bytes));
  EXPECT_TRUE(same_memory(laid.get(form(weight), blocked(weight, Tag::AB16b16a)).bytes, one.bytes));
}

// Tells whether a weight takes what is saved of it for the wanted layout, or is laid out itself, as it must be either
// way.
bool is_taken(const at::Tensor& weight, const std::vector<SavedWeights>& saved, const Desc& wanted,
              const std::string& name = "weight") {
  const LaidWeight laid(weight, name);
  laid.take(saved);
  const Laid found = laid.get(form(weight), wanted);
  EXPECT_TRUE(elements(found, weight).equal(weight));
  return same_memory(found.bytes, saved.at(0).bytes);
}

TEST(LaidWeight, TakesNothingThatIsNotItsOwnInTheWantedLayout) {
  const at::Tensor weight = numbers({19, 33});
  const Desc wanted = blocked(weight, Tag::AB16b16a);
  const LaidWeight other(weight);
  const Laid blocks = other.get(form(weight), wanted);
  const std::vector<SavedWeights> saved = other.saved();
  EXPECT_TRUE(is_taken(weight, saved, wanted));
  EXPECT_FALSE(is_taken(weight, saved, wanted, "recurrent weight"));
  EXPECT_FALSE(is_taken(weight, saved, blocked(weight, Tag::AB16b32a)));
  EXPECT_FALSE(is_taken(numbers({20, 33}), saved, blocked(numbers({20, 33}), Tag::AB16b16a)));
  const int64_t bytes = blocks.bytes.numel();
  EXPECT_FALSE(is_taken(weight, {{saved[0].layout, blocks.bytes.narrow(0, 0, bytes - 64)}}, wanted));
}

TEST(LaidWeight, TellsLayoutsApartByTheirStrides) {
  const at::Tensor weight = numbers({5, 5, 5});
  const LaidWeight other(weight);
  other.get(form(weight), blocked(weight, Tag::bac));
  EXPECT_TRUE(is_taken(weight, other.saved(), blocked(weight, Tag::bac)));
  EXPECT_FALSE(is_taken(weight, other.saved(), blocked(weight, Tag::cba)));
}

TEST(LaidWeight, ForgetsWhatItHasTakenBefore) {
  const at::Tensor weight = numbers({19, 33});
  const LaidWeight other(weight), laid(weight);
  const Laid blocks = other.get(form(weight), blocked(weight, Tag::AB16b16a));
  laid.take(other.saved());
  laid.take({});
  EXPECT_FALSE(same_memory(laid.get(form(weight), blocked(weight, Tag::AB16b16a)).bytes, blocks.bytes));
}

// --- Layouts of kernels of our own ---

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

TEST(LaidWeight, IsLaidOutFromALayoutOfOurOwn) {
  const at::Tensor weight = numbers({19, 33});
  const LaidWeight laid(weight);
  int count = 0;
  const at::Tensor bytes = laid.get(transposed(weight, count));
  EXPECT_TRUE(elements(laid.get(form(weight), blocked(weight, Tag::AB16b16a)), weight).equal(weight));
  expect_alike(laid.plain(), weight);
  EXPECT_TRUE(same_memory(laid.get(transposed(weight, count)), bytes));
  EXPECT_EQ(count, 1);
  EXPECT_THAT(laid.saved(), SizeIs(2));
}

TEST(LaidWeight, IsLaidOutForOurOwnKernelsFromALayoutOfOneDnn) {
  const at::Tensor weight = numbers({19, 33});
  const LaidWeight laid(weight);
  int count = 0;
  laid.get(form(weight), blocked(weight, Tag::AB16b16a));
  EXPECT_TRUE(laid.get(transposed(weight, count)).view(at::kFloat).equal(weight.t()));
  expect_alike(laid.plain(), weight);
}

}  // namespace
}  // namespace onnxtorch::onednn
