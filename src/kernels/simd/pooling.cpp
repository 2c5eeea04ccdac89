#include "kernels/simd/pooling.h"

#include <limits>

#include "kernels/simd/vectors.h"

namespace onnxtorch {
namespace {

using namespace CPU_CAPABILITY;
using at::vec::Vectorized;

// The reduction that keeps the larger of each two elements, or the one that is NaN.
struct Largest {
  Largest(const Pool&, int64_t, int64_t) {}

  template <typename T>
  ONNX_TORCH_INLINE static T start() {
    using Limits = std::numeric_limits<T>;
    return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  }
  template <typename V>
  ONNX_TORCH_INLINE static V join(const V& x, const V& y) {
    return at::vec::maximum(x, y);
  }
  template <typename V>
  ONNX_TORCH_INLINE V finished(const V& result, int64_t, int64_t) const {
    return result;
  }
};

struct Mean {
  using V = Vectorized<float>;

  Mean(const Pool& p, int64_t slice, int64_t row)
      : by_column(p.channels == 1), columns(p.counts.columns), others(p.counts.depth[slice] * p.counts.rows[row]) {}

  template <typename T>
  ONNX_TORCH_INLINE static T start() {
    return 0;
  }
  ONNX_TORCH_INLINE static V join(const V& x, const V& y) { return x + y; }
  // Gives the means of n consecutive windows, or of n channels of one window.
  ONNX_TORCH_INLINE V finished(const V& sum, int64_t window, int64_t n) const {
    return sum / (V(others) * (by_column ? V::loadu(columns + window, n) : V(columns[window])));
  }

  bool by_column;
  const float* columns;
  float others;
};

// Loads n elements that are `step` apart. Where that is one or two, whole vectors are read.
template <typename T>
ONNX_TORCH_INLINE Vectorized<T> load(const T* from, int64_t step, int64_t n) {
  using V = Vectorized<T>;
  if (step == 1) return V::loadu(from);
  if (step == 2) return at::vec::deinterleave2(V::loadu(from), V::loadu(from + V::size())).first;
  T elements[V::size()] = {};
  for (int64_t i = 0; i < n; ++i) elements[i] = from[i * step];
  return V::loadu(elements);
}

// Reduces the rows that lie in the windows at this place, column by column.
template <typename R, typename T>
ONNX_TORCH_INLINE void reduce_rows(const T* image, const Pool& p, int64_t slice, int64_t row, T* to) {
  using V = Vectorized<T>;
  const int64_t width = p.width(), first = p.rows.first(row), end = p.rows.end(row);
  const int64_t first_slice = p.depth.first(slice), end_slice = p.depth.end(slice);
  in_vectors<T>(width, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
    V result(R::template start<T>());
    for (int64_t z = first_slice; z < end_slice; z += p.depth.dilation) {
      const T* const from = image + z * p.rows.size * width + i;
      for (int64_t y = first; y < end; y += p.rows.dilation) result = R::join(result, V::loadu(from + y * width, n));
    }
    result.store(to + i, n);
  });
}

// Reduces the columns of a row: those of one channel all at once, of more channels one window after the other.
template <typename R, typename T>
ONNX_TORCH_INLINE void reduce_columns(const T* line, const Pool& p, int64_t step, const R& reduction, T* to) {
  const bool is_plane = p.channels == 1;
  const int64_t parts = is_plane ? 1 : p.columns.count, count = is_plane ? p.columns.count : p.channels;
  const int64_t apart = p.columns.dilation * p.channels;
  for (int64_t part = 0; part < parts; ++part, line += p.columns.stride * p.channels, to += count) {
    in_vectors<T>(count, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
      Vectorized<T> result = load(line + i * step, step, n);
      for (int64_t k = 1; k < p.columns.kernel; ++k)
        result = R::join(result, load(line + i * step + k * apart, step, n));
      reduction.finished(result, is_plane ? i : part, n).store(to + i, n);
    });
  }
}

template <typename R, typename T>
void pool(const T* x, Pool p, int64_t begin, int64_t end, T* line, T* y) {
  for (int64_t i = 0, count = p.line(); i < count; ++i) line[i] = R::template start<T>();
  const int64_t step = p.channels == 1 ? p.columns.stride : 1, result_width = p.result_width();
  int64_t row = begin % p.rows.count, slice = begin / p.rows.count % p.depth.count;
  const T* image = x + begin / p.result_rows() * p.image();
  for (T *to = y + begin * result_width, *const last = y + end * result_width; to < last; to += result_width) {
    reduce_rows<R>(image, p, slice, row, line + p.columns.padding * p.channels);
    const R reduction(p, slice, row);
    if (step == 1) {
      reduce_columns(line, p, 1, reduction, to);
    } else if (step == 2) {
      reduce_columns(line, p, 2, reduction, to);
    } else {
      reduce_columns(line, p, step, reduction, to);
    }
    if (++row < p.rows.count) continue;
    row = 0;
    if (++slice < p.depth.count) continue;
    slice = 0;
    image += p.image();
  }
}

constexpr PoolKernels kKernels{.largest_of_floats = pool<Largest, float>,
                               .largest_of_bytes = pool<Largest, uint8_t>,
                               .largest_of_chars = pool<Largest, int8_t>,
                               .means = pool<Mean, float>};

}  // namespace

const PoolKernels PoolKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
