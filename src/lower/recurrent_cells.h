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
void tanh_step(const Gates& gates, float* h, int64_t rows, int64_t size);
void relu_step(const Gates& gates, float* h, int64_t rows, int64_t size);

}  // namespace onnxtorch
