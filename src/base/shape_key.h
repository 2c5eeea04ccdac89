// The key by which what is made for tensors of some form, and kept for the next ones (recent.h), is found again.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>

namespace onnxtorch {

// Numbers, of sizes, types and what else tells one form from another, and their hash.
class ShapeKey {
 public:
  ShapeKey& add(int64_t number) {
    constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;  // its products have each bit in the upper ones
    hash_ = (hash_ ^ static_cast<uint64_t>(number)) * kOdd;
    hash_ ^= hash_ >> 32;
    numbers_.push_back(number);
    return *this;
  }

  // Adds the numbers, and how many there are, so that one list does not go on where another ends.
  ShapeKey& add(at::IntArrayRef numbers) {
    add(static_cast<int64_t>(numbers.size()));
    for (const int64_t number : numbers) add(number);
    return *this;
  }

  ShapeKey& add_type_and_sizes(const at::Tensor& t) {
    return add(static_cast<int64_t>(t.scalar_type())).add(t.sizes());
  }
  ShapeKey& add_layout(const at::Tensor& t) { return add_type_and_sizes(t).add(t.strides()); }

  friend bool operator==(const ShapeKey&, const ShapeKey&) = default;

 private:
  uint64_t hash_ = 0;  // is compared first
  c10::SmallVector<int64_t, 32> numbers_;
};

}  // namespace onnxtorch
