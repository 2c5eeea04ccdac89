// Reshapes and permutations as movements of atoms.
#include "graph/movement.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

namespace onnxtorch {
namespace {

using Ints = std::vector<int64_t>;
using MaybeInts = std::optional<Ints>;

constexpr int64_t kOpen = kUnknownSize;

Movement of(const Ints& sizes) { return Movement::none(sizes).value(); }

// Gives what is reached by one reshape after another.
Movement reshaped(Movement movement, const std::vector<Ints>& steps) {
  for (const Ints& sizes : steps) movement = movement.reshaped(sizes).value();
  return movement;
}

void expect_steps(const Movement& movement, const MaybeInts& first, const MaybeInts& permutation,
                  const MaybeInts& last) {
  const auto steps = movement.steps();
  ASSERT_TRUE(steps);
  EXPECT_EQ(steps->first, first);
  EXPECT_EQ(steps->permutation, permutation);
  EXPECT_EQ(steps->last, last);
}

TEST(Movement, OfNothingHasNoSteps) {
  for (const Ints& sizes : std::vector<Ints>{{}, {1}, {5}, {1, 1}, {2, 3, 1}, {kOpen}, {kOpen, 4}, {kOpen, kOpen}}) {
    const Movement movement = of(sizes);
    EXPECT_EQ(movement.from_sizes(), sizes);
    EXPECT_EQ(movement.to_sizes(), sizes);
    EXPECT_TRUE(movement.keeps_order());
    ASSERT_TRUE(movement.steps());
    EXPECT_EQ(movement.steps()->count(), 0U);
  }
}

TEST(Movement, IsUnknownWhereASizeIs0) {
  EXPECT_FALSE(Movement::none({0}));
  EXPECT_FALSE(Movement::none({2, 0, kOpen}));
  EXPECT_FALSE(of({2, 3}).reshaped({0, 6}));
  EXPECT_FALSE(of({kOpen, 3}).reshaped({0, kOpen}));
}

TEST(Movement, PermutesDimensions) {
  const Movement movement = of({2, 3, 5}).permuted({2, 0, 1}).value();
  EXPECT_EQ(movement.from_sizes(), Ints({2, 3, 5}));
  EXPECT_EQ(movement.to_sizes(), Ints({5, 2, 3}));
  EXPECT_FALSE(movement.keeps_order());
  expect_steps(movement, {}, Ints{2, 0, 1}, {});
}

TEST(Movement, PermutesDimensionsThatCountFromTheEnd) {
  EXPECT_EQ(of({2, 3, 5}).permuted({-1, 0, -2}), of({2, 3, 5}).permuted({2, 0, 1}));
}

TEST(Movement, RefusesWhatIsNoPermutation) {
  for (const Ints& dims : std::vector<Ints>{{}, {0, 1}, {0, 0, 1}, {0, 1, 3}, {0, 1, -4}, {0, 1, 2, 2}, {0, -3, 1}})
    EXPECT_FALSE(of({2, 3, 5}).permuted(dims)) << c10::IntArrayRef(dims);
  EXPECT_FALSE(of({}).permuted({0}));
}

TEST(Movement, OfAScalarIsReshapedToOnes) {
  EXPECT_EQ(of({}).permuted(Ints()), of({}));
  expect_steps(of({}).reshaped({1, 1}).value(), {}, {}, Ints{1, 1});
  expect_steps(of({1}).reshaped(Ints()).value(), {}, {}, Ints{});
  EXPECT_FALSE(of({}).reshaped({2}));
  EXPECT_FALSE(of({2}).reshaped(Ints()));
}

TEST(Movement, JoinsAndPartsDimensions) {
  expect_steps(reshaped(of({2, 3, 4}), {{6, 4}, {24}}), {}, {}, Ints{24});
  expect_steps(reshaped(of({24}), {{6, 4}, {2, 3, 4}}), {}, {}, Ints{2, 3, 4});
  EXPECT_TRUE(reshaped(of({24}), {{6, 4}, {2, 3, 4}}).keeps_order());
}

TEST(Movement, RefusesSizesThatDoNotHoldItsAtoms) {
  for (const Ints& sizes :
       std::vector<Ints>{{5}, {12}, {3}, {3, 2}, {2, 3, 2}, {2}, {kOpen}, {kOpen, 3}, {kOpen, kOpen}})
    EXPECT_FALSE(of({2, 3}).reshaped(sizes)) << c10::IntArrayRef(sizes);
  EXPECT_TRUE(of({6}).reshaped({3, 2}));
  EXPECT_FALSE(of({6}).reshaped({2, 3})->reshaped({3, 2}));
}

TEST(Movement, DimensionsOfSize1ComeAndGo) {
  const Movement moved = of({2, 1, 3}).permuted({1, 0, 2}).value();
  EXPECT_TRUE(moved.keeps_order());
  expect_steps(moved, {}, {}, Ints{1, 2, 3});
  EXPECT_EQ(moved.reshaped({2, 1, 3}), of({2, 1, 3}));
  EXPECT_EQ(reshaped(of({2, 3}), {{1, 2, 1, 3, 1}, {2, 3}}), of({2, 3}));
  EXPECT_FALSE(moved == of({2, 1, 3}));
}

TEST(Movement, DimensionsOfSize1GoWhereAPermutationWantsThem) {
  expect_steps(of({2, 1, 3}).permuted({2, 1, 0}).value(), {}, Ints{2, 1, 0}, {});
  expect_steps(of({1, 2, 3}).permuted({2, 1, 0}).value(), {}, Ints{2, 1, 0}, {});
  EXPECT_EQ(of({1, 2, 1, 3}).permuted({3, 0, 1, 2})->to_sizes(), Ints({3, 1, 2, 1}));
}

TEST(Movement, TwoPermutationsAreOne) {
  const Movement once = of({2, 3, 4, 5}).permuted({0, 2, 3, 1}).value();
  expect_steps(once.permuted({3, 0, 1, 2}).value(), {}, Ints{1, 0, 2, 3}, {});
  EXPECT_EQ(once.permuted({0, 3, 1, 2}), of({2, 3, 4, 5}));
}

TEST(Movement, ReshapesAroundAPermutationMayBeAPermutation) {
  const Movement movement = of({2, 3, 4}).reshaped({2, 12})->permuted({1, 0})->reshaped({3, 4, 2}).value();
  EXPECT_EQ(movement, of({2, 3, 4}).permuted({1, 2, 0}));
  expect_steps(movement, {}, Ints{1, 2, 0}, {});
}

TEST(Movement, PermutesWholeDimensionsBeforeItReshapes) {
  expect_steps(of({6, 5}).reshaped({2, 3, 5})->permuted({2, 0, 1}).value(), {}, Ints{1, 0}, Ints{5, 2, 3});
  expect_steps(of({2, 3, 4}).permuted({2, 0, 1})->reshaped({4, 6}).value(), {}, Ints{2, 0, 1}, Ints{4, 6});
}

TEST(Movement, ReshapesBeforeItPermutesPartsOfDimensions) {
  expect_steps(of({6, 5}).reshaped({2, 3, 5})->permuted({1, 2, 0}).value(), Ints{2, 3, 5}, Ints{1, 2, 0}, {});
}

TEST(Movement, ShufflesChannelsInThreeSteps) {
  const Movement movement = of({2, 12, 5}).reshaped({2, 3, 4, 5})->permuted({0, 2, 1, 3})->reshaped({2, 12, 5}).value();
  expect_steps(movement, Ints{2, 3, 4, 5}, Ints{0, 2, 1, 3}, Ints{2, 12, 5});
  EXPECT_EQ(movement.reshaped({2, 4, 3, 5})->permuted({0, 2, 1, 3})->reshaped({2, 12, 5}), of({2, 12, 5}));
}

TEST(Movement, KnowsWhichDimensionsAreStillThere) {
  const Movement movement = of({2, 3, 4, 5}).permuted({3, 1, 0, 2})->reshaped({5, 1, 3, 8}).value();
  EXPECT_EQ(movement.origin(0), 3U);
  EXPECT_EQ(movement.origin(1), std::nullopt);
  EXPECT_EQ(movement.origin(2), 1U);
  EXPECT_EQ(movement.origin(3), std::nullopt);
  EXPECT_EQ(of({6, 1}).reshaped({2, 3, 1})->origin(0), std::nullopt);
  EXPECT_EQ(of({6, 1}).reshaped({2, 3, 1})->origin(2), std::nullopt);
}

TEST(Movement, HasOpenSizes) {
  const Movement joined = of({kOpen, 3, 4}).reshaped({kOpen, 4}).value();
  EXPECT_EQ(joined.to_sizes(), Ints({kOpen, 4}));
  EXPECT_EQ(joined.origin(0), std::nullopt);
  EXPECT_EQ(joined.origin(1), 2U);
  EXPECT_EQ(joined.reshaped({kOpen, 3, 4}), of({kOpen, 3, 4}));
  expect_steps(of({2, kOpen}).permuted({1, 0})->reshaped({kOpen}).value(), {}, Ints{1, 0}, Ints{kOpen});
}

TEST(Movement, AnOpenSizeTakesWhatIsLeft) {
  const Movement taken = of({kOpen, 4}).reshaped({kOpen, 2}).value();
  EXPECT_EQ(taken.to_sizes(), Ints({kOpen, 2}));
  EXPECT_EQ(taken.origin(0), std::nullopt);
  EXPECT_EQ(taken.reshaped({kOpen, 4}), of({kOpen, 4}));
  EXPECT_EQ(of({4, kOpen}).reshaped({2, kOpen})->reshaped({2, 2, kOpen})->origin(2), 1U);
}

TEST(Movement, RefusesToPartAnOpenSize) {
  for (const Ints& sizes : std::vector<Ints>{{kOpen, 2, 4}, {kOpen, 8}, {kOpen, 3}, {4, kOpen}, {8}, {2, 2}, {1, 4}})
    EXPECT_FALSE(of({kOpen, 4}).reshaped(sizes)) << c10::IntArrayRef(sizes);
  EXPECT_FALSE(of({2, kOpen}).reshaped({kOpen, 2}));
  EXPECT_FALSE(of({4}).reshaped({kOpen}));
}

TEST(Movement, OfTwoOpenSizesIsAPermutationOnly) {
  const Movement movement = of({kOpen, 3, kOpen}).permuted({2, 0, 1}).value();
  EXPECT_EQ(movement.to_sizes(), Ints({kOpen, kOpen, 3}));
  expect_steps(movement, {}, Ints{2, 0, 1}, {});
  EXPECT_FALSE(of({kOpen, 3, kOpen}).reshaped({kOpen, 3, kOpen}));
  EXPECT_FALSE(of({kOpen, kOpen}).reshaped({kOpen}));
}

TEST(Movement, HasNoStepsWhereAReshapeWouldHaveToFindTwoSizes) {
  EXPECT_FALSE(of({kOpen, 1, kOpen}).permuted({1, 0, 2})->steps());
  EXPECT_TRUE(of({kOpen, 1, 4}).permuted({1, 0, 2})->steps());
}

TEST(Movement, EqualsAnotherOfTheSameSizesAndOrderAlone) {
  EXPECT_EQ(of({2, 3}), of({2, 3}));
  EXPECT_FALSE(of({2, 3}) == of({3, 2}));
  EXPECT_FALSE(of({2, 3}) == of({6}));
  EXPECT_FALSE(of({6}).reshaped({2, 3}) == of({2, 3}));
  EXPECT_FALSE(of({2, 2}).permuted({1, 0}) == of({2, 2}));
  EXPECT_FALSE(of({kOpen, 2}) == of({3, 2}));
}

at::Tensor moved(at::Tensor x, const Movement::Steps& steps) {
  if (steps.first) x = x.reshape(*steps.first);
  if (steps.permutation) x = x.permute(*steps.permutation);
  if (steps.last) x = x.reshape(*steps.last);
  return x;
}

// A random movement of a tensor, of which one size may be open, and what undoes it.
class RandomMovement {
 public:
  explicit RandomMovement(unsigned seed) : random_(seed) {
    for (int i = number(0, 4); i > 0; --i) sizes_.push_back(number(1, 4) * number(1, 2));
    x = y = at::arange(c10::multiply_integers(sizes_)).reshape(sizes_);
    Ints open = sizes_;
    if (!open.empty() && number(0, 1) == 1) {
      const int dim = number(0, static_cast<int>(open.size()) - 1);
      if (open[dim] > 1) open[dim] = kOpen;
    }
    movement = before = of(open);
  }

