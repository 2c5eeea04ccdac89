#include "lower/chain/kernel.h"

#include <ATen/cpu/vec/vec.h>
#include <ATen/native/cpu/Gelu.h>

#include <algorithm>
#include <cstring>

namespace onnxtorch::chain::CPU_CAPABILITY {
namespace {

using Vec = at::vec::Vectorized<float>;

constexpr int64_t kWidth = Vec::size();
constexpr int64_t kMemory = 1 << 14;  // floats: what the level 1 cache holds besides inputs and results
constexpr int64_t kLargestBlock = 1 << 12;
// A block ends where such a run of a strided source does, so that within the block its elements are one, or side by
// side.
constexpr int64_t kLongRun = 1 << 7;
constexpr int64_t kCacheLine = 16;  // floats

// Where a value's elements of the current block are. Of a splat, one vector stands for all.
struct Slot {
  float* data;
  int64_t mask;

  Vec operator[](int64_t i) const { return Vec::loadu(data + (i & mask)); }
};

constexpr int64_t kAll = -1, kSplat = 0;

template <typename F>
void map(const Slot& result, int64_t count, const Slot& x, const F& f) {
  for (int64_t i = 0; i < count; i += kWidth) f(x[i]).store(result.data + i);
}

template <typename F>
void map(const Slot& result, int64_t count, const Slot& x, const Slot& y, const F& f) {
  for (int64_t i = 0; i < count; i += kWidth) f(x[i], y[i]).store(result.data + i);
}

template <typename F>
void map(const Slot& result, int64_t count, const Slot& x, const Slot& y, const Slot& z, const F& f) {
  for (int64_t i = 0; i < count; i += kWidth) f(x[i], y[i], z[i]).store(result.data + i);
}

#ifdef CPU_CAPABILITY_AVX512
// e to the power of -|x|, to about one unit in the last place; 0 where it is less than half the smallest number.
__m512 falling_exp(__m512 x) {
  constexpr float kLog2E = 1.44269502F, kLog2ELow = 1.92596303e-8F;
  const __m512 a = _mm512_max_ps(_mm512_set1_ps(-104), _mm512_or_ps(x, _mm512_set1_ps(-0.0F)));  // a NaN stays one
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(a, _mm512_set1_ps(kLog2E)), _MM_FROUND_TO_NEAREST_INT);
  const __m512 r = _mm512_fmadd_ps(a, _mm512_set1_ps(kLog2ELow), _mm512_fmsub_ps(a, _mm512_set1_ps(kLog2E), n));
  __m512 power = _mm512_set1_ps(1.5353362e-4F);  // of 2, to r
  for (const float factor : {1.33988739e-3F, 9.61843692e-3F, 5.55033237e-2F, 2.40226477e-1F, 6.93147182e-1F, 1.0F})
    power = _mm512_fmadd_ps(power, r, _mm512_set1_ps(factor));
  return _mm512_scalef_ps(power, n);
}

// factor / (1 + e to the power of -x), without a power that is larger than 1.
Vec over_one_and_exp(const Vec& factor, const Vec& x) {
  const __m512 power = falling_exp(x);
  const __m512 above = _mm512_mask_mul_ps(factor, _mm512_movepi32_mask(_mm512_castps_si512(x)), factor, power);
  return _mm512_div_ps(above, _mm512_add_ps(_mm512_set1_ps(1), power));
}

Vec sigmoid(const Vec& x) { return over_one_and_exp(Vec(1), x); }
Vec silu(const Vec& x) { return over_one_and_exp(x, x); }
#else
Vec sigmoid(const Vec& x) { return (Vec(1) + x.neg().exp()).reciprocal(); }
Vec silu(const Vec& x) { return x / (Vec(1) + x.neg().exp()); }
#endif

// As ATen's kernels compute them.
Vec six_capped(const Vec& x) { return at::vec::minimum(at::vec::maximum(x + Vec(3), Vec(0)), Vec(6)); }
Vec sign(const Vec& x) { return ((Vec(0) < x) & Vec(1)) - ((x < Vec(0)) & Vec(1)); }
Vec leaky_relu(const Vec& x, const Vec& slope) { return x * Vec::blendv(slope, Vec(1), x > Vec(0)); }

void compute(const Step& step, const Slot* slots, int64_t count) {
  const Slot &r = slots[step.result], &x = slots[step.operands[0]], &y = slots[step.operands[1]],
             &z = slots[step.operands[2]];
  const Vec a(step.a), b(step.b);
  switch (step.op) {
    case Op::Abs:
      return map(r, count, x, [](Vec u) { return u.abs(); });
    case Op::Neg:
      return map(r, count, x, [](Vec u) { return u.neg(); });
    case Op::Exp:
      return map(r, count, x, [](Vec u) { return u.exp(); });
    case Op::Expm1:
      return map(r, count, x, [](Vec u) { return u.expm1(); });
    case Op::Log:
      return map(r, count, x, [](Vec u) { return u.log(); });
    case Op::Log1p:
      return map(r, count, x, [](Vec u) { return u.log1p(); });
    case Op::Sqrt:
      return map(r, count, x, [](Vec u) { return u.sqrt(); });
    case Op::Rsqrt:
      return map(r, count, x, [](Vec u) { return u.rsqrt(); });
    case Op::Reciprocal:
      return map(r, count, x, [](Vec u) { return u.reciprocal(); });
    case Op::Sigmoid:
      return map(r, count, x, sigmoid);
    case Op::Tanh:
      return map(r, count, x, [](Vec u) { return u.tanh(); });
    case Op::Sin:
      return map(r, count, x, [](Vec u) { return u.sin(); });
    case Op::Cos:
      return map(r, count, x, [](Vec u) { return u.cos(); });
    case Op::Tan:
      return map(r, count, x, [](Vec u) { return u.tan(); });
    case Op::Asin:
      return map(r, count, x, [](Vec u) { return u.asin(); });
    case Op::Acos:
      return map(r, count, x, [](Vec u) { return u.acos(); });
    case Op::Atan:
      return map(r, count, x, [](Vec u) { return u.atan(); });
    case Op::Relu:
      return map(r, count, x, [](Vec u) { return at::vec::clamp_min(u, Vec(0)); });
    case Op::Silu:
      return map(r, count, x, silu);
    case Op::Gelu:
      return map(r, count, x, [](Vec u) { return at::native::vectorized_gelu(u); });
    case Op::GeluTanh:
      return map(r, count, x, [](Vec u) { return at::native::vectorized_gelu_approximated_with_tanh(u); });
    case Op::HardSigmoid:
      return map(r, count, x, [](Vec u) { return six_capped(u) / Vec(6); });
    case Op::HardSwish:
      return map(r, count, x, [](Vec u) { return u * six_capped(u) / Vec(6); });
    case Op::LeakyRelu:
      return map(r, count, x, [a](Vec u) { return leaky_relu(u, a); });
    case Op::Clamp:
      return map(r, count, x, [a, b](Vec u) { return at::vec::clamp(u, a, b); });
    case Op::ClampMin:
      return map(r, count, x, [a](Vec u) { return at::vec::clamp_min(u, a); });
    case Op::ClampMax:
      return map(r, count, x, [a](Vec u) { return at::vec::clamp_max(u, a); });
    case Op::Floor:
      return map(r, count, x, [](Vec u) { return u.floor(); });
    case Op::Ceil:
      return map(r, count, x, [](Vec u) { return u.ceil(); });
    case Op::Round:
      return map(r, count, x, [](Vec u) { return u.round(); });
    case Op::Trunc:
      return map(r, count, x, [](Vec u) { return u.trunc(); });
    case Op::Sign:
      return map(r, count, x, sign);
    case Op::Square:
      return map(r, count, x, [](Vec u) { return u * u; });
    case Op::Cube:
      return map(r, count, x, [](Vec u) { return u * u * u; });
    case Op::Add:
      return map(r, count, x, y, [](Vec u, Vec v) { return u + v; });
    case Op::Sub:
      return map(r, count, x, y, [](Vec u, Vec v) { return u - v; });
    case Op::Mul:
      return map(r, count, x, y, [](Vec u, Vec v) { return u * v; });
    case Op::Div:
      return map(r, count, x, y, [](Vec u, Vec v) { return u / v; });
    case Op::Maximum:
      return map(r, count, x, y, [](Vec u, Vec v) { return at::vec::maximum(u, v); });
    case Op::Minimum:
      return map(r, count, x, y, [](Vec u, Vec v) { return at::vec::minimum(u, v); });
    case Op::Pow:
      return map(r, count, x, y, [](Vec u, Vec v) { return u.pow(v); });
    case Op::Eq:
      return map(r, count, x, y, [](Vec u, Vec v) { return u == v; });
    case Op::Ne:
      return map(r, count, x, y, [](Vec u, Vec v) { return u != v; });
    case Op::Lt:
      return map(r, count, x, y, [](Vec u, Vec v) { return u < v; });
    case Op::Le:
      return map(r, count, x, y, [](Vec u, Vec v) { return u <= v; });
    case Op::Gt:
      return map(r, count, x, y, [](Vec u, Vec v) { return u > v; });
    case Op::Ge:
      return map(r, count, x, y, [](Vec u, Vec v) { return u >= v; });
    case Op::IsNan:
      return map(r, count, x, [](Vec u) { return u != u; });
    case Op::ToBool:
      return map(r, count, x, [](Vec u) { return u != Vec(0); });
    case Op::LogicalNot:  // a mask's bits are 0 or a NaN
      return map(r, count, x, [](Vec u) { return u == Vec(0); });
    case Op::LogicalAnd:
      return map(r, count, x, y, [](Vec u, Vec v) { return u & v; });
    case Op::LogicalOr:
      return map(r, count, x, y, [](Vec u, Vec v) { return u | v; });
    case Op::LogicalXor:
      return map(r, count, x, y, [](Vec u, Vec v) { return u ^ v; });
    case Op::Where:
      return map(r, count, x, y, z, [](Vec u, Vec v, Vec w) { return Vec::blendv(w, v, u); });
    case Op::ToFloat:
      return map(r, count, x, [](Vec u) { return u & Vec(1); });
  }
}

float as_float(float value) { return value; }

float as_float(uint8_t byte) {
  const int32_t bits = byte ? -1 : 0;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

bool has_long_runs(const Source& source) {
  return source.kind == Source::Kind::Strided && source.sizes.back() >= kLongRun;
}

// Where an element of a strided source lies, by its number in the pass's order.
int64_t offset(const Source& source, int64_t number) {
  int64_t sum = 0;
  for (auto d = static_cast<int64_t>(source.sizes.size()) - 1; d >= 0; --d) {
    sum += number % source.sizes[d] * source.strides[d];
    number /= source.sizes[d];
  }
  return sum;
}

// Elements of a strided source side by side. Where `padded`, a vector after them may be written to as well.
template <typename T>
void gather(const Source& source, const T* data, int64_t begin, int64_t count, float* to, bool padded) {
  constexpr int64_t kMostDims = 64;
  int64_t at[kMostDims];
  const auto rank = static_cast<int64_t>(source.sizes.size());
  for (int64_t d = rank - 1, rest = begin; d >= 0; --d) {
    at[d] = rest % source.sizes[d];
    rest /= source.sizes[d];
    data += at[d] * source.strides[d];
  }
  const int64_t inner = rank - 1, step = source.strides[inner];
  while (true) {
    const int64_t run = std::min(count, source.sizes[inner] - at[inner]);
    if (step == 0 && padded) {
      const Vec value(as_float(*data));
      for (int64_t i = 0; i < run; i += kWidth) value.store(to + i);
    } else if (step == 0) {
      std::fill_n(to, run, as_float(*data));
    } else if (step == 1) {
      for (int64_t i = 0; i < run; ++i) to[i] = as_float(data[i]);
    } else {
      for (int64_t i = 0; i < run; ++i) to[i] = as_float(data[i * step]);
    }
    to += run;
    count -= run;
    if (count == 0) return;
    data -= at[inner] * step;
    at[inner] = 0;
    for (int64_t d = inner - 1;; --d) {
      data += source.strides[d];
      if (++at[d] < source.sizes[d]) break;
      data -= at[d] * source.strides[d];
      at[d] = 0;
    }
  }
}

template <typename T>
void load(const Source& source, const T* data, int64_t begin, int64_t count, float* to, bool padded) {
  if (source.kind == Source::Kind::Strided) {
    gather(source, data, begin, count, to, padded);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = as_float(data[begin + i]);
  }
}

void load(const Source& source, const void* data, int64_t begin, int64_t count, float* to, bool padded) {
  if (source.is_mask) {
    load(source, static_cast<const uint8_t*>(data), begin, count, to, padded);
  } else {
    load(source, static_cast<const float*>(data), begin, count, to, padded);
  }
}

float element(const Source& source, const void* data, int64_t at) {
  return source.is_mask ? as_float(static_cast<const uint8_t*>(data)[at]) : static_cast<const float*>(data)[at];
}

void store_mask(const float* from, int64_t count, uint8_t* to) {
  for (int64_t i = 0; i < count; ++i) {
    int32_t bits;
    std::memcpy(&bits, from + i, sizeof(bits));
    to[i] = bits & 1;
  }
}

bool is_direct(const Source& source) { return source.kind == Source::Kind::Direct && !source.is_mask; }

}  // namespace

// A block is of whole vectors, read and written in place where that can be; or it is less than a vector, and copied.
void run(const Loop& loop, const void* const* sources, void* const* results, int64_t begin, int64_t end) {
  alignas(64) float memory[kMemory + kWidth];
  alignas(64) float vectors[kMostSlots][kWidth];
  Slot slots[kMostSlots];
  const auto source_count = static_cast<int64_t>(loop.sources.size()),
             result_count = static_cast<int64_t>(loop.results_are_masks.size());
  const int64_t first_register = source_count + static_cast<int64_t>(loop.constants.size()),
                first_result = first_register + loop.registers;

  int64_t buffers = loop.registers, in_place = 0;
  for (const Source& source : loop.sources) {
    buffers += !is_direct(source) && source.kind != Source::Kind::Splat;
    in_place += is_direct(source);
  }
  for (const bool is_mask : loop.results_are_masks) ++(is_mask ? buffers : in_place);
  const int64_t block =
      std::min(kLargestBlock, kMemory / std::max<int64_t>(buffers + in_place / 2, 1)) / kWidth * kWidth;

  const auto splat = [&](int64_t slot, float value) {
    Vec(value).store(vectors[slot]);
    slots[slot] = {vectors[slot], kSplat};
  };
  for (int64_t i = 0; i < source_count; ++i) {
    if (loop.sources[i].kind == Source::Kind::Splat) splat(i, element(loop.sources[i], sources[i], 0));
  }
  for (int64_t i = source_count; i < first_register; ++i) splat(i, loop.constants[i - source_count]);

  while (begin < end) {
    int64_t count = std::min(block, end - begin);
    for (const Source& source : loop.sources) {
      if (has_long_runs(source)) count = std::min(count, source.sizes.back() - begin % source.sizes.back());
    }
    if (count >= kWidth) count -= count % kWidth;
    const bool whole = count >= kWidth;
    float* next = memory;
    const auto buffer = [&](int64_t slot) -> Slot {
      if (!whole) return {vectors[slot], kAll};
      next += block;
      return {next - block, kAll};
    };
    for (int64_t i = 0; i < source_count; ++i) {
      const Source& source = loop.sources[i];
      if (source.kind == Source::Kind::Splat) continue;
      const bool in_run = has_long_runs(source);
      const int64_t step = in_run ? source.strides.back() : 1;
      if (in_run && step == 0) {
        splat(i, element(source, sources[i], offset(source, begin)));
      } else if (whole && !source.is_mask && step == 1 && (in_run || is_direct(source))) {
        const int64_t at = in_run ? offset(source, begin) : begin;
        slots[i] = {const_cast<float*>(static_cast<const float*>(sources[i])) + at, kAll};
      } else {
        slots[i] = buffer(i);
        load(source, sources[i], begin, count, slots[i].data, whole);
        if (!whole) std::fill(slots[i].data + count, slots[i].data + kWidth, 1.0F);
      }
    }
    for (int64_t i = first_register; i < first_result; ++i) slots[i] = buffer(i);
    for (int64_t i = 0; i < result_count; ++i) {
      const bool in_memory = whole && !loop.results_are_masks[i];
      slots[first_result + i] =
          in_memory ? Slot{static_cast<float*>(results[i]) + begin, kAll} : buffer(first_result + i);
    }
    // What is read and then written in the same memory may be in another processor's cache: it is fetched once.
    for (int64_t i = 0; i < result_count && whole; ++i) {
      if (loop.results_are_masks[i]) continue;
      const auto* const to = static_cast<const float*>(results[i]) + begin;
      for (int64_t at = 0; at < count; at += kCacheLine) __builtin_prefetch(to + at, /*rw=*/1);
    }
    for (const Step& step : loop.steps) compute(step, slots, whole ? count : kWidth);
    for (int64_t i = 0; i < result_count; ++i) {
      const float* const data = slots[first_result + i].data;
      if (loop.results_are_masks[i]) {
        store_mask(data, count, static_cast<uint8_t*>(results[i]) + begin);
      } else if (!whole) {
        std::copy_n(data, count, static_cast<float*>(results[i]) + begin);
      }
    }
    begin += count;
  }
}

}  // namespace onnxtorch::chain::CPU_CAPABILITY
