// Look-up among sorted keys.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "base/both_sides.h"

namespace onnxtorch {

// The order of keys: that of numbers, then NaN, which is one key whatever its bits.
struct KeyOrder {
  template <typename T>
  ONNX_TORCH_BOTH bool operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return a < b || (std::isnan(b) && !std::isnan(a));
    } else {
      return a < b;
    }
  }
};

// Gives the last position of x, of those that the ascending keys had before they were sorted, stably; or -1.
template <typename T>
ONNX_TORCH_BOTH int64_t find_key(T x, const T* ascending, const int64_t* position_of, int64_t keys) {
  const int64_t after = count_before(keys, [&](int64_t i) { return !KeyOrder()(x, ascending[i]); });
  const bool found = after > 0 && !KeyOrder()(ascending[after - 1], x);
  return found ? position_of[after - 1] : -1;
}

}  // namespace onnxtorch
