#include "kernels/simd/panel_product.h"

#include <cstring>

#include "kernels/simd/integers.h"

namespace onnxtorch {
namespace {

using namespace CPU_CAPABILITY;

// --- Vectors ---------------------------------------------------------------------------------------------------------

// A panel's columns fill kVectors vectors. kRows rows of sums are kept in registers, beside a group of the weight.
// `rounded` scales a sum and rounds it half to even, within bounds; a NaN becomes the lowest.
#if defined(CPU_CAPABILITY_AVX512)

constexpr int64_t kVectors = 1, kRows = 8;

ONNX_TORCH_INLINE void widen(const int8_t* pairs, Integers (&to)[kVectors]) {
  to[0] = _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(pairs)));
}
template <bool kSigned>
ONNX_TORCH_INLINE void widen(__m128i low, __m128i high, Integers (&to)[kVectors]) {
  const __m256i both = _mm256_set_m128i(high, low);
  to[0] = kSigned ? _mm512_cvtepi8_epi16(both) : _mm512_cvtepu8_epi16(both);
}
ONNX_TORCH_INLINE Integers rounded(const int32_t* sums, const float* scales, const float* bias, float low, float high) {
  __m512 x = _mm512_cvtepi32_ps(load(sums));
  x = _mm512_fmadd_ps(x, _mm512_loadu_ps(scales), _mm512_loadu_ps(bias));
  return _mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(low)), _mm512_set1_ps(high)));
}
ONNX_TORCH_INLINE __m128i lowest_bytes(const Integers (&numbers)[kVectors]) { return _mm512_cvtepi32_epi8(numbers[0]); }

#elif defined(CPU_CAPABILITY_AVX2)

constexpr int64_t kVectors = 2, kRows = 8;

ONNX_TORCH_INLINE void widen(const int8_t* pairs, Integers (&to)[kVectors]) {
  const auto* const from = reinterpret_cast<const __m128i*>(pairs);
  for (int64_t v = 0; v < kVectors; ++v) to[v] = _mm256_cvtepi8_epi16(_mm_loadu_si128(from + v));
}
template <bool kSigned>
ONNX_TORCH_INLINE void widen(__m128i low, __m128i high, Integers (&to)[kVectors]) {
  to[0] = kSigned ? _mm256_cvtepi8_epi16(low) : _mm256_cvtepu8_epi16(low);
  to[1] = kSigned ? _mm256_cvtepi8_epi16(high) : _mm256_cvtepu8_epi16(high);
}
ONNX_TORCH_INLINE Integers rounded(const int32_t* sums, const float* scales, const float* bias, float low, float high) {
  __m256 x = _mm256_cvtepi32_ps(load(sums));
  x = _mm256_fmadd_ps(x, _mm256_loadu_ps(scales), _mm256_loadu_ps(bias));
  return _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(x, _mm256_set1_ps(low)), _mm256_set1_ps(high)));
}
ONNX_TORCH_INLINE __m128i lowest_bytes(const Integers (&numbers)[kVectors]) {
  const Integers byte = fill(255);
  const Integers words = _mm256_packs_epi32(_mm256_and_si256(numbers[0], byte), _mm256_and_si256(numbers[1], byte));
  const Integers in_order = _mm256_permute4x64_epi64(words, 0xD8);  // two vectors are packed half by half
  return _mm_packus_epi16(_mm256_castsi256_si128(in_order), _mm256_extracti128_si256(in_order, 1));
}

#else

constexpr int64_t kVectors = 4, kRows = 4;

