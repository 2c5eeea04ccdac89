// How weights lie of which kernels take some columns at a time.
#pragma once

#include <cstdint>

namespace onnxtorch {

// The weight is in groups of panels, each of which has some columns side by side in each of its rows; there are zeros
// after the last column.
constexpr int64_t kColumnsOfPanel = 16;
constexpr int64_t kPanelsOfGroup = 4;
constexpr int64_t kColumnsOfGroup = kPanelsOfGroup * kColumnsOfPanel;

}  // namespace onnxtorch
