#include "base/size.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace onnxtorch {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

TEST(Size, IsTheNumberItIsComputedOf) {
  EXPECT_EQ((Size(3) * 4 + 5 - 1).value(), 16);
  EXPECT_EQ((Size(kMost - 1) + 1).value(), kMost);
  EXPECT_EQ((Size(2) - 5).value(), -3);
  EXPECT_EQ(product_of({}).value(), 1);
  EXPECT_EQ(product_of(std::vector<int64_t>{2, 0, 7}).value(), 0);
  EXPECT_EQ(Size(2) * 3, 6);
}

TEST(Size, DoesNotWrapAround) {
  const std::vector<int64_t> sizes{int64_t{1} << 32, int64_t{1} << 32};
  for (const Size size : {product_of(sizes), Size(kMost) + 1, Size(-2) - kMost, Size(kMost) * 2 - kMost}) {
    EXPECT_THROW(size.value(), c10::Error);
    EXPECT_FALSE(size.is_at_most(kMost));
    EXPECT_FALSE(size == 0);
  }
}

TEST(Size, IsComparedWithWhatThereIsRoomFor) {
  EXPECT_TRUE(Size(7).is_at_most(7));
  EXPECT_FALSE(Size(8).is_at_most(7));
}

}  // namespace
}  // namespace onnxtorch
