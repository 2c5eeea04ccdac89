// One pass over memory that computes a chain of element-wise operators, and reductions of what they give, block by
// block in cache.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/simd/inline.h"
#include "kernels/standard/element_wise.h"

namespace onnxtorch::chain {

// The layout of an input's elements, as the pass reads them.
struct Source {
  enum class Kind : uint8_t { Direct, Splat, Strided };
  Kind kind;
  Type type;                            // one that kernels for the CPU take: Float or Mask, which is of bytes
  std::vector<int64_t> sizes, strides;  // of the whole pass, where Strided
};

enum class Reducer : uint8_t { Sum, Maximum, Minimum };

struct Reduction {
  Reducer reducer;
  uint16_t slot;
  float divisor;  // of the results
};

// The number of columns that are reduced at a time.
constexpr int64_t kStrip = 1 << 11;

// The rows in which a pass's elements are reduced: in its order, those of a group become one. A large group is divided
// into parts, which each give a result.
struct ReducedRows {
  int64_t columns = 1;
  int64_t group = 1;  // of rows
  int64_t part = 1;   // of a group's rows, the last of which may be shorter

  ONNX_TORCH_INLINE int64_t parts() const { return (group + part - 1) / part; }
  ONNX_TORCH_INLINE int64_t strips() const { return (columns + kStrip - 1) / kStrip; }  // in a row
};

// A pass over memory. Its slots are sources, constants, registers, results; in this order.
struct Loop {
  std::vector<Source> sources;
  std::vector<float> constants;
  uint16_t registers = 0;
  std::vector<Type> result_types;
  std::vector<Step> steps;
  std::vector<Reduction> reductions;  // of values that steps give
  ReducedRows rows;
  bool gives_doubles = false;  // whether the reductions give doubles
  bool streams = false;        // whether results go past the caches, as none is as large

  ONNX_TORCH_INLINE uint64_t slots() const {
    return sources.size() + constants.size() + registers + result_types.size();
  }
};

constexpr uint64_t kMostSlots = 512;
// The most slots that may need memory of a block's size.
constexpr uint64_t kMostBuffers = 128;
constexpr uint64_t kMostReductions = 4;

struct Kernels {
  // Computes the elements from begin to end. Where the pass is reduced, these are indices of strips of parts; the
  // reductions' results, a row for each part, come after the others.
  void (*run)(const Loop& loop, const void* const* sources, void* const* results, int64_t begin, int64_t end);

  static const Kernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch::chain
