// The largest padding of a pool.
#pragma once

#include <cstdint>

namespace onnxtorch {

// For each window, ATen's maximum steps through all of the padding before the input, and kernels of this library have
// it in memory.
inline constexpr int64_t kMostPadding = int64_t{1} << 20;

}  // namespace onnxtorch