ONNX_TORCH_INLINE void widen(const int8_t* pairs, Integers (&to)[kVectors]) {
  for (int64_t v = 0; v < kVectors; v += 2) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(pairs) + v / 2);
    to[v] = _mm_srai_epi16(_mm_unpacklo_epi8(bytes, bytes), 8);
    to[v + 1] = _mm_srai_epi16(_mm_unpackhi_epi8(bytes, bytes), 8);
  }
}
template <bool kSigned>
ONNX_TORCH_INLINE void widen(__m128i low, __m128i high, Integers (&to)[kVectors]) {
  const auto widened = [](__m128i twice, __m128i zero_first)
                           __attribute__((always_inline)) { return kSigned ? _mm_srai_epi16(twice, 8) : zero_first; };
  to[0] = widened(_mm_unpacklo_epi8(low, low), _mm_unpacklo_epi8(low, zeros()));
  to[1] = widened(_mm_unpackhi_epi8(low, low), _mm_unpackhi_epi8(low, zeros()));
  to[2] = widened(_mm_unpacklo_epi8(high, high), _mm_unpacklo_epi8(high, zeros()));
  to[3] = widened(_mm_unpackhi_epi8(high, high), _mm_unpackhi_epi8(high, zeros()));
}
ONNX_TORCH_INLINE Integers rounded(const int32_t* sums, const float* scales, const float* bias, float low, float high) {
  const __m128 x = _mm_add_ps(_mm_mul_ps(_mm_cvtepi32_ps(load(sums)), _mm_loadu_ps(scales)), _mm_loadu_ps(bias));
  return _mm_cvtps_epi32(_mm_min_ps(_mm_max_ps(x, _mm_set1_ps(low)), _mm_set1_ps(high)));
}
ONNX_TORCH_INLINE __m128i lowest_bytes(const Integers (&numbers)[kVectors]) {
  const Integers byte = fill(255);
  const auto words = [&](int64_t v) __attribute__((always_inline)) {
    return _mm_packs_epi32(_mm_and_si128(numbers[v], byte), _mm_and_si128(numbers[v + 1], byte));
  };
  return _mm_packus_epi16(words(0), words(2));
}

#endif

constexpr int64_t kLanes = kPanelColumns / kVectors;

// --- Windows ---------------------------------------------------------------------------------------------------------

// A window of one of the images; the windows of all images are numbered one after another.
struct Window {
  int64_t image, slice, row, column;

  ONNX_TORCH_INLINE Window(const Patches& p, int64_t number)
      : image(number / p.windows()),
        slice(number / (p.rows.count * p.columns.count) % p.depth.count),
        row(number / p.columns.count % p.rows.count),
        column(number % p.columns.count) {}
};

// Calls the function with each line of an image that the window has a part of, null where it lies in the padding.
template <typename Function>
ONNX_TORCH_INLINE void for_each_line(const uint8_t* x, const Patches& p, const Window& w, const Function& function) {
  const int64_t width = p.columns.size * p.channels;
  for (int64_t z = 0; z < p.depth.kernel; ++z) {
    const int64_t slice = p.depth.begin(w.slice) + z * p.depth.dilation;
    for (int64_t y = 0; y < p.rows.kernel; ++y) {
      const int64_t row = p.rows.begin(w.row) + y * p.rows.dilation;
      const bool inside = slice >= 0 && slice < p.depth.size && row >= 0 && row < p.rows.size;
      function(inside ? x + ((w.image * p.depth.size + slice) * p.rows.size + row) * width : nullptr);
    }
  }
}

