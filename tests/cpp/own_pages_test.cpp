#include "base/own_pages.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

namespace onnxtorch {
namespace {

constexpr int64_t kMany = 1 << 25, kWeight = (1 << 20) + 1;

char* start_of(const at::Tensor& weight) { return static_cast<char*>(weight.mutable_data_ptr()); }

// Tells whether a page is part of this process; an address within it will do.
bool is_mapped(char* address) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  unsigned char resident = 0;
  return ::mincore(address - reinterpret_cast<uintptr_t>(address) % page, 1, &resident) == 0 || errno != ENOMEM;
}

TEST(HugePages, LieBesideOneAnother) {
  HugePages pages(kMany);
  const at::Tensor first = pages.take(kWeight).fill_(1), second = pages.take(kWeight).fill_(2);
  EXPECT_EQ(first.numel(), kWeight);
  EXPECT_GE(start_of(second), start_of(first) + kWeight);
  EXPECT_LT(start_of(second), start_of(first) + kWeight + ::sysconf(_SC_PAGESIZE));
  EXPECT_TRUE(first.eq(1).all().item<bool>());
  EXPECT_TRUE(second.eq(2).all().item<bool>());
}

TEST(HugePages, GoBackEachByItself) {
  std::optional<HugePages> pages(std::in_place, kMany);
  at::Tensor first = pages->take(kWeight).fill_(1);
  const at::Tensor second = pages->take(kWeight).fill_(2);
  char *const of_first = start_of(first), *const behind = start_of(second) + 2 * kWeight;
  EXPECT_TRUE(is_mapped(of_first));
  EXPECT_TRUE(is_mapped(behind));
  first.reset();
  EXPECT_FALSE(is_mapped(of_first));
  EXPECT_TRUE(is_mapped(behind));
  pages.reset();
  EXPECT_FALSE(is_mapped(behind));
  EXPECT_TRUE(second.eq(2).all().item<bool>());
}

TEST(HugePages, AreThereForMoreThanWasExpected) {
  HugePages pages(kWeight);
  const at::Tensor first = pages.take(kWeight).fill_(1), second = pages.take(2 * kMany).fill_(2);
  EXPECT_TRUE(first.eq(1).all().item<bool>());
  EXPECT_TRUE(second.eq(2).all().item<bool>());
}

TEST(OwnPages, HoldACopyInTheOrderOfTheElements) {
  const at::Tensor matrix = at::arange(6, at::kFloat).reshape({2, 3});
  const at::Tensor copy = own_copy(matrix.t(), at::kHalf), of_part = own_copy(matrix.narrow(1, 0, 2), at::kDouble);
  EXPECT_TRUE(at::equal(copy.to(at::kFloat), matrix.t()));
  EXPECT_EQ(copy.strides(), matrix.t().strides());
  EXPECT_TRUE(at::equal(of_part.to(at::kFloat), matrix.narrow(1, 0, 2)));
  EXPECT_TRUE(of_part.is_contiguous());
}

}  // namespace
}  // namespace onnxtorch
