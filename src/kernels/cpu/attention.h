// Attention on the CPU, described by pointers and strides: which rows attend to which keys and values.
#pragma once

#include <c10/util/SmallVector.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/simd/attention.h"

namespace onnxtorch {

using Strides = c10::SmallVector<int64_t, 6>;

// A tensor's matrices, in the order of the result's: strides for each dimension of the batch, from row to row, and from
// column to column; 0 where a dimension is broadcast.
struct Matrices {
  const float* data;
  Strides strides;

  int64_t row() const { return strides.end()[-2]; }
  int64_t column() const { return strides.back(); }
};

// All that one call of attention computes. The memory is that of tensors that live as long.
struct AttentionWork {
  std::vector<int64_t> batch;  // sizes of the result's dimensions before the last two
  int64_t rows;
  Matrices query, keys, values;
  std::optional<Matrices> mask;
  Matrices result;
  Attended sizes;
  std::optional<int64_t> keys_of_first = {};  // where causal: the keys that the first row sees, each next row one more
  int64_t window = kNoWindow;                 // how many of the keys that a row sees it attends to: the last ones
  const float* sinks = nullptr;               // one for each of the batch's items

  int64_t count() const { return c10::multiply_integers(batch); }

  const float* at(const Matrices& m, int64_t number, int64_t row = 0) const {
    const float* data = m.data + row * m.row();
    for (size_t dim = batch.size(); dim-- > 0; number /= batch[dim]) data += number % batch[dim] * m.strides[dim];
    return data;
  }

  Attended attended(int64_t number) const {
    Attended to = sizes;
    to.keys = at(keys, number);
    to.values = at(values, number);
    to.key_stride = keys.row();
    to.value_stride = values.row();
    to.mask_stride = mask ? mask->column() : 0;
    to.sink = sinks ? sinks + number : nullptr;
    return to;
  }

  AttendingRows attending(int64_t number, int64_t first, int64_t rows_at_once) const {
    return {.query = at(query, number, first),
            .result = const_cast<float*>(at(result, number, first)),
            .mask = mask ? at(*mask, number, first) : nullptr,
            .count = rows_at_once,
            .query_stride = query.row(),
            .result_stride = result.row(),
            .mask_stride = mask ? mask->row() : 0,
            .keys_of_first = keys_of_first ? *keys_of_first + first : sizes.count,
            .window = window};
  }
};

void attend(const AttentionWork& work);

}  // namespace onnxtorch
