// Linear attention: a state takes the place of all keys and values, and each step changes it.
#pragma once

#include <cstdint>

namespace onnxtorch {

// The steps of one head for some columns of its values, which depend on no other column. The state has a row for each
// element of a key.
struct LinearAttentionSteps {
  int64_t steps, key_size;
  int64_t columns = 0;
  int64_t queries;  // of a step, which share the state
  struct Rows {     // a tensor's row of each step
    const float* data = nullptr;
    int64_t step = 0;  // stride

    const float* at(int64_t i) const { return data + i * step; }
  };
  Rows query, key, value;
  Rows decay;                   // factors of the state before each step
  int64_t decay_row;            // stride among them; 0 where one is for all rows of the state
  Rows beta;                    // how much of an update is made; null where it adds to what the state has for its key
  const float* past = nullptr;  // the state before the first step
  int64_t past_row;             // stride
  float* result = nullptr;      // [step][query][column]
  int64_t result_step, result_query;  // strides
  float* present = nullptr;           // the state after the last step, which may be `past`
  int64_t present_row;
};

struct LinearAttentionKernels {
  int64_t most_columns;
  // Does the steps. `room` is for key_size * most_columns numbers.
  void (*attend)(LinearAttentionSteps of, float* room);

  static const LinearAttentionKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
