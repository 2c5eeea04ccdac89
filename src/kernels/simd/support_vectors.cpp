#include "kernels/simd/support_vectors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/simd/lanes.h"
#include "kernels/simd/vector_math.h"
#include "kernels/simd/vectors.h"

namespace onnxtorch {
namespace {

using namespace CPU_CAPABILITY;

// Calls f with each of the elements, and puts what it gives in their place.
template <int64_t n, typename F>
ONNX_TORCH_INLINE void each(Doubles (&x)[n], const F& f) {
  for (Doubles& element : x) element = f(element);
}

template <int64_t n>
ONNX_TORCH_INLINE void raise(Doubles (&x)[n], double degree) {
  constexpr double kMostProducts = 64;  // the largest degree that takes products and not pow
  if (degree < 1 || degree > kMostProducts || degree != std::floor(degree)) {
    return each(x, [&](Doubles element) {
      for (int64_t i = 0; i < kDoubles; ++i) element[i] = std::pow(element[i], degree);
      return element;
    });
  }
  Doubles base[n];
  std::copy_n(x, n, base);
  const auto bits = static_cast<uint64_t>(degree);
  for (uint64_t bit = std::bit_floor(bits) / 2; bit > 0; bit /= 2) {
    for (int64_t i = 0; i < n; ++i) x[i] *= x[i];
    if (bits & bit) {
      for (int64_t i = 0; i < n; ++i) x[i] *= base[i];
    }
  }
}

// Replaces products, or squares of distances, by what the kernel gives of them.
template <int64_t n>
ONNX_TORCH_INLINE void apply_kernel(const SupportVectors& of, Doubles (&x)[n]) {
  switch (of.kernel) {
    case SupportVectorKernel::Polynomial:
      each(x, [&](const Doubles& product) { return product * of.gamma + of.coef0; });
      return raise(x, of.degree);
    case SupportVectorKernel::Rbf:
      return each(x, [&](const Doubles& square) { return exp(square * -of.gamma); });
    case SupportVectorKernel::Sigmoid:
      return each(x, [&](const Doubles& product) { return tanh(product * of.gamma + of.coef0); });
  }
}

// Sums in doubles, for `count` vectors of floats, each of which takes two vectors of doubles.
template <int64_t count>
using Sums = Doubles[2 * count];

ONNX_TORCH_INLINE void as_doubles(const Lanes& x, Doubles* to) {
  HalfVector::Type halves[2];
  std::memcpy(halves, &x, sizeof(x));
  for (int64_t i = 0; i < 2; ++i) to[i] = __builtin_convertvector(halves[i], Doubles);
}

// A block of support vectors that lie next to one another: `count` SIMD vectors, the last of them with `last` elements,
// behind which zeros are taken.
template <int64_t count>
struct Block {
  int64_t first, last = kLanes;

