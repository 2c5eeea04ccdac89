#include "kernels/simd/linear_attention.h"

#include <cstring>

#include "kernels/simd/lanes.h"

namespace onnxtorch {
namespace {

using namespace CPU_CAPABILITY;

constexpr int64_t kVectors = 4, kColumns = kVectors * kLanes;

// A row of the state, of the values or of a result.
struct Row {
  Lanes vectors[kVectors] = {};

  ONNX_TORCH_INLINE static Row load(const float* from, int64_t columns) {
    Row row;
    copy(reinterpret_cast<float*>(row.vectors), from, columns);
    return row;
  }
  ONNX_TORCH_INLINE void store(float* to, int64_t columns) const {
    copy(to, reinterpret_cast<const float*>(vectors), columns);
  }

  // Copies so many columns, most often all, which takes no call.
  ONNX_TORCH_INLINE static void copy(float* to, const float* from, int64_t columns) {
    if (columns == kColumns) {
      std::memcpy(to, from, kColumns * sizeof(float));
    } else {
      std::memcpy(to, from, columns * sizeof(float));
    }
  }
};

// Adds up the rows of the state, each times its weight. Two sums do not wait for one another.
template <typename Weight>
ONNX_TORCH_INLINE Row weighted_sum(const float* state, int64_t rows, const Weight& weight) {
  Row sums[2];
  const auto add = [&](Row& sum, int64_t row) __attribute__((always_inline)) {
    const float factor = weight(row);
    const Lanes* const of_state = lanes(state + row * kColumns);
    for (int64_t v = 0; v < kVectors; ++v) sum.vectors[v] += factor * of_state[v];
  };
  int64_t row = 0;
  for (; row + 2 <= rows; row += 2) {
    add(sums[0], row);
    add(sums[1], row + 1);
  }
  if (row < rows) add(sums[0], row);
  for (int64_t v = 0; v < kVectors; ++v) sums[0].vectors[v] += sums[1].vectors[v];
  return sums[0];
}

// Lets the state decay, and adds the key times the update.
ONNX_TORCH_INLINE void change(float* state, int64_t rows, const float* decay, int64_t decay_row, const float* key,
                              const Row& update) {
  for (int64_t row = 0; row < rows; ++row) {
    const float factor = decay[row * decay_row], weight = key[row];
    auto* const of_state = reinterpret_cast<Lanes*>(state + row * kColumns);
    for (int64_t v = 0; v < kVectors; ++v) of_state[v] = of_state[v] * factor + weight * update.vectors[v];
  }
}

void attend(LinearAttentionSteps of, float* room) {
  for (int64_t row = 0; row < of.key_size; ++row)
    Row::load(of.past + row * of.past_row, of.columns).store(room + row * kColumns, kColumns);
  for (int64_t step = 0; step < of.steps; ++step) {
    const float *const key = of.key.at(step), *const decay = of.decay.at(step);
    Row update = Row::load(of.value.at(step), of.columns);
    if (of.beta.data) {  // the update replaces what the state has for the key
      const Row known = weighted_sum(room, of.key_size, [=](int64_t row) __attribute__((always_inline)) {
        return key[row] * decay[row * of.decay_row];
      });
      const float beta = *of.beta.at(step);
      for (int64_t v = 0; v < kVectors; ++v) update.vectors[v] = beta * (update.vectors[v] - known.vectors[v]);
    }
    change(room, of.key_size, decay, of.decay_row, key, update);
    for (int64_t i = 0; i < of.queries; ++i) {
      const float* const query = of.query.at(step) + i * of.key_size;
      weighted_sum(room, of.key_size, [=](int64_t row) __attribute__((always_inline)) {
        return query[row];
      }).store(of.result + step * of.result_step + i * of.result_query, of.columns);
    }
  }
  for (int64_t row = 0; row < of.key_size; ++row)
    Row::load(room + row * kColumns, kColumns).store(of.present + row * of.present_row, of.columns);
}

constexpr LinearAttentionKernels kKernels{.most_columns = kColumns, .attend = attend};

}  // namespace

const LinearAttentionKernels LinearAttentionKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
