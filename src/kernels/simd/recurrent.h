// One step of a recurrent layer's cell, for rows that lie one after another.
#pragma once

#include <cstdint>

#include "kernels/simd/inline.h"

namespace onnxtorch {

// The rows that take a step, with a state of `size` floats each. One that is past the end of its sequence keeps it.
struct SequenceRows {
  int64_t count, size;
  const bool* within;  // whether each row is within its sequence; null where all are

  ONNX_TORCH_INLINE bool past_end(int64_t row) const { return within && !within[row]; }
};

// The shares of the input and of the hidden state in the gates, each of `size` floats for each row, in ATen's order.
struct Gates {
  const float* input;
  float* hidden;
  const float* peepholes = nullptr;  // of an LSTM: the input, the forget and the output gate's, `size` floats each
};

// The kernels that take a step. They leave the next hidden state in `h`, and the next cell state in `c`.
struct RecurrentKernels {
  void (*lstm_step)(Gates gates, float* h, float* c, SequenceRows rows);
  // Applies the reset gate to what the hidden state gives (linear_before_reset).
  void (*gru_step)(Gates gates, float* h, SequenceRows rows);
  // Apply the reset gate to the hidden state, in two steps. The gates are in ONNX's order, the hidden state's without
  // the hidden gate. The first step puts what is left of all rows' states into `kept`, and the update gates in the
  // place of what they are computed from. The second needs what `kept` gives for the hidden gate: `candidate`.
  void (*reset_step)(Gates gates, const float* h, float* kept, SequenceRows rows);
  void (*update_step)(Gates gates, const float* candidate, float* h, SequenceRows rows);
  void (*tanh_step)(Gates gates, float* h, SequenceRows rows);
  void (*relu_step)(Gates gates, float* h, SequenceRows rows);

  static const RecurrentKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
