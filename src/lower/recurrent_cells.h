// One step of a recurrent layer's cell, for rows that lie one after another, on one thread.
#pragma once

#include <cstdint>

namespace onnxtorch {

// What the input and the hidden state give for the gates, each of `size` floats for each row, in ATen's order.
struct Gates {
  const float *input, *hidden;
};

// They leave the next hidden state in `h`, and the next cell state in `c`.
void lstm_step(const Gates& gates, float* h, float* c, int64_t rows, int64_t size);
// With the reset gate applied to what the hidden state gives (linear_before_reset).
void gru_step(const Gates& gates, float* h, int64_t rows, int64_t size);
// With the reset gate applied to the hidden state, in two steps; ONNX's order of the gates. The first puts what is left
// of the state into `kept`, and needs what that gives for the hidden gate alone to go on: `candidate`.
struct ResetGates {
  const float* input;  // update, reset, hidden gate
  float* hidden;       // update, reset; the first step leaves the update gate there
};
void reset_step(const ResetGates& gates, const float* h, float* kept, int64_t rows, int64_t size);
void update_step(const ResetGates& gates, const float* candidate, float* h, int64_t rows, int64_t size);
void tanh_step(const Gates& gates, float* h, int64_t rows, int64_t size);
void relu_step(const Gates& gates, float* h, int64_t rows, int64_t size);

}  // namespace onnxtorch