  void step() { number(0, 1) == 1 ? permute() : reshape(); }

  // Gives the movement followed by the opposite of each of its steps.
  std::optional<Movement> undone() const {
    std::optional<Movement> result = movement;
    for (auto step = undo_.rbegin(); step != undo_.rend() && result; ++step)
      result = step->is_permutation ? result->permuted(step->numbers) : result->reshaped(step->numbers);
    return result;
  }

  size_t count() const { return undo_.size(); }

  at::Tensor x, y;  // the tensor before and after
  Movement before, movement;

 private:
  struct Undo {
    bool is_permutation;
    Ints numbers;
  };

  int number(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }

  void permute() {
    Ints dims(movement.to_sizes().size()), back(dims.size());
    std::iota(dims.begin(), dims.end(), 0);
    std::ranges::shuffle(dims, random_);
    for (size_t i = 0; i < dims.size(); ++i) back[dims[i]] = static_cast<int64_t>(i);
    movement = movement.permuted(dims).value();
    y = y.permute(dims);
    undo_.push_back({true, back});
  }

  // Joins two dimensions, parts one, or adds one of size 1.
  void reshape() {
    const Ints old = movement.to_sizes();
    Ints sizes = old;
    const auto dim = sizes.begin() + number(0, static_cast<int>(sizes.size()));
    if (dim == sizes.end() || *dim == 1) {
      sizes.insert(dim, 1);
    } else if (dim + 1 != sizes.end() && number(0, 1) == 1) {
      *dim = *dim == kOpen || dim[1] == kOpen ? kOpen : *dim * dim[1];
      sizes.erase(dim + 1);
    } else if (const int by = number(2, 3); *dim != kOpen && *dim % by == 0) {
      *dim /= by;
      sizes.insert(dim, by);
    }
    const auto next = movement.reshaped(sizes);
    if (!next) return;
    movement = *next;
    y = y.reshape(sizes);
    undo_.push_back({false, old});
  }

  std::mt19937 random_;
  Ints sizes_;
  std::vector<Undo> undo_;
};

TEST(Movement, IsThatOfItsSteps) {
  size_t most = 0;
  for (unsigned seed = 0; seed < 2000; ++seed) {
    RandomMovement random(seed);
    for (unsigned i = 0; i < 1 + seed % 6; ++i) random.step();
    const auto steps = random.movement.steps();
    ASSERT_TRUE(steps) << seed;
    const at::Tensor found = moved(random.x, *steps);
    ASSERT_TRUE(found.equal(random.y)) << seed << ": " << found.sizes() << " for " << random.y.sizes();
    ASSERT_LE(steps->count(), random.count()) << seed;
    ASSERT_EQ(random.movement.keeps_order(), random.y.flatten().equal(random.x.flatten())) << seed;
    ASSERT_EQ(random.undone(), random.before) << seed;
    most = std::max(most, steps->count());
  }
  EXPECT_EQ(most, 3U);
}

}  // namespace
}  // namespace onnxtorch
