// The layout of weights of which kernels take some columns at a time.
#pragma once

#include <cstdint>

namespace onnxtorch {

// The sizes of panels and groups. The weight is in groups of panels. A row of a panel has some columns of a row of the
// weight, contiguously; there are zeros after the last column.
constexpr int64_t kColumnsOfPanel = 16;
constexpr int64_t kPanelsOfGroup = 4;
constexpr int64_t kColumnsOfGroup = kPanelsOfGroup * kColumnsOfPanel;

}  // namespace onnxtorch
