#include "kernels/simd/recurrent.h"

#include "kernels/simd/vector_math.h"

namespace onnxtorch {
namespace {

using namespace CPU_CAPABILITY;

// Elements of a row that fill a vector, or are its last ones. The gates of a row are `size` floats each, one after
// another.
struct GatePart {
  int64_t begin, count, size;

  ONNX_TORCH_INLINE Vec load(const float* x, int64_t gate = 0) const {
    return load_first(x + gate * size + begin, count, 0);
  }
  ONNX_TORCH_INLINE void store(const Vec& value, float* x, int64_t gate = 0) const {
    value.store(x + gate * size + begin, static_cast<int>(count));
  }
};

// Calls function(part) for each vector of a row.
template <typename F>
ONNX_TORCH_INLINE void for_each_part(int64_t size, const F& function) {
  in_vectors<float>(size, [&](int64_t begin, int64_t count)
                              __attribute__((always_inline)) { function(GatePart{begin, count, size}); });
}

template <bool kHasPeepholes>
ONNX_TORCH_INLINE void lstm_rows(const Gates& gates, float* h, float* c, const SequenceRows& rows) {
  const int64_t size = rows.size;
  const float *input = gates.input, *hidden = gates.hidden;
  for (int64_t row = 0; row < rows.count; ++row, input += 4 * size, hidden += 4 * size, h += size, c += size) {
    if (rows.past_end(row)) continue;
    for_each_part(size, [&](const GatePart& at) __attribute__((always_inline)) {
      const Vec before = at.load(c);
      Vec taken = at.load(input) + at.load(hidden);
      Vec kept = at.load(input, 1) + at.load(hidden, 1);
      Vec given = at.load(input, 3) + at.load(hidden, 3);
      if constexpr (kHasPeepholes) {
        taken = fmadd(at.load(gates.peepholes), before, taken);
        kept = fmadd(at.load(gates.peepholes, 1), before, kept);
      }
      const Vec fresh = tanh(at.load(input, 2) + at.load(hidden, 2));
      const Vec next = fmadd(sigmoid(kept), before, sigmoid(taken) * fresh);
      if constexpr (kHasPeepholes) given = fmadd(at.load(gates.peepholes, 2), next, given);
      at.store(next, c);
      at.store(sigmoid(given) * tanh(next), h);
    });
  }
}

void lstm_step(Gates gates, float* h, float* c, SequenceRows rows) {
  gates.peepholes ? lstm_rows<true>(gates, h, c, rows) : lstm_rows<false>(gates, h, c, rows);
}

// Computes fresh + update * (h - fresh).
ONNX_TORCH_INLINE Vec updated(const Vec& h, const Vec& fresh, const Vec& update) {
  return fmadd(update, h - fresh, fresh);
}

void gru_step(Gates gates, float* h, SequenceRows rows) {
  const int64_t size = rows.size;
  const float *input = gates.input, *hidden = gates.hidden;
  for (int64_t row = 0; row < rows.count; ++row, input += 3 * size, hidden += 3 * size, h += size) {
    if (rows.past_end(row)) continue;
    for_each_part(size, [&](const GatePart& at) __attribute__((always_inline)) {
      const Vec reset = sigmoid(at.load(input) + at.load(hidden));
      const Vec update = sigmoid(at.load(input, 1) + at.load(hidden, 1));
      const Vec fresh = tanh(fmadd(reset, at.load(hidden, 2), at.load(input, 2)));
      at.store(updated(at.load(h), fresh, update), h);
    });
  }
}

void reset_step(Gates gates, const float* h, float* kept, SequenceRows rows) {
  const int64_t size = rows.size;
  const float* input = gates.input;
  float* hidden = gates.hidden;
  for (int64_t row = 0; row < rows.count; ++row, input += 3 * size, hidden += 2 * size, h += size, kept += size) {
    for_each_part(size, [&](const GatePart& at) __attribute__((always_inline)) {
      at.store(sigmoid(at.load(input) + at.load(hidden)), hidden);
      at.store(sigmoid(at.load(input, 1) + at.load(hidden, 1)) * at.load(h), kept);
    });
  }
}

void update_step(Gates gates, const float* candidate, float* h, SequenceRows rows) {
  const int64_t size = rows.size;
  const float *input = gates.input, *update = gates.hidden;
  for (int64_t row = 0; row < rows.count; ++row, input += 3 * size, update += 2 * size, candidate += size, h += size) {
    if (rows.past_end(row)) continue;
    for_each_part(size, [&](const GatePart& at) __attribute__((always_inline)) {
      at.store(updated(at.load(h), tanh(at.load(input, 2) + at.load(candidate)), at.load(update)), h);
    });
  }
}

// Takes a step that is an activation of the sum alone.
template <typename Activation>
ONNX_TORCH_INLINE void activate(const Gates& gates, float* h, const SequenceRows& rows, const Activation& activation) {
  const int64_t size = rows.size;
  const float *input = gates.input, *hidden = gates.hidden;
  for (int64_t row = 0; row < rows.count; ++row, input += size, hidden += size, h += size) {
    if (rows.past_end(row)) continue;
    for_each_part(size, [&](const GatePart& at) __attribute__((always_inline)) {
      at.store(activation(at.load(input) + at.load(hidden)), h);
    });
  }
}

void tanh_step(Gates gates, float* h, SequenceRows rows) {
  activate(gates, h, rows, [](const Vec& x) __attribute__((always_inline)) { return tanh(x); });
}

void relu_step(Gates gates, float* h, SequenceRows rows) {
  activate(gates, h, rows, [](const Vec& x) __attribute__((always_inline)) { return at::vec::clamp_min(x, Vec(0)); });
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
