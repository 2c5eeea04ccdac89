// Random choices, of which a number tells all.
#pragma once

#include <concepts>
#include <cstdint>
#include <random>

namespace onnxtorch::fuzz {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  // One of 0, 1, … count - 1.
  template <std::integral T>
  T below(T count) {
    return static_cast<T>(engine_() % static_cast<uint64_t>(count));
  }
  bool one_in(int64_t count) { return below(count) == 0; }

  template <typename List>
  auto& of(List&& list) {
    return list[below(static_cast<int>(std::size(list)))];
  }

  uint64_t bits() { return engine_(); }

 private:
  std::mt19937_64 engine_;
};

}  // namespace onnxtorch::fuzz
