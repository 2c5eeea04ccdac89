// Functions of vectors of floats, and two of doubles. The errors are in units in the last place of the exact result: the
// largest that were found among millions of numbers of all sizes.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>

#include "kernels/simd/lanes.h"
#include "kernels/simd/vectors.h"

namespace onnxtorch::CPU_CAPABILITY {

using at::vec::fmadd;

// Gives the value of a polynomial at x, by its coefficients from that of the highest power.
template <size_t n>
ONNX_TORCH_INLINE Vec polynomial(const Vec& x, const std::array<float, n>& factors) {
  Vec sum(factors[0]);
  for (size_t i = 1; i < n; ++i) sum = at::vec::fmadd(sum, x, Vec(factors[i]));
  return sum;
}

#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
// What x * 2^n can be, by the n that there are: a normal number, from 0.7 * 2^-150 to 1.5, or anything.
enum class Scaled { kNormal, kFalling, kAny };

// Multiplies x by 2^n. AVX2 has no instruction for it, and takes the fewest that the products allow; x is from 0.7 to 1.5
// there, unless they are normal numbers. A NaN stays one.
template <Scaled scaled>
ONNX_TORCH_INLINE Vec times_power_of_two(const Vec& x, const Vec& n) {
#if defined(CPU_CAPABILITY_AVX512)
  return _mm512_scalef_ps(x, n);
#else
  const auto plus_exponent = [](const Vec& of, __m256i added) -> Vec {
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(of), _mm256_slli_epi32(added, 23)));
  };
  if constexpr (scaled == Scaled::kFalling) {
    return plus_exponent(x, _mm256_cvtps_epi32(n + Vec(64))) * Vec(0x1p-64F);
  }
  const __m256i all = _mm256_cvtps_epi32(n);
  if constexpr (scaled == Scaled::kNormal) return plus_exponent(x, all);
  const __m256i half = _mm256_srai_epi32(all, 1);
  return plus_exponent(x, half) * plus_exponent(Vec(1), _mm256_sub_epi32(all, half));
#endif
}

// The parts of an exp: x is n * ln(2) + rest, and its exp is 2^n * power, with a polynomial of the rest as the power.
struct Exponential {
  ONNX_TORCH_INLINE explicit Exponential(const Vec& x) : n((x * Vec(kLog2E)).round()) {
    constexpr float kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;
    constexpr std::array kExp = {1.381432e-3F, 8.368851e-3F, 4.16684e-2F, 1.666652e-1F, 4.9999994e-1F, 1.0F, 1.0F};
    power = polynomial(at::vec::fnmadd(n, Vec(kLn2Low), at::vec::fnmadd(n, Vec(kLn2High), x)), kExp);
  }

  static constexpr float kLog2E = 1.44269504F;
  Vec n, power;
};

// Compute exp(x), to 0.9 units: of any x, of one from -87 to 88, and exp(-|x|). A NaN stays one.
ONNX_TORCH_INLINE Vec exp(const Vec& x) {
  const Exponential of(at::vec::clamp_max(at::vec::clamp_min(x, Vec(-104)), Vec(89)));
  return times_power_of_two<Scaled::kAny>(of.power, of.n);
}
ONNX_TORCH_INLINE Vec exp_of_small(const Vec& x) {
  const Exponential of(x);
  return times_power_of_two<Scaled::kNormal>(of.power, of.n);
}
ONNX_TORCH_INLINE Vec falling_exp(const Vec& x) {
  const Exponential of(at::vec::clamp_min(x | Vec(-0.0F), Vec(-104)));
  return times_power_of_two<Scaled::kFalling>(of.power, of.n);
}
#else
// Ask libm for each element, to one unit, which takes less time than what a compiler makes of the above.
ONNX_TORCH_INLINE Vec exp(const Vec& x) { return x.exp(); }
ONNX_TORCH_INLINE Vec exp_of_small(const Vec& x) { return x.exp(); }
ONNX_TORCH_INLINE Vec falling_exp(const Vec& x) { return x.abs().neg().exp(); }
#endif

// Computes factor / (1 + exp(-x)), without an exp that is larger than 1.
ONNX_TORCH_INLINE Vec over_one_and_exp(const Vec& factor, const Vec& x) {
  const Vec power = falling_exp(x);
  return Vec::blendv(factor, factor * power, x < Vec(0)) / (Vec(1) + power);
}

// Compute the logistic function, and x times it, to 2.3 units.
ONNX_TORCH_INLINE Vec sigmoid(const Vec& x) { return over_one_and_exp(Vec(1), x); }
ONNX_TORCH_INLINE Vec silu(const Vec& x) { return over_one_and_exp(x, x); }

ONNX_TORCH_INLINE Vec with_sign_of(const Vec& size, const Vec& x) { return size | (x & Vec(-0.0F)); }

// Computes the hyperbolic tangent, to 1.5 units. Near zero it is x + x³ p(x²): the other way would lose digits.
ONNX_TORCH_INLINE Vec tanh(const Vec& x) {
  constexpr float kNearZero = 0.625F, kIsOne = 10;
  constexpr std::array kFactors = {-5.704973e-3F, 2.0639073e-2F, -5.373971e-2F, 1.3331442e-1F, -3.333328e-1F};
  const Vec a = x.abs(), square = a * a;
  const Vec near = fmadd(a * square, polynomial(square, kFactors), a);
  const Vec power = exp_of_small(at::vec::clamp_max(a, Vec(kIsOne)) * Vec(-2)),
            far = (Vec(1) - power) / (Vec(1) + power);
  return with_sign_of(Vec::blendv(far, near, a < Vec(kNearZero)), x);
}

