// Sums of products of numbers of 8 bits, in int32 and exact: both factors are widened to 16 bits, for an instruction
// that multiplies pairs and adds two products in 32 bits. All x86-64 CPUs have it. The one that takes bytes adds two
// products in 16 bits, where 255 * 127 * 2 saturates.
#pragma once

#include <cstdint>

#include "lower/simd/inline.h"
#include "lower/windows.h"

namespace onnxtorch {

// A weight of int8 lies in panels of so many columns, with two of its rows side by side:
// [panel][row / 2][column][row % 2], and zeros after its last row and column.
constexpr int64_t kPanelColumns = 16;
constexpr int64_t kPanelPair = 2 * kPanelColumns;  // the bytes of two rows of a panel

// Images of numbers of 8 bits with the channels innermost, and the windows over them, which are the rows of a product.
// A number is (byte ^ flip) - zero_point; in the padding it is zero.
struct Patches {
  Windows depth, rows, columns;
  int64_t channels;      // of the images,
  int64_t first, taken;  // and which of them a window takes
  uint8_t flip;          // 128 for int8, which so becomes unsigned
  int16_t zero_point;

  ONNX_TORCH_INLINE int64_t windows() const { return depth.count * rows.count * columns.count; }  // of an image
  ONNX_TORCH_INLINE int64_t taps() const { return depth.kernel * rows.kernel * columns.kernel; }
  ONNX_TORCH_INLINE int64_t length() const { return taps() * taken; }
  ONNX_TORCH_INLINE int64_t pairs() const { return (length() + 1) / 2; }
};

// Writes the windows from begin to end, of all images, as rows of 2 * p.pairs() numbers.
using WidenPatches = void(const uint8_t* x, const Patches& p, int64_t begin, int64_t end, int16_t* to);

// The product of such rows and a panel.
using SumPanel = void(const int16_t* rows, int64_t count, int64_t pairs, const int8_t* panel, int32_t* sums);

// Each channel of the windows from begin to end times its own column of the weight. `taps` has room for p.taps() + 1,
// and `outside` is a pixel of zeros. The sums of a window are those of whole panels.
using SumChannels = void(const uint8_t* x, const Patches& p, int64_t begin, int64_t end, const int8_t* panels,
                         const uint8_t* outside, const uint8_t** taps, int32_t* sums);

// What becomes of sums: sum * scale + bias of its column, and as a number of 8 bits this rounded half to even, not
// below `low` and above `high`, plus the zero point.
struct Finish {
  const float *scales, *bias;
  float low, high;
  int32_t zero_point;
};

// Of rows and columns that lie so far apart. int8 and uint8 have the same bytes.
template <typename T>
using FinishRows = void(const int32_t* sums, int64_t apart, int64_t rows, int64_t columns, const Finish& f, T* y,
                        int64_t y_apart);

struct IntegerKernels {
  int64_t rows_at_once;  // by which SumPanel is fastest
  WidenPatches* widen_patches;
  SumPanel* sum_panel;
  SumChannels* sum_channels;
  FinishRows<uint8_t>* finish_bytes;
  FinishRows<float>* finish_floats;

  static const IntegerKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
