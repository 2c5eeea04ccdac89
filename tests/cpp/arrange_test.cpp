#include "base/arrange.h"

#include <ATen/ATen.h>
#include <c10/util/irange.h>
#include <gtest/gtest.h>

#include <vector>

namespace onnxtorch {
namespace {

// The types of one to eight bytes.
const std::vector<c10::ScalarType> kTypes = {at::kByte, at::kHalf, at::kFloat, at::kDouble};

at::Tensor numbers(at::IntArrayRef sizes, c10::ScalarType type) {
  const int64_t count = c10::multiply_integers(sizes);
  return at::arange(count).remainder(251).to(type).reshape(sizes);
}

// Expects a right copy, and that what lies in front of it and behind it stays as it is.
void expect_copied(const at::Tensor& from) {
  constexpr int64_t kAround = 64;
  const at::Tensor memory = at::full({from.numel() + 2 * kAround}, 7, from.options());
  const at::Tensor to = memory.narrow(0, kAround, from.numel()).view(from.sizes());
  copy_into(to, from);
  EXPECT_TRUE(at::equal(to, from)) << from.sizes() << from.strides() << from.scalar_type();
  for (const int64_t begin : {int64_t{0}, kAround + from.numel()})
    EXPECT_TRUE(memory.narrow(0, begin, kAround).eq(7).all().item<bool>()) << from.sizes() << from.strides();
}

TEST(Arrange, TransposesMatricesOfAllSizes) {
  for (const auto type : kTypes) {
    for (const int64_t rows : {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 70}) {
      for (const int64_t columns : {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 70, 1030})
        expect_copied(numbers({rows, columns}, type).t());
    }
  }
}

TEST(Arrange, TransposesImagesOfFewChannels) {
  for (const auto type : kTypes) {
    for (const int64_t channels : c10::irange(1, 20)) {
      for (const int64_t pixels : {1, 2, 5, 19, 340, 341, 342, 343, 1025, 5000}) {
        expect_copied(numbers({2, channels, pixels}, type).transpose(1, 2));
        expect_copied(numbers({2, pixels, channels}, type).transpose(1, 2));
      }
    }
  }
}

TEST(Arrange, WritesNothingBesideAPart) {
  for (const auto type : kTypes) {
    for (const int64_t channels : {2, 3, 4, 7}) {
      const at::Tensor from = numbers({1, channels, 600}, type).transpose(1, 2);
      const at::Tensor to = at::full({1, 600, channels + 5}, 7, from.options());
      copy_into(to, 2, 2, from);
      EXPECT_TRUE(at::equal(to.narrow(2, 2, channels), from));
      EXPECT_TRUE(to.narrow(2, 0, 2).eq(7).all().item<bool>());
      EXPECT_TRUE(to.narrow(2, channels + 2, 3).eq(7).all().item<bool>());
    }
  }
}

TEST(Arrange, ReadsAPartOfATensor) {
  for (const auto type : kTypes) {
    const at::Tensor whole = numbers({3, 9, 500}, type);
    expect_copied(whole.narrow(1, 2, 3).transpose(1, 2));
    expect_copied(whole.narrow(2, 5, 340).transpose(1, 2));
    expect_copied(numbers({3, 500, 9}, type).narrow(2, 6, 3).transpose(1, 2));  // the last pixel ends the memory
  }
}

TEST(Arrange, CopiesHaveMemoryOfTheirOwn) {
  for (const auto type : kTypes) {
    for (const at::Tensor& t : {numbers({3, 5}, type), numbers({}, type), numbers({0, 4}, type),
                                numbers({300, 400}, type), numbers({6, 7}, type).transpose(0, 1)}) {
      const at::Tensor copy = copy_of(t);
      EXPECT_TRUE(at::equal(copy, t));
      EXPECT_EQ(copy.dtype(), t.dtype());
      EXPECT_TRUE(t.numel() == 0 || copy.const_data_ptr() != t.const_data_ptr());
    }
  }
  const at::Tensor conjugate = at::rand({4}, at::kComplexFloat).conj();
  EXPECT_TRUE(at::equal(copy_of(conjugate), conjugate));
}

TEST(Arrange, TurnsDimensionsAround) {
  for (const auto type : kTypes) {
    expect_copied(numbers({5, 6, 7, 8}, type).permute({3, 1, 0, 2}));
    expect_copied(numbers({4, 33, 2, 17}, type).permute({2, 3, 1, 0}));
  }
}

}  // namespace
}  // namespace onnxtorch