#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
// Computes 1 - erf(|x| * sqrt(share)), to about four units; the share is a power of two. It is exp(-x² * share) times
// t, times a polynomial of t, which is 1 / (1 + slope * |x| * sqrt(share)).
ONNX_TORCH_INLINE Vec erfc_of_size(const Vec& x, float share, float root_of_share) {
  constexpr float kSlope = 0.375F, kLargest = 15;  // beyond it the result is below the smallest number
  constexpr std::array kFactors = {0.0604906343F, -0.282387167F, 0.42249462F,  -0.218428493F, 0.266365558F,
                                   0.124547318F,  0.204557091F,  0.210752875F, 0.211607561F};
  const Vec a = at::vec::clamp_max(x.abs(), Vec(kLargest)), square = a * a, error = at::vec::fmsub(a, a, square);
  const Vec t = Vec(1) / fmadd(a, Vec(kSlope * root_of_share), Vec(1));
  const Vec product = polynomial(t, kFactors) * t * falling_exp(square * Vec(share));
  return at::vec::fnmadd(product, error * Vec(share), product);
}
#else
ONNX_TORCH_INLINE Vec erfc_of_size(const Vec& x, float, float root_of_share) {
  return (x.abs() * Vec(root_of_share)).erfc();
}
#endif

// Computes erf(x), to 1.5 units. Below 1 it is x + x p(x²): the other way, 1 - exp(p(|x|)), would lose digits.
ONNX_TORCH_INLINE Vec erf(const Vec& x) {
  constexpr float kIsOne = 4;
  constexpr std::array kNear = {7.85385782e-05F, -0.000801019254F, 0.00518832775F, -0.026853811F,
                                0.112835854F,    -0.37612626F,     0.128379166F};
  constexpr std::array kFar = {-0.00115043088F, 0.0147781847F, -0.0886343569F,
                               -0.654488683F,   -1.11743867F,  -0.00267165271F};
  const Vec a = x.abs(), near = fmadd(a, polynomial(a * a, kNear), a);
  const Vec far = Vec(1) - exp_of_small(polynomial(at::vec::clamp_max(a, Vec(kIsOne)), kFar));
  return with_sign_of(Vec::blendv(far, near, a < Vec(1)), x);
}

// Compute x * (1 + erf(x / sqrt(2))) / 2 and x * (1 + tanh(u)) / 2, and keep the digits that the sums would lose.
ONNX_TORCH_INLINE Vec gelu(const Vec& x) {
  const Vec above = Vec(0.5F) * erfc_of_size(x, 0.5F, M_SQRT1_2);
  return x * Vec::blendv(Vec(1) - above, above, x < Vec(0));
}

ONNX_TORCH_INLINE Vec gelu_tanh(const Vec& x) {
  constexpr float kTwice = 2 * M_SQRT2 * M_2_SQRTPI * 0.5, kCubic = 0.044715F;
  return over_one_and_exp(x, Vec(kTwice) * fmadd(Vec(kCubic) * x * x, x, x));
}

// The inverse factorials of 0, 1, 2 ...: the coefficients of exp(x) as a sum of powers.
constexpr auto kInverseFactorials = [] {
  std::array<double, 12> factors{1};
  for (size_t n = 1; n < factors.size(); ++n) factors[n] = factors[n - 1] / static_cast<double>(n);
  return factors;
}();

// Computes exp(x) to within 1e-14; below -708 it gives exp(-708).
ONNX_TORCH_INLINE Doubles exp(const Doubles& given) {
  using Longs = int64_t __attribute__((vector_size(sizeof(Doubles))));
  constexpr double kLowest = -708, kHighest = 709, kInfinity = __builtin_huge_val();
  constexpr double kLog2E = 1.4426950408889634, kLn2High = 0.693147180369123816490,
                   kLn2Low = 1.90821492927058770002e-10;
  constexpr double kToWhole =
      0x1.8p52 + 1023;  // added, it leaves a whole number and an exponent's bias in the last bits
  const Doubles x = given < kLowest ? Doubles{} + kLowest : given;
  const Doubles shifted = x * kLog2E + kToWhole;
  const Doubles whole = shifted - kToWhole;
  const Doubles rest = x - whole * kLn2High - whole * kLn2Low;
  Doubles sum = Doubles{} + kInverseFactorials.back();
  for (size_t n = kInverseFactorials.size() - 1; n-- > 0;) sum = sum * rest + kInverseFactorials[n];
  const Longs power = std::bit_cast<Longs>(shifted) << 52;
  return given > kHighest ? Doubles{} + kInfinity : sum * std::bit_cast<Doubles>(power);
}

// Computes the hyperbolic tangent of doubles, by a series where 1 - 2 / (e^2x + 1) would lose digits.
ONNX_TORCH_INLINE Doubles tanh(const Doubles& x) {
  constexpr double kNearZero = 1e-3;
  const Doubles near = x - x * x * x * (1.0 / 3);
  const Doubles far = 1.0 - 2.0 / (exp(x + x) + 1.0);
  return ((x < kNearZero) & (x > -kNearZero)) ? near : far;
}

}  // namespace onnxtorch::CPU_CAPABILITY
