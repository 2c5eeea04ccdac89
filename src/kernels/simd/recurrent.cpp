#include "kernels/simd/recurrent.h"

#include "kernels/simd/vector_math.h"

namespace onnxtorch {
namespace {

// The gates of a row are `size` floats each, one after another; none of what is passed overlaps.

template <bool kHasPeepholes>
ONNX_TORCH_INLINE void lstm_rows(const Gates& gates, float* __restrict h, float* __restrict c, const Rows& rows) {
  const int64_t size = rows.size;
  const float *input = gates.input, *hidden = gates.hidden;
  const float* const peepholes = gates.peepholes;
  for (int64_t row = 0; row < rows.count; ++row, input += 4 * size, hidden += 4 * size, h += size, c += size) {
    if (rows.past_end(row)) continue;
    for (int64_t i = 0; i < size; ++i) {
      float taken = input[i] + hidden[i];
      float kept = input[size + i] + hidden[size + i];
      float given = input[3 * size + i] + hidden[3 * size + i];
      if constexpr (kHasPeepholes) {
        taken += peepholes[i] * c[i];
        kept += peepholes[size + i] * c[i];
      }
      const float fresh = tanh_of(input[2 * size + i] + hidden[2 * size + i]);
      const float next = sigmoid_of(kept) * c[i] + sigmoid_of(taken) * fresh;
      if constexpr (kHasPeepholes) given += peepholes[2 * size + i] * next;
      c[i] = next;
      h[i] = sigmoid_of(given) * tanh_of(next);
    }
  }
}

void lstm_step(const Gates& gates, float* h, float* c, const Rows& rows) {
  gates.peepholes ? lstm_rows<true>(gates, h, c, rows) : lstm_rows<false>(gates, h, c, rows);
}

void gru_step(const Gates& gates, float* __restrict h, const Rows& rows) {
  const int64_t size = rows.size;
  const float *input = gates.input, *hidden = gates.hidden;
  for (int64_t row = 0; row < rows.count; ++row, input += 3 * size, hidden += 3 * size, h += size) {
    if (rows.past_end(row)) continue;
    for (int64_t i = 0; i < size; ++i) {
      const float reset = sigmoid_of(input[i] + hidden[i]);
      const float update = sigmoid_of(input[size + i] + hidden[size + i]);
      const float fresh = tanh_of(input[2 * size + i] + reset * hidden[2 * size + i]);
      h[i] = fresh + update * (h[i] - fresh);
    }
  }
}

void reset_step(const Gates& gates, const float* __restrict h, float* __restrict kept, const Rows& rows) {
  const int64_t size = rows.size;
  const float* input = gates.input;
  float* __restrict hidden = gates.hidden;
  for (int64_t row = 0; row < rows.count; ++row, input += 3 * size, hidden += 2 * size, h += size, kept += size) {
    for (int64_t i = 0; i < size; ++i) {
      hidden[i] = sigmoid_of(input[i] + hidden[i]);
      kept[i] = sigmoid_of(input[size + i] + hidden[size + i]) * h[i];
    }
  }
}

void update_step(const Gates& gates, const float* __restrict candidate, float* __restrict h, const Rows& rows) {
  const int64_t size = rows.size;
  const float *input = gates.input, *update = gates.hidden;
  for (int64_t row = 0; row < rows.count; ++row, input += 3 * size, update += 2 * size, candidate += size, h += size) {
    if (rows.past_end(row)) continue;
    for (int64_t i = 0; i < size; ++i) {
      const float fresh = tanh_of(input[2 * size + i] + candidate[i]);
      h[i] = fresh + update[i] * (h[i] - fresh);
    }
  }
}

void tanh_step(const Gates& gates, float* __restrict h, const Rows& rows) {
  const int64_t size = rows.size;
  const float *input = gates.input, *hidden = gates.hidden;
  for (int64_t row = 0; row < rows.count; ++row, input += size, hidden += size, h += size) {
    if (rows.past_end(row)) continue;
    for (int64_t i = 0; i < size; ++i) h[i] = tanh_of(input[i] + hidden[i]);
  }
}

void relu_step(const Gates& gates, float* __restrict h, const Rows& rows) {
  const int64_t size = rows.size;
  const float *input = gates.input, *hidden = gates.hidden;
  for (int64_t row = 0; row < rows.count; ++row, input += size, hidden += size, h += size) {
    if (rows.past_end(row)) continue;
    for (int64_t i = 0; i < size; ++i) {
      const float sum = input[i] + hidden[i];
      h[i] = sum < 0 ? 0 : sum;
    }
  }
}

constexpr RecurrentKernels kKernels{.lstm_step = lstm_step,
                                    .gru_step = gru_step,
                                    .reset_step = reset_step,
                                    .update_step = update_step,
                                    .tanh_step = tanh_step,
                                    .relu_step = relu_step};

}  // namespace

const RecurrentKernels RecurrentKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
