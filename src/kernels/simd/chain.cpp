#include "kernels/simd/chain.h"

#include <ATen/cpu/vec/functional.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/simd/chain_reductions.h"
#include "kernels/simd/vector_math.h"
#include "kernels/simd/vectors.h"

namespace onnxtorch::chain {
namespace {

using namespace CPU_CAPABILITY;
using namespace onnxtorch::CPU_CAPABILITY;

constexpr int64_t kMemory = 1 << 14;  // floats: what the level 1 cache holds besides inputs and results
constexpr int64_t kLargestBlock = 1 << 12;
constexpr int64_t kStreamedBlock = 1 << 9;  // so that memory is read while it is written
// A block ends where such a run of a strided source does, so that within the block the source is one element, or one
// run of elements.
constexpr int64_t kLongRun = 1 << 7;
constexpr int64_t kCacheLine = 16;  // floats

constexpr int64_t kAll = -1, kSplat = 0;  // masks of slots

// The place of a value's elements of the current block. A splat has one vector for all of them. Functions take slots by
// value, as the compiler would read a referred one again after each vector that is stored.
struct Slot {
  float* data;
  int64_t mask;

  bool is_splat() const { return mask == kSplat; }
  Vec operator[](int64_t i) const { return Vec::loadu(data + (i & mask)); }
};

// Stores what the function gives for each vector, which begins at the element that it is told.
template <typename F>
ONNX_TORCH_INLINE void store_each(Slot result, int64_t count, const F& f) {
  for (int64_t i = 0; i < count; i += kWidth) f(i).store(result.data + i);
}

// Applies a function to the elements of slots. Each case has a loop of its own, which is as short as it can be.
template <typename F>
void map(Slot result, int64_t count, Slot x, const F& f) {
  if (x.is_splat()) return store_each(result, count, [&, u = f(x[0])](int64_t) { return u; });
  store_each(result, count, [&](int64_t i) { return f(Vec::loadu(x.data + i)); });
}

template <typename F>
void map(Slot result, int64_t count, Slot x, Slot y, const F& f) {
  if (x.is_splat()) return store_each(result, count, [&, u = x[0]](int64_t i) { return f(u, y[i]); });
  if (y.is_splat()) return store_each(result, count, [&, v = y[0]](int64_t i) { return f(Vec::loadu(x.data + i), v); });
  store_each(result, count, [&](int64_t i) { return f(Vec::loadu(x.data + i), Vec::loadu(y.data + i)); });
}

template <typename F>
void map(Slot result, int64_t count, Slot x, Slot y, Slot z, const F& f) {
  store_each(result, count, [&](int64_t i) { return f(x[i], y[i], z[i]); });
}

// These functions compute as ATen's kernels do.
Vec six_capped(const Vec& x) { return at::vec::minimum(at::vec::maximum(x + Vec(3), Vec(0)), Vec(6)); }
Vec sign(const Vec& x) { return ((Vec(0) < x) & Vec(1)) - ((x < Vec(0)) & Vec(1)); }
Vec leaky_relu(const Vec& x, const Vec& slope) { return x * Vec::blendv(slope, Vec(1), x > Vec(0)); }

void compute(const Step& step, const Slot* slots, int64_t count) {
  const Slot r = slots[step.result], x = slots[step.operands[0]], y = slots[step.operands[1]],
             z = slots[step.operands[2]];
  const Vec a(step.a), b(step.b);
  switch (step.op) {
    case Op::Abs:
      return map(r, count, x, [](Vec u) { return u.abs(); });
    case Op::Neg:
      return map(r, count, x, [](Vec u) { return u.neg(); });
    case Op::Exp:
      return map(r, count, x, [](Vec u) { return exp(u); });
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
      return map(r, count, x, [](Vec u) { return sigmoid(u); });
    case Op::Tanh:
      return map(r, count, x, [](Vec u) { return tanh(u); });
    case Op::Erf:
      return map(r, count, x, [](Vec u) { return erf(u); });
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
      return map(r, count, x, [](Vec u) { return silu(u); });
    case Op::Gelu:
      return map(r, count, x, [](Vec u) { return gelu(u); });
    case Op::GeluTanh:
      return map(r, count, x, [](Vec u) { return gelu_tanh(u); });
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
    case Op::IsInf:
      return map(r, count, x, [](Vec u) { return u.abs() == Vec(std::numeric_limits<float>::infinity()); });
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

// Gives where an element of a strided source lies, by its index in the pass's order.
int64_t offset(const Source& source, int64_t number) {
  int64_t sum = 0;
  for (auto d = static_cast<int64_t>(source.sizes.size()) - 1; d >= 0; --d) {
    sum += number % source.sizes[d] * source.strides[d];
    number /= source.sizes[d];
  }
  return sum;
}

// Copies elements of a strided source to contiguous memory. Where `padded`, a vector after them may be written to as
// well.
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
  if (source.type == Type::Mask) {
    load(source, static_cast<const uint8_t*>(data), begin, count, to, padded);
  } else {
    load(source, static_cast<const float*>(data), begin, count, to, padded);
  }
}

float element(const Source& source, const void* data, int64_t at) {
  return source.type == Type::Mask ? as_float(static_cast<const uint8_t*>(data)[at])
                                   : static_cast<const float*>(data)[at];
}

void store_mask(const float* from, int64_t count, uint8_t* to) {
  for (int64_t i = 0; i < count; ++i) {
    int32_t bits;
    std::memcpy(&bits, from + i, sizeof(bits));
    to[i] = bits & 1;
  }
}

#if defined(CPU_CAPABILITY_AVX512)
void stream(const Vec& x, float* to) { _mm512_stream_ps(to, x); }
void end_streams() { _mm_sfence(); }
#elif defined(CPU_CAPABILITY_AVX2)
void stream(const Vec& x, float* to) { _mm256_stream_ps(to, x); }
void end_streams() { _mm_sfence(); }
#else
void stream(const Vec& x, float* to) { x.store(to); }
void end_streams() {}
#endif

// Writes past the caches. Otherwise each of its cache lines would be read before it is written.
void stream(const float* from, int64_t count, float* to) {
  constexpr uintptr_t kAlignment = kWidth * sizeof(float);
  int64_t i = 0;
  for (; i < count && reinterpret_cast<uintptr_t>(to + i) % kAlignment != 0; ++i) to[i] = from[i];
  for (; i + kWidth <= count; i += kWidth) stream(Vec::loadu(from + i), to + i);
  for (; i < count; ++i) to[i] = from[i];
}

bool is_direct(const Source& source) { return source.kind == Source::Kind::Direct && source.type == Type::Float; }

// A pass that is computed block by block. A block is of whole vectors, read and written in place where that can be; or
// it is less than a vector, and copied.
class Pass {
 public:
  Pass(const Loop& loop, const void* const* sources, void* const* results)
      : loop_(loop),
        sources_(sources),
        results_(results),
        source_count_(static_cast<int64_t>(loop.sources.size())),
        result_count_(static_cast<int64_t>(loop.result_types.size())),
        first_register_(source_count_ + static_cast<int64_t>(loop.constants.size())),
        first_result_(first_register_ + loop.registers),
        reductions_(loop, results + result_count_) {
    int64_t buffers = loop.registers, in_place = 0;
    for (const Source& source : loop.sources) {
      buffers += !is_direct(source) && source.kind != Source::Kind::Splat;
      in_place += is_direct(source);
    }
    for (int64_t i = 0; i < result_count_; ++i) ++(in_memory(i) ? in_place : buffers);
    const int64_t largest = loop.streams ? kStreamedBlock : kLargestBlock;
    block_ = std::min(largest, kMemory / std::max<int64_t>(buffers + in_place / 2, 1)) / kWidth * kWidth;
    for (int64_t i = 0; i < source_count_; ++i) {
      if (loop.sources[i].kind == Source::Kind::Splat) splat(i, element(loop.sources[i], sources[i], 0));
    }
    for (int64_t i = source_count_; i < first_register_; ++i) splat(i, loop.constants[i - source_count_]);
  }

  void elements(int64_t begin, int64_t end) {
    const bool is_reduced = !loop_.reductions.empty();
    if (is_reduced) reductions_.begin_at(begin);
    while (begin < end) {
      const int64_t count = block(begin, end);
      if (is_reduced) reduce(count);
      begin += count;
    }
  }

  void strips(int64_t begin, int64_t end) {
    const ReducedRows& rows = loop_.rows;
    const int64_t columns = rows.columns, parts = rows.parts(), strips = rows.strips();
    const auto row = [&](int64_t number) { return number / parts * rows.group + number % parts * rows.part; };
    if (strips == 1) return elements(row(begin) * columns, row(end) * columns);
    for (; begin < end; ++begin) {
      const int64_t number = begin / strips, column = begin % strips * kStrip;
      for (int64_t i = row(number); i < row(number + 1); ++i)
        elements(i * columns + column, i * columns + std::min(column + kStrip, columns));
    }
  }

 private:
  // Tells whether a result is written past the caches. What a source has fetched in any case is written where it is.
  bool is_streamed(int64_t result) const {
    return loop_.streams && loop_.result_types[result] == Type::Float &&
           std::find(sources_, sources_ + source_count_, results_[result]) == sources_ + source_count_;
  }

  bool in_memory(int64_t result) const { return loop_.result_types[result] == Type::Float && !is_streamed(result); }

  void splat(int64_t slot, float value) {
    Vec(value).store(vectors_[slot]);
    slots_[slot] = {vectors_[slot], kSplat};
  }

  // Computes as many of the elements as fit; returns their number.
  int64_t block(int64_t begin, int64_t end) {
    const int64_t count = block_size(begin, end);
    const bool whole = count >= kWidth;
    place_slots(begin, count, whole);
    if (whole) fetch_results(begin, count);
    for (const Step& step : loop_.steps) compute(step, slots_, whole ? count : kWidth);
    write_results(begin, count, whole);
    return count;
  }

  // Gives the size of a block, which is of whole vectors, or less than one.
  int64_t block_size(int64_t begin, int64_t end) const {
    int64_t count = std::min(block_, end - begin);
    for (const Source& source : loop_.sources) {
      if (has_long_runs(source)) count = std::min(count, source.sizes.back() - begin % source.sizes.back());
    }
    return count >= kWidth ? count - count % kWidth : count;
  }

  void place_slots(int64_t begin, int64_t count, bool whole) {
    float* next = memory_;
    const auto buffer = [&](int64_t slot) -> Slot {
      if (!whole) return {vectors_[slot], kAll};
      next += block_;
      return {next - block_, kAll};
    };
    for (int64_t i = 0; i < source_count_; ++i) {
      const Source& source = loop_.sources[i];
      if (source.kind == Source::Kind::Splat) continue;
      const bool in_run = has_long_runs(source);
      const int64_t step = in_run ? source.strides.back() : 1;
      if (in_run && step == 0) {
        splat(i, element(source, sources_[i], offset(source, begin)));
      } else if (whole && source.type == Type::Float && step == 1 && (in_run || is_direct(source))) {
        const int64_t at = in_run ? offset(source, begin) : begin;
        slots_[i] = {const_cast<float*>(static_cast<const float*>(sources_[i])) + at, kAll};
      } else {
        slots_[i] = buffer(i);
        load(source, sources_[i], begin, count, slots_[i].data, whole);
        if (!whole) std::fill(slots_[i].data + count, slots_[i].data + kWidth, 1.0F);
      }
    }
    for (int64_t i = first_register_; i < first_result_; ++i) slots_[i] = buffer(i);
    for (int64_t i = 0; i < result_count_; ++i) {
      slots_[first_result_ + i] =
          whole && in_memory(i) ? Slot{static_cast<float*>(results_[i]) + begin, kAll} : buffer(first_result_ + i);
    }
  }

  // Fetches for writing: what is read and then written in the same memory may be in another processor's cache, and is
  // so fetched once.
  void fetch_results(int64_t begin, int64_t count) const {
    for (int64_t i = 0; i < result_count_; ++i) {
      if (!in_memory(i)) continue;
      const auto* const to = static_cast<const float*>(results_[i]) + begin;
      for (int64_t at = 0; at < count; at += kCacheLine) __builtin_prefetch(to + at, /*rw=*/1);
    }
  }

  // Writes the results that were not computed in their place.
  void write_results(int64_t begin, int64_t count, bool whole) const {
    for (int64_t i = 0; i < result_count_; ++i) {
      const float* const data = slots_[first_result_ + i].data;
      if (loop_.result_types[i] == Type::Mask) {
        store_mask(data, count, static_cast<uint8_t*>(results_[i]) + begin);
      } else if (is_streamed(i)) {
        stream(data, count, static_cast<float*>(results_[i]) + begin);
      } else if (!whole) {
        std::copy_n(data, count, static_cast<float*>(results_[i]) + begin);
      }
    }
  }

  void reduce(int64_t count) {
    const float* elements[kMostReductions];
    for (size_t i = 0; i < loop_.reductions.size(); ++i) elements[i] = slots_[loop_.reductions[i].slot].data;
    reductions_.take(elements, count);
  }

  const Loop& loop_;
  const void* const* const sources_;
  void* const* const results_;
  const int64_t source_count_, result_count_, first_register_, first_result_;
  int64_t block_ = 0;
  alignas(64) float memory_[kMemory + kWidth];
  alignas(64) float vectors_[kMostSlots][kWidth];
  Reductions reductions_;
  Slot slots_[kMostSlots];
};

void run(const Loop& loop, const void* const* sources, void* const* results, int64_t begin, int64_t end) {
  Pass pass(loop, sources, results);
  loop.reductions.empty() ? pass.elements(begin, end) : pass.strips(begin, end);
  if (loop.streams) end_streams();
}

constexpr Kernels kKernels{.run = run};

}  // namespace

const Kernels Kernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch::chain