ONNX_TORCH_INLINE int64_t within(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

// Copies windows. Columns that are contiguous with all their channels are one run.
void copy_patches(const uint8_t* x, Patches p, int64_t begin, int64_t end, uint8_t* to) {
  const bool is_dense = p.columns.dilation == 1 && p.taken == p.channels;
  const int64_t runs = is_dense ? 1 : p.columns.kernel, run = is_dense ? p.columns.kernel * p.taken : p.taken;
  const int64_t width = p.columns.size * p.channels, apart = p.columns.dilation * p.channels;
  const int64_t rest = p.steps() * kStepRows - p.length();
  const auto outside = static_cast<uint8_t>(p.zero_point), flip = p.flip;
  for (int64_t number = begin; number < end; ++number) {
    const Window w(p, number);
    const int64_t start = p.columns.begin(w.column) * p.channels + p.first;
    for_each_line(x, p, w, [&](const uint8_t* line) __attribute__((always_inline)) {
      for (int64_t i = 0, from = start; i < runs; ++i, from += apart, to += run) {
        const int64_t first = line ? within(-from, 0, run) : run, last = line ? within(width - from, first, run) : run;
        for (int64_t k = 0; k < first; ++k) to[k] = outside;
        if (flip == 0 && first < last) {
          std::memcpy(to + first, line + from + first, last - first);
        } else {
          for (int64_t k = first; k < last; ++k) to[k] = line[from + k] ^ flip;
        }
        for (int64_t k = last; k < run; ++k) to[k] = outside;
      }
    });
    for (int64_t k = 0; k < rest; ++k) *to++ = 0;
  }
}

// --- Sums ------------------------------------------------------------------------------------------------------------

// Adds groups of kSteps steps, which are taken from the strip.
template <int64_t kSteps, int64_t kCount>
ONNX_TORCH_INLINE void add_groups(const uint8_t* rows, int64_t apart, Strip& strip, Integers (&sums)[kCount]) {
  for (int32_t group = strip.groups[kSteps - 1]; group > 0; --group) {
    Integers steps[kSteps];
    for (int64_t s = 0; s < kSteps; ++s) steps[s] = load(strip.steps + s * kStepRows * kLanes);
    for (int64_t r = 0; r < kCount; ++r) {
      Integers group_sums;
      for (int64_t s = 0; s < kSteps; ++s) {
        int32_t four;
        std::memcpy(&four, rows + r * apart + strip.rows[s] * kStepRows, sizeof(four));
        const Integers here = products(fill(four), steps[s]);
        group_sums = s == 0 ? here : plus_products(group_sums, here);
      }
      sums[r] = plus_sums(sums[r], group_sums);
    }
    strip.rows += kSteps;
    strip.steps += kSteps * kStepRows * kLanes;
  }
}

template <int64_t kCount>
ONNX_TORCH_INLINE void sum_rows(const uint8_t* rows, int64_t apart, Strip strip, const int32_t* start, int32_t* to) {
  Integers sums[kCount];
  for (Integers& sum : sums) sum = load(start);
  add_groups<1>(rows, apart, strip, sums);
  add_groups<2>(rows, apart, strip, sums);
  add_groups<3>(rows, apart, strip, sums);
  add_groups<4>(rows, apart, strip, sums);
  for (int64_t r = 0; r < kCount; ++r) store(to + r * kPanelColumns, sums[r]);
}

// Sums up fewer rows than are kept at once.
template <int64_t kCount>
ONNX_TORCH_INLINE void sum_rest(const uint8_t* rows, int64_t apart, int64_t count, const Strip& strip,
                                const int32_t* start, int32_t* to) {
  if (count == kCount) return sum_rows<kCount>(rows, apart, strip, start, to);
  if constexpr (kCount > 1) sum_rest<kCount - 1>(rows, apart, count, strip, start, to);
}

void sum_strip(const uint8_t* rows, int64_t apart, int64_t count, Strip strip, const int32_t* start, int32_t* sums) {
  for (; count >= kRows; count -= kRows, rows += kRows * apart, sums += kRows * kPanelColumns)
    sum_rows<kRows>(rows, apart, strip, start, sums);
  sum_rest<kRows - 1>(rows, apart, count, strip, start, sums);
}

// Loads the first n bytes at x; where they are fewer than a panel's, what comes after them is not read.
ONNX_TORCH_INLINE __m128i load_bytes(const uint8_t* x, int64_t n) {
  if (n >= kPanelColumns) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
  uint8_t bytes[kPanelColumns] = {};
  for (int64_t i = 0; i < n; ++i) bytes[i] = x[i];
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
}

// Sums up kCount windows, whose taps lie one after another; kAtEnd: where no more than a pixel may be read.
template <bool kSigned, int64_t kCount, bool kAtEnd>
ONNX_TORCH_INLINE void sum_windows(const uint8_t* const* taps, int64_t pairs, int64_t channels,
                                   const ChannelWeight& weight, int32_t* sums) {
  const int64_t panels = (channels + kPanelColumns - 1) / kPanelColumns;
  const int8_t* pair = weight.panels;
  for (int64_t panel = 0; panel < panels; ++panel) {
    const int64_t c = panel * kPanelColumns;
    Integers sum[kCount][kVectors];
#pragma GCC unroll 4
    for (int64_t w = 0; w < kCount; ++w)
      for (int64_t v = 0; v < kVectors; ++v) sum[w][v] = load(weight.start + c + v * kLanes);
    for (int64_t k = 0; k < pairs; ++k, pair += kPanelPair) {
      Integers columns[kVectors];
      widen(pair, columns);
#pragma GCC unroll 4
      for (int64_t w = 0; w < kCount; ++w) {
        const uint8_t* const* const two = taps + w * 2 * pairs + 2 * k;
        const int64_t wanted = kAtEnd ? channels - c : kPanelColumns;
        const __m128i first = load_bytes(two[0] + c, wanted), second = load_bytes(two[1] + c, wanted);
        Integers numbers[kVectors];
        widen<kSigned>(_mm_unpacklo_epi8(first, second), _mm_unpackhi_epi8(first, second), numbers);
        for (int64_t v = 0; v < kVectors; ++v) sum[w][v] = plus_pairs(sum[w][v], numbers[v], columns[v]);
      }
    }
#pragma GCC unroll 4
    for (int64_t w = 0; w < kCount; ++w)
      for (int64_t v = 0; v < kVectors; ++v) store(sums + w * panels * kPanelColumns + c + v * kLanes, sum[w][v]);
  }
}

// Writes where the taps of a window lie, and one more that fills the last pair. Gives the last one inside the image.
ONNX_TORCH_INLINE const uint8_t* find_taps(const uint8_t* x, const Patches& p, const Window& w, const uint8_t* outside,
                                           const uint8_t** tap) {
  const uint8_t* last = x;
  for_each_line(x, p, w, [&](const uint8_t* line) __attribute__((always_inline)) {
    for (int64_t i = 0; i < p.columns.kernel; ++i, ++tap) {
      const int64_t column = p.columns.begin(w.column) + i * p.columns.dilation;
      const bool is_inside = line && column >= 0 && column < p.columns.size;
      *tap = is_inside ? line + column * p.channels : outside;
      last = is_inside ? *tap : last;
    }
  });
  if (p.taps() % 2) *tap = outside;
  return last;
}

template <bool kSigned>
ONNX_TORCH_INLINE void sum_all_channels(const uint8_t* x, int64_t bytes, const Patches& p, int64_t begin, int64_t end,
                                        const ChannelWeight& weight, const uint8_t** taps, int32_t* sums) {
  const int64_t pairs = (p.taps() + 1) / 2, of_window = 2 * pairs;
  const int64_t columns = (p.channels + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
  for (int64_t number = begin; number < end;) {
    const int64_t count = end - number < kWindowsAtOnce ? 1 : kWindowsAtOnce;
    int64_t left = bytes;  // the bytes from any of the taps on
    for (int64_t w = 0; w < count; ++w) {
      const uint8_t* const last = find_taps(x, p, Window(p, number + w), weight.outside, taps + w * of_window);
      if (x + bytes - last < left) left = x + bytes - last;
    }
    if (left < columns) {
      for (int64_t w = 0; w < count; ++w)
        sum_windows<kSigned, 1, true>(taps + w * of_window, pairs, p.channels, weight, sums + w * columns);
    } else if (count == 1) {
      sum_windows<kSigned, 1, false>(taps, pairs, p.channels, weight, sums);
    } else {
      sum_windows<kSigned, kWindowsAtOnce, false>(taps, pairs, p.channels, weight, sums);
    }
    number += count;
    sums += count * columns;
  }
}

void sum_channels(const uint8_t* x, int64_t bytes, Patches p, int64_t begin, int64_t end, ChannelWeight weight,
                  const uint8_t** taps, int32_t* sums) {
  if (p.flip) {
    sum_all_channels<true>(x, bytes, p, begin, end, weight, taps, sums);
  } else {
    sum_all_channels<false>(x, bytes, p, begin, end, weight, taps, sums);
  }
}

// --- The scaling and rounding of sums --------------------------------------------------------------------------------

ONNX_TORCH_INLINE __m128i finished_panel(const int32_t* sums, const float* scales, const float* bias, const Finish& f) {
  const Integers zero_point = fill(f.zero_point);
  Integers numbers[kVectors];
  for (int64_t v = 0; v < kVectors; ++v) {
    const int64_t at = v * kLanes;
    numbers[v] = plus(rounded(sums + at, scales + at, bias + at, f.low, f.high), zero_point);
  }
  return lowest_bytes(numbers);
}

void finish_bytes(const int32_t* sums, int64_t apart, int64_t rows, int64_t columns, Finish f, uint8_t* y,
                  int64_t y_apart) {
  for (int64_t r = 0; r < rows; ++r, sums += apart, y += y_apart) {
    for (int64_t c = 0; c < columns; c += kPanelColumns) {
      const __m128i bytes = finished_panel(sums + c, f.scales + c, f.bias + c, f);
      if (columns - c >= kPanelColumns) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(y + c), bytes);
      } else {
        std::memcpy(y + c, &bytes, columns - c);
      }
    }
  }
}

void finish_floats(const int32_t* sums, int64_t apart, int64_t rows, int64_t columns, Finish f, float* y,
                   int64_t y_apart) {
  for (int64_t r = 0; r < rows; ++r, sums += apart, y += y_apart) {
#pragma GCC ivdep
    for (int64_t c = 0; c < columns; ++c) y[c] = static_cast<float>(sums[c]) * f.scales[c] + f.bias[c];
  }
}

constexpr IntegerKernels kKernels{.strip_columns = kLanes,
                                  .rows_at_once = kRows,
                                  .copy_patches = copy_patches,
                                  .sum_strip = sum_strip,
                                  .sum_channels = sum_channels,
                                  .finish_bytes = finish_bytes,
                                  .finish_floats = finish_floats};

}  // namespace

const IntegerKernels IntegerKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
