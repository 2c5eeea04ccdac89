// Tests of what is known of values while translating.
#include "translate/facts.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/ir.h>

#include <limits>
#include <memory>
#include <vector>

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// A graph that takes a matrix of two rows and an open number of columns, and what is known of it.
class FactsTest : public testing::Test {
 protected:
  FactsTest() : x_(graph_->addInput()) {
    facts_.set_input_sizes(x_, c10::kFloat, std::vector<Facts::Sizes>{rows_, columns_});
  }

  jit::Value* insert(c10::Symbol kind, at::ArrayRef<jit::NamedValue> arguments) {
    jit::Value* const made = graph_->insert(kind, arguments);
    for (jit::Node* node : graph_->nodes()) facts_.learn(node);
    return made;
  }
  jit::Value* item(jit::Value* list, int64_t index) { return insert(c10::aten::__getitem__, {list, index}); }
  jit::Value* shared(jit::Value* v) { return facts_.shared(v, v->node()->inputs()); }

  // Views the matrix in rows of 64, which takes numbers of columns that are multiples of 32 alone.
  jit::Value* in_rows_of_64() { return insert(c10::aten::view, {x_, std::vector<int64_t>{-1, 64}}); }

  const Facts::Sizes rows_ = Facts::Sizes(Facts::trial_sizes(0).size(), 2), columns_ = Facts::trial_sizes(0);
  std::shared_ptr<jit::Graph> graph_ = std::make_shared<jit::Graph>();
  Facts facts_;
  jit::Value* const x_;
};

TEST_F(FactsTest, KnowsSizesThatComeOutAlike) {
  const auto turned = facts_.shape(insert(c10::aten::t, {x_}));
  ASSERT_TRUE(turned && turned->rank() == 2U);
  EXPECT_FALSE((*turned)[0].is_static());
  EXPECT_TRUE((*turned)[1].is_static() && (*turned)[1].static_size() == 2);
}

TEST_F(FactsTest, KnowsTheRankOfWhatTakesMultiplesAlone) {
  jit::Value* const y = in_rows_of_64();
  const auto shape = facts_.shape(y);
  ASSERT_TRUE(shape && shape->rank() == 2U);
  EXPECT_FALSE((*shape)[1].is_static());
  EXPECT_EQ(facts_.dtype(y), c10::kFloat);
  const auto after = facts_.shape(insert(c10::aten::unsqueeze, {insert(c10::aten::relu, {y}), 0}));
  EXPECT_TRUE(after && after->rank() == 3U);
}

TEST_F(FactsTest, TakesNoMoreFromSizesOf1WhereTheyWereNotTried) {
  EXPECT_EQ(facts_.range(columns_).least, 1);
  in_rows_of_64();
  EXPECT_EQ(facts_.range(columns_).least, 2);
  EXPECT_EQ(facts_.range(columns_).largest, columns_.back());
}

// From so far from the end to so far from the begin there is something where there is little alone.
TEST_F(FactsTest, KnowsTheRankOfASliceThatMayBeSmallerTheMoreThereIs) {
  const auto knows_columns = [&](jit::Value* v) {
    const auto shape = facts_.shape(v);
    EXPECT_TRUE(shape && shape->rank() == 2U);
    return (*shape)[1].is_static();
  };
  const int64_t all = std::numeric_limits<int64_t>::max();
  jit::Value* const without_first = insert(c10::aten::slice, {x_, 1, 1, all});
  EXPECT_FALSE(knows_columns(insert(c10::aten::slice, {without_first, 1, -3, 3})));
  EXPECT_TRUE(knows_columns(insert(c10::aten::slice, {without_first, 1, 0, 0})));
  EXPECT_TRUE(knows_columns(insert(c10::aten::slice, {insert(c10::aten::slice, {x_, 1, -3, all}), 1, 0, 1})));
}

TEST_F(FactsTest, KnowsTheRankOfWhatFollowsFromWhatShrinks) {
  jit::Value* const three = insert(c10::aten::constant_pad_nd, {x_, std::vector<int64_t>{3, 0}});
  jit::Value* const left = insert(c10::aten::sub, {4, item(insert(c10::aten::size, {x_}), 1)});
  jit::Value* const fewer = insert(c10::aten::narrow, {three, 1, 0, insert(c10::prim::max, {left, 0})});
  const auto shape = facts_.shape(insert(c10::aten::slice, {fewer, 1, 3}));
  ASSERT_TRUE(shape && shape->rank() == 2U);
  EXPECT_FALSE((*shape)[1].is_static());
}

TEST_F(FactsTest, DoesWithoutSizesThatAModelDoesNotTake) {
  jit::Value* const narrowed = insert(c10::aten::expand, {x_, std::vector<int64_t>{2, -1}});
  jit::Value* const table = graph_->addInput();
  facts_.set_sizes(table, c10::kFloat, std::vector<Facts::Sizes>{Facts::Sizes(columns_.size(), 512)});
  jit::Value* const columns = item(insert(c10::aten::size, {narrowed}), 1);
  const auto cut = facts_.shape(insert(c10::aten::narrow, {table, 0, 0, columns}));
  EXPECT_TRUE(cut && cut->rank() == 1U);
  EXPECT_EQ(facts_.range(columns_).largest, columns_[2]);
}

TEST_F(FactsTest, HasOneNumberForAllThatAreASizeOfAnInput) {
  jit::Value *const of_x = insert(c10::aten::size, {x_}), *const of_y =
                                                              insert(c10::aten::size, {insert(c10::aten::relu, {x_})});
  jit::Value *const columns = shared(item(of_x, 1)), *const others = shared(item(of_y, -1));
  EXPECT_EQ(columns, others);
  EXPECT_EQ(facts_.comparison(c10::aten::eq, columns, others), true);
  EXPECT_EQ(facts_.comparison(c10::aten::lt, columns, insert(c10::aten::add, {columns, 1})), std::nullopt);
}

TEST_F(FactsTest, HasOneNumberForWhatIsReadTwiceFromOnePlace) {
  jit::Value* const sizes = insert(c10::aten::size, {in_rows_of_64()});
  jit::Value* const slice = insert(c10::aten::slice, {sizes, 1, c10::IValue(), 1});
  jit::Value* const first = shared(item(slice, 0));
  EXPECT_EQ(first->node()->input(0), sizes);
  EXPECT_EQ(shared(item(sizes, 1)), first);
  EXPECT_NE(shared(item(sizes, 0)), first);
  EXPECT_EQ(facts_.comparison(c10::aten::eq, first, shared(item(slice, 0))), true);
}

TEST_F(FactsTest, ReadsAListThatChangesEachTime) {
  jit::Value* const sizes = insert(c10::aten::size, {in_rows_of_64()});
  jit::Value* const before = shared(item(sizes, 0));
  insert(c10::aten::append, {sizes, 7});
  EXPECT_NE(shared(item(sizes, 0)), before);
}

}  // namespace
}  // namespace onnxtorch
