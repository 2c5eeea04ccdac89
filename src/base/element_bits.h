// Elements of any type as bits: an unsigned integer of as many bytes holds them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace onnxtorch {

// Calls the function with a 0 of the unsigned type of so many bytes; gives {} where there is none.
template <typename F>
auto with_bits_of(size_t bytes, const F& f) -> decltype(f(uint8_t{})) {
  switch (bytes) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    case 8:
      return f(uint64_t{});
    default:
      return {};
  }
}

}  // namespace onnxtorch
