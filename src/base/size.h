// Sizes that are computed of numbers which a model or an input gives.
#pragma once

#include <c10/util/ArrayRef.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <optional>

namespace onnxtorch {

// A number of elements, or a distance among them. One beyond an int64 is known for that, and so is what is computed of
// it, where an int64 would wrap around.
class Size {
 public:
  constexpr Size(int64_t value) : value_(value) {}  // each number is a size

  constexpr bool operator==(const Size&) const = default;
  constexpr bool is_at_most(int64_t most) const { return value_ && *value_ <= most; }
  int64_t value() const {
    TORCH_CHECK(value_, "a size is larger than a tensor's can be");
    return *value_;
  }

  friend constexpr Size operator+(Size a, Size b) {
    int64_t sum = 0;
    return a.value_ && b.value_ && !__builtin_add_overflow(*a.value_, *b.value_, &sum) ? Size(sum) : Size();
  }
  friend constexpr Size operator-(Size a, Size b) {
    int64_t difference = 0;
    return a.value_ && b.value_ && !__builtin_sub_overflow(*a.value_, *b.value_, &difference) ? Size(difference)
                                                                                              : Size();
  }
  friend constexpr Size operator*(Size a, Size b) {
    int64_t product = 0;
    return a.value_ && b.value_ && !__builtin_mul_overflow(*a.value_, *b.value_, &product) ? Size(product) : Size();
  }

 private:
  constexpr Size() = default;

  std::optional<int64_t> value_;
};

constexpr Size product_of(c10::ArrayRef<int64_t> sizes) {
  Size product = 1;
  for (const int64_t size : sizes) product = product * size;
  return product;
}

}  // namespace onnxtorch
