// Sums of products of int8 and uint8, in int32 and exact. The instruction that multiplies bytes adds two products in 16
// bits, where 255 * 127 * 2 saturates. So a weight is divided into groups of steps, in which nothing can exceed 16
// bits, whatever it is multiplied by; the sums of a group are widened once.
#pragma once

#include <cstdint>

#include "kernels/simd/inline.h"
#include "kernels/simd/windows.h"

namespace onnxtorch {

// The number of columns of a result that are computed at a time.
constexpr int64_t kPanelColumns = 16;
constexpr int64_t kPanelPair = 2 * kPanelColumns;  // the bytes of two rows of a panel

// A strip is columns of a weight of int8, as many as a vector has elements of 32 bits. A step is four consecutive rows
// of them, [column][row]. In the steps of a group that multiply the same half of four rows, the positive weights of a
// column add up to no more than kMostWeight, and so do the negative ones: 255 * kMostWeight fits 16 bits.
constexpr int64_t kStepRows = 4, kMostSteps = 4, kMostStripRows = kStepRows << 16;
constexpr uint8_t kMostWeight = 128;
struct Strip {
  const int32_t* groups;  // the number of those of 1, 2, 3 and 4 steps, which lie in this order
  const uint16_t* rows;   // of each step, the index of its four rows
  const int8_t* steps;
  const int32_t* totals;  // of the columns
};

// Images of int8 or uint8 with the channels innermost, and the windows over them, which are the rows of a product. An
// element is (byte ^ flip) less the zero point; in the padding it is zero.
struct Patches {
  Windows depth, rows, columns;
  int64_t channels;      // of the images,
  int64_t first, taken;  // and which of them a window takes
  uint8_t flip;          // 128 for int8, which so becomes unsigned
  int16_t zero_point;

  ONNX_TORCH_INLINE int64_t windows() const { return depth.count * rows.count * columns.count; }  // of an image
  ONNX_TORCH_INLINE int64_t taps() const { return depth.kernel * rows.kernel * columns.kernel; }
  ONNX_TORCH_INLINE int64_t length() const { return taps() * taken; }
  ONNX_TORCH_INLINE int64_t steps() const { return (length() + kStepRows - 1) / kStepRows; }
};

// Writes the windows from begin to end, of all images, as rows of whole steps. Their elements have the zero point
// still.
using CopyPatches = void(const uint8_t* x, Patches p, int64_t begin, int64_t end, uint8_t* to);

// Adds the products of rows that lie so far apart and a strip to `start`. The sums of a row are those of a panel.
using SumStrip = void(const uint8_t* rows, int64_t apart, int64_t count, Strip strip, const int32_t* start,
                      int32_t* sums);

// A weight with a column for each channel, in panels in which two rows are interleaved:
// [panel][row / 2][column][row % 2], with zeros after its last row and column.
struct ChannelWeight {
  const int8_t* panels;
  const int32_t* start;    // what the sums begin with, of whole panels
  const uint8_t* outside;  // a pixel in the padding, and kPanelColumns bytes more
};

// Multiplies each channel of the windows from begin to end by its column. `bytes` are those of all images, and `taps`
// has room for kWindowsAtOnce * (p.taps() + 1). The sums of a window are those of whole panels. The images' elements
// have the zero point still.
constexpr int64_t kWindowsAtOnce = 4;
using SumChannels = void(const uint8_t* x, int64_t bytes, Patches p, int64_t begin, int64_t end, ChannelWeight weight,
                         const uint8_t** taps, int32_t* sums);

// The scaling of sums: sum * scale + bias of its column, and as int8 or uint8 this rounded half to even, not below
// `low` and above `high`, plus the zero point.
struct Finish {
  const float *scales, *bias;  // the sums, and these, may be read to the end of a panel
  float low, high;
  int32_t zero_point;
};

// Finishes rows and columns that lie so far apart. int8 and uint8 have the same bytes.
template <typename T>
using FinishRows = void(const int32_t* sums, int64_t apart, int64_t rows, int64_t columns, Finish f, T* y,
                        int64_t y_apart);

struct IntegerKernels {
  int64_t strip_columns, rows_at_once;  // by which SumStrip is fastest
  CopyPatches* copy_patches;
  SumStrip* sum_strip;
  SumChannels* sum_channels;
  FinishRows<uint8_t>* finish_bytes;
  FinishRows<float>* finish_floats;

  static const IntegerKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