  ONNX_TORCH_INLINE Lanes load(const float* row, int64_t i) const {
    row += first + i * kLanes;
    if (i + 1 < count || last == kLanes) return *lanes(row);
    Lanes result;
    const Vec elements = CPU_CAPABILITY::load_first(row, last, 0);
    std::memcpy(&result, &elements, sizeof(result));
    return result;
  }
};

// Adds up squares of distances, or products. Distances are taken of the differences themselves: |x|^2 + |v|^2 - 2xv
// loses the digits of near points that are far from zero.
template <bool distances, int64_t rows, int64_t count, typename T>
ONNX_TORCH_INLINE void compare(const SupportVectors& of, const Block<count>& block, const T* x,
                               Sums<count> (&sums)[rows]) {
  for (int64_t i = 0; i < of.features; ++i) {
    Sums<count> vectors;
    for (int64_t k = 0; k < count; ++k) as_doubles(block.load(of.vectors + i * of.count, k), vectors + 2 * k);
    for (int64_t row = 0; row < rows; ++row) {
      const auto feature = static_cast<double>(x[row * of.features + i]);
      for (int64_t k = 0; k < 2 * count; ++k) {
        const Doubles difference = vectors[k] - feature;
        sums[row][k] += distances ? difference * difference : vectors[k] * feature;
      }
    }
  }
}

// The most features whose products are added up in floats. Where rows of floats have more, the sums of so many are
// added up in doubles.
constexpr int64_t kFewFeatures = 32;

template <typename T>
ONNX_TORCH_INLINE bool multiplies_floats(const SupportVectors& of) {
  return std::is_same_v<T, float> && of.kernel != SupportVectorKernel::Rbf && of.features > kFewFeatures;
}

template <int64_t rows, int64_t count>
ONNX_TORCH_INLINE void multiply(const SupportVectors& of, const Block<count>& block, const float* x,
                                Sums<count> (&sums)[rows]) {
  for (int64_t first = 0; first < of.features; first += kFewFeatures) {
    const int64_t end = std::min(first + kFewFeatures, of.features);
    Lanes parts[rows][count] = {};
    for (int64_t i = first; i < end; ++i) {
      Lanes vectors[count];
      for (int64_t k = 0; k < count; ++k) vectors[k] = block.load(of.vectors + i * of.count, k);
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t k = 0; k < count; ++k) parts[row][k] += vectors[k] * x[row * of.features + i];
    }
    for (int64_t row = 0; row < rows; ++row) {
      Sums<count> doubles;
      for (int64_t k = 0; k < count; ++k) as_doubles(parts[row][k], doubles + 2 * k);
      for (int64_t k = 0; k < 2 * count; ++k) sums[row][k] += doubles[k];
    }
  }
}

// Computes a weighted sum. A coefficient of zero takes no part, whatever its vector gives: it belongs to another pair
// of classes.
template <int64_t count>
ONNX_TORCH_INLINE double weighted_sum(const Sums<count>& values, const Sums<count>& weights) {
  Doubles sum = {};
  for (int64_t k = 0; k < 2 * count; ++k) sum += weights[k] != 0 ? values[k] * weights[k] : Doubles{};
  double total = 0;
  for (int64_t i = 0; i < kDoubles; ++i) total += sum[i];
  return total;
}

template <int64_t rows, int64_t count, typename T>
void add_scores_of_rows(SupportVectors of, const Block<count>& block, const T* x, double* scores) {
  Sums<count> values[rows] = {};
  if (of.kernel == SupportVectorKernel::Rbf) {
    compare<true>(of, block, x, values);
  } else if (!multiplies_floats<T>(of)) {
    compare<false>(of, block, x, values);
  } else if constexpr (std::is_same_v<T, float>) {
    multiply(of, block, x, values);
  }
  for (Sums<count>& of_row : values) apply_kernel(of, of_row);
  for (int64_t i = 0; i < of.scores; ++i) {
    Sums<count> weights;
    for (int64_t k = 0; k < count; ++k) as_doubles(block.load(of.coefficients + i * of.count, k), weights + 2 * k);
    for (int64_t row = 0; row < rows; ++row) scores[row * of.scores + i] += weighted_sum<count>(values[row], weights);
  }
}

template <int64_t count, typename T>
void add_block(SupportVectors of, const Block<count>& block, const T* x, int64_t rows, double* scores) {
  int64_t row = 0;
  const auto take = [&]<int64_t at_once>(std::integral_constant<int64_t, at_once>) {
    for (; row + at_once <= rows; row += at_once)
      add_scores_of_rows<at_once>(of, block, x + row * of.features, scores + row * of.scores);
  };
  // So many rows are taken at once as there are registers for their sums.
  if (multiplies_floats<T>(of)) take(std::integral_constant<int64_t, kLanes / 2>());
  take(std::integral_constant<int64_t, 4>());
  take(std::integral_constant<int64_t, 1>());
}

template <typename T>
void add_scores(SupportVectors of, const T* x, int64_t rows, double* scores) {
  constexpr int64_t kAtOnce = 2;
  int64_t first = 0;
  for (; first + kAtOnce * kLanes <= of.count; first += kAtOnce * kLanes)
    add_block(of, Block<kAtOnce>{first}, x, rows, scores);
  for (; first < of.count; first += kLanes)
    add_block(of, Block<1>{first, std::min(kLanes, of.count - first)}, x, rows, scores);
}

template <typename T>
void multiply_in_double(const T* x, const double* weights, int64_t rows, int64_t features, int64_t scores, double* y) {
  constexpr int64_t kSums = 8;  // in parallel
  for (; rows > 0; --rows, x += features) {
    for (int64_t i = 0; i < scores; ++i, ++y) {
      const double* const row = weights + i * features;
      double sums[kSums] = {};
      int64_t k = 0;
      for (; k + kSums <= features; k += kSums)
        for (int64_t j = 0; j < kSums; ++j) sums[j] += x[k + j] * row[k + j];
      for (int64_t j = 0; k + j < features; ++j) sums[j] += x[k + j] * row[k + j];
      for (const double sum : sums) *y += sum;
    }
  }
}

constexpr SupportVectorKernels kKernels{.add_scores = add_scores<float>,
                                        .add_scores_of_doubles = add_scores<double>,
                                        .multiply_in_double = multiply_in_double<float>,
                                        .multiply_doubles = multiply_in_double<double>};

}  // namespace

const SupportVectorKernels SupportVectorKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
