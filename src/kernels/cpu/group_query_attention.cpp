#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "base/grown_in_place.h"
#include "base/parallel.h"
#include "base/planned_call.h"
#include "base/registered.h"
#include "base/work_memory.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/call_script.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/operators.h"
#include "kernels/simd/rotary.h"

namespace onnxtorch {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Result = std::tuple<Tensor, Tensor, Tensor>;

struct Settings {
  bool causal, do_rotary, interleaved;
  int64_t window;  // the number of keys; negative: no window
  std::optional<double> scale;
  double softcap;
  bool smooth_softmax;
};

// The tensors, of which the optional ones may be undefined; the queries, keys and values are [batch, heads, rows,
// size].
struct Operands {
  Tensor query, key, value, past_key, past_value, lengths, total, cos, sin, positions, sink;
};

// The rows of a tensor of [batch, heads, rows, size]: where the first one is, and the strides in elements.
struct HeadRows {
  char* data = nullptr;
  int64_t batch = 0, head = 0, row = 0;

  static HeadRows of(const Tensor& t) {
    return t.defined() ? HeadRows{static_cast<char*>(const_cast<void*>(t.const_data_ptr())), t.stride(0), t.stride(1),
                                  t.stride(2)}
                       : HeadRows();
  }

  template <typename T>
  T* at(int64_t b, int64_t h, int64_t r) const {
    return reinterpret_cast<T*>(data) + b * batch + h * head + r * row;
  }
};

// Integers of either type that ONNX has for lengths and positions.
struct Numbers {
  const char* data = nullptr;
  bool is_long = false;

  static Numbers of(const Tensor& t) {
    return t.defined() ? Numbers{static_cast<const char*>(t.const_data_ptr()), t.scalar_type() == c10::kLong}
                       : Numbers();
  }

  int64_t operator[](int64_t i) const {
    return is_long ? reinterpret_cast<const int64_t*>(data)[i] : reinterpret_cast<const int32_t*>(data)[i];
  }
};

// Attention of some new rows of each sequence to the rows of its past and to themselves, which go behind the past.
struct CachedWork {
  Settings settings;
  c10::ScalarType type;
  int64_t batch, heads, shared, rows, key_size, value_size;
  int64_t past_rows, capacity;  // rows of the buffers: of the past, 0 where there is none, and of the present
  bool has_past;
  int64_t angles = 0, most_positions = 0;  // columns and rows of the tables of cosines and sines
  int64_t given_positions = 0;
  HeadRows query = {}, key = {}, value = {}, past_key = {}, past_value = {}, present_key = {}, present_value = {},
           result = {};
  Numbers lengths = {}, total = {}, positions = {};
  const char *cos = nullptr, *sin = nullptr, *sink = nullptr;
};

struct Sequence {
  int64_t length;  // with the new rows
  int64_t start;   // the index of the first of these in the sequence
  int64_t offset;  // and in the present
};

// Gives where each sequence's new rows go, as the script does that this operator stands for: a prompt starts anew,
// whatever the past holds.
std::vector<Sequence> sequences_of(const CachedWork& work) {
  const int64_t total = work.total[0], capacity = std::max(total, work.past_rows),
                most = work.has_past ? work.past_rows : capacity;
  if (capacity != work.capacity) throw OtherForm("total_sequence_length asks for another size of the present");
  const bool is_prompt = work.rows == total;
  std::vector<Sequence> sequences;
  for (int64_t b = 0; b < work.batch; ++b) {
    const int64_t length = std::clamp<int64_t>(work.lengths[b], -1, capacity) + 1,
                  start = is_prompt ? 0 : length - work.rows;
    TORCH_CHECK(start >= 0 && length >= 1, "seqlens_k counts fewer keys than there are queries");
    TORCH_CHECK(length <= capacity && start <= most,
                "seqlens_k counts more keys than past_key and total_sequence_length have");
    sequences.push_back({length, start, work.has_past ? start : 0});
  }
  return sequences;
}

// Gives the position of each row, and checks that the tables have it. Of a prompt's given positions only the first one
// is used.
std::vector<int64_t> positions_of(const CachedWork& work, std::span<const Sequence> sequences) {
  std::vector<int64_t> positions;
  const bool is_given = work.given_positions > 0, is_prompt = work.rows == work.total[0];
  for (int64_t b = 0; b < work.batch; ++b) {
    for (int64_t r = 0; r < work.rows; ++r) {
      const int64_t own = (b * work.rows + r) % std::max<int64_t>(work.given_positions, 1);
      const int64_t position = !is_given   ? sequences[b].start + r
                               : is_prompt ? std::min(work.positions[0], work.most_positions) + r
                                           : work.positions[own];
      TORCH_CHECK(position >= 0 && position < work.most_positions, "the position ", position,
                  " is out of range: cos_cache and sin_cache have ", work.most_positions, " rows");
      positions.push_back(position);
    }
  }
  return positions;
}

Tensor blob(const char* data, at::IntArrayRef sizes, at::IntArrayRef strides, c10::ScalarType type) {
  return at::from_blob(const_cast<char*>(data), sizes, strides, type);
}

// The cosines and sines for each element of a row; the elements of a pair have the same ones.
class Angles {
 public:
  Angles(const CachedWork& work, std::span<const Sequence> sequences) : size_(2 * work.angles), rows_(work.rows) {
    if (!work.settings.do_rotary) return;
    const auto& kernels = for_this_cpu<RotaryKernels>();
    turn_ = work.settings.interleaved ? kernels.turn_pairs : kernels.turn_halves;
    const std::vector<int64_t> positions = positions_of(work, sequences);
    factors_.resize(2 * positions.size() * size_);
    const int64_t bytes = static_cast<int64_t>(c10::elementSize(work.type)) * work.angles;
    std::vector<float> row(work.angles);
    for (size_t i = 0; i < positions.size(); ++i) {
      for (const auto& [table, to] : {std::pair(work.cos, cos(i)), std::pair(work.sin, sin(i))}) {
        const char* const from = table + positions[i] * bytes;
        if (work.type == c10::kFloat) {
          std::memcpy(row.data(), from, bytes);
        } else {
          at::from_blob(row.data(), {work.angles}, c10::kFloat).copy_(blob(from, {work.angles}, {1}, work.type));
        }
        for (int64_t a = 0; a < work.angles; ++a) {
          const bool pairs = work.settings.interleaved;
          to[pairs ? 2 * a : a] = to[pairs ? 2 * a + 1 : work.angles + a] = row[a];
        }
      }
    }
  }

  // Turns a row of so many elements, of which the first ones have angles; the others are copied.
  void turn(const float* x, float* y, int64_t size, int64_t batch, int64_t row) {
    if (!turn_) {
      if (x != y) std::memcpy(y, x, size * sizeof(float));
      return;
    }
    const auto number = static_cast<size_t>(batch * rows_ + row);
    turn_(x, cos(number), sin(number), y, size_ / 2);
    if (x != y) std::memcpy(y + size_, x + size_, (size - size_) * sizeof(float));
  }

 private:
  float* cos(size_t row) { return factors_.data() + 2 * row * size_; }
  float* sin(size_t row) { return cos(row) + size_; }

  decltype(RotaryKernels::turn_halves) turn_ = nullptr;
  int64_t size_, rows_;
  std::vector<float> factors_;
};

// Copies what a head of the past has, up to where new rows go, and writes zeros behind these. Where the present lies in
// the past's memory, the past is there already, and what lies behind stays as it is.
void keep_past(const HeadRows& past, const HeadRows& present, int64_t size, int64_t b, int64_t head,
               const Sequence& sequence, const CachedWork& work) {
  if (past.data == present.data) return;
  const auto bytes = static_cast<int64_t>(c10::elementSize(work.type));
  const auto at = [&](const HeadRows& rows, int64_t row) {
    return rows.data + (b * rows.batch + head * rows.head + row * rows.row) * bytes;
  };
  const int64_t end = sequence.offset + work.rows;
  if (sequence.offset > 0) std::memcpy(at(present, 0), at(past, 0), sequence.offset * size * bytes);
  std::memset(at(present, end), 0, (work.capacity - end) * size * bytes);
}

// Appends the new keys, turned, and the new values to the past.
void append(const CachedWork& work, std::span<const Sequence> sequences, Angles& angles) {
  const int64_t size = work.key_size + work.value_size;
  const bool is_in_place = work.past_key.data == work.present_key.data;
  parallel_for(
      work.batch * work.shared, size * (is_in_place ? work.rows : work.capacity), [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
          const int64_t b = i / work.shared, head = i % work.shared;
          const Sequence& to = sequences[b];
          keep_past(work.past_key, work.present_key, work.key_size, b, head, to, work);
          keep_past(work.past_value, work.present_value, work.value_size, b, head, to, work);
          if (work.type == c10::kFloat) {
            for (int64_t r = 0; r < work.rows; ++r) {
              angles.turn(work.key.at<float>(b, head, r), work.present_key.at<float>(b, head, to.offset + r),
                          work.key_size, b, r);
              std::memcpy(work.present_value.at<float>(b, head, to.offset + r), work.value.at<float>(b, head, r),
                          work.value_size * sizeof(float));
            }
            continue;
          }
          using Half = uint16_t;
          const auto of = [&](const HeadRows& rows, int64_t row, int64_t size_of_row) {
            return blob(reinterpret_cast<const char*>(rows.at<Half>(b, head, row)), {work.rows, size_of_row},
                        {rows.row, 1}, work.type);
          };
          const Tensor key =
              of(work.key, 0, work.key_size).to(c10::kFloat, false, /*copy=*/true, at::MemoryFormat::Contiguous);
          auto* const data = key.mutable_data_ptr<float>();
          for (int64_t r = 0; r < work.rows; ++r)
            angles.turn(data + r * work.key_size, data + r * work.key_size, work.key_size, b, r);
          of(work.present_key, to.offset, work.key_size).copy_(key);
          of(work.present_value, to.offset, work.value_size).copy_(of(work.value, 0, work.value_size));
        }
      });
}

// Gives a sequence's queries, turned, as floats; those that are so already stay where they are.
Matrices queries_of(const CachedWork& work, int64_t b, Angles& angles, Tensor& memory) {
  const bool is_float = work.type == c10::kFloat;
  HeadRows from = work.query;
  from.data += b * from.batch * static_cast<int64_t>(c10::elementSize(work.type));
  if (!is_float || work.settings.do_rotary) {
    memory = work_tensor({work.heads, work.rows, work.key_size}, c10::kFloat);
    auto* const turned = memory.mutable_data_ptr<float>();
    if (!is_float) {
      memory.copy_(blob(from.data, {work.heads, work.rows, work.key_size}, {from.head, from.row, 1}, work.type));
      from = HeadRows::of(memory.unsqueeze(0));
    }
    parallel_for(work.heads * work.rows, 4 * work.key_size, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t head = i / work.rows, row = i % work.rows;
        angles.turn(from.at<float>(0, head, row), turned + i * work.key_size, work.key_size, b, row);
      }
    });
    from = HeadRows::of(memory.unsqueeze(0));
  }
  const int64_t group = work.heads / work.shared;
  return {reinterpret_cast<const float*>(from.data), {group * from.head, from.head, from.row, 1}};
}

// The part of a sequence's attention to the keys and values of some heads: where the queries, the keys, the values and
// the results begin, all as floats.
struct Part {
  const float *query, *keys, *values;
  float* result;
  int64_t heads, first_head;  // of keys and values
};

AttentionWork attention_of(const CachedWork& work, const Sequence& sequence, const Matrices& queries, const Part& part,
                           const std::vector<float>& sinks) {
  const int64_t group = work.heads / work.shared;
  const Settings& settings = work.settings;
  const auto of_cache = [&](const float* data, const HeadRows& cache) {
    return Matrices{data, {cache.head, 0, cache.row, 1}};
  };
  const int64_t result_row = work.heads * work.value_size;
  return {
      .batch = {part.heads, group},
      .rows = work.rows,
      .query = {part.query, queries.strides},
      .keys = of_cache(part.keys, work.present_key),
      .values = of_cache(part.values, work.present_value),
      .mask = {},
      .result = {part.result, {group * work.value_size, work.value_size, result_row, 1}},
      .sizes = {.count = sequence.length,
                .key_size = work.key_size,
                .value_size = work.value_size,
                .scale = static_cast<float>(settings.scale.value_or(1 / std::sqrt(static_cast<double>(work.key_size)))),
                .nan = NanRows::ZeroWhereHidden,
                .softcap = static_cast<float>(settings.softcap)},
      .keys_of_first = settings.causal ? std::optional(sequence.offset + 1) : std::nullopt,
      .window = settings.window < 0 ? kNoWindow : settings.window,
      .sinks = sinks.empty() ? nullptr : sinks.data() + part.first_head * group};
}

// Attends head by head: keys and values of 16 bits become floats in a thread's cache.
void attend_to_halves(const CachedWork& work, const Sequence& sequence, int64_t b, const Matrices& queries,
                      const std::vector<float>& sinks) {
  const int64_t group = work.heads / work.shared, size = work.key_size + work.value_size;
  const Tensor result = work_tensor({work.rows, work.heads * work.value_size}, c10::kFloat);
  auto* const data = result.mutable_data_ptr<float>();
  parallel_for(work.shared, group * work.rows * sequence.length * size, [&](int64_t first, int64_t last) {
    const Tensor memory = work_tensor({sequence.length * size}, c10::kFloat);
    const Tensor keys = memory.narrow(0, 0, sequence.length * work.key_size).view({sequence.length, work.key_size});
    const Tensor values =
        memory.narrow(0, keys.numel(), sequence.length * work.value_size).view({sequence.length, work.value_size});
    for (int64_t head = first; head < last; ++head) {
      const auto widen = [&](const HeadRows& cache, const Tensor& to) {
        const auto* const from = reinterpret_cast<const char*>(cache.at<uint16_t>(b, head, 0));
        to.copy_(blob(from, to.sizes(), {cache.row, 1}, work.type));
      };
      widen(work.present_key, keys);
      widen(work.present_value, values);
      attend(attention_of(work, sequence, queries,
                          {.query = queries.data + head * queries.strides[0],
                           .keys = keys.const_data_ptr<float>(),
                           .values = values.const_data_ptr<float>(),
                           .result = data + head * group * work.value_size,
                           .heads = 1,
                           .first_head = head},
                          sinks));
    }
  });
  const auto* const to = reinterpret_cast<const char*>(work.result.at<uint16_t>(b, 0, 0));
  blob(to, result.sizes(), result.strides(), work.type).copy_(result);
}

void compute(const CachedWork& work) {
  const std::vector<Sequence> sequences = sequences_of(work);
  Angles angles(work, sequences);
  append(work, sequences, angles);
  std::vector<float> sinks(work.sink || work.settings.smooth_softmax ? work.heads : 0);
  if (work.sink)
    at::from_blob(sinks.data(), {work.heads}, c10::kFloat).copy_(blob(work.sink, {work.heads}, {1}, work.type));
  for (int64_t b = 0; b < work.batch; ++b) {
    Tensor memory;
    const Matrices queries = queries_of(work, b, angles, memory);
    if (work.type != c10::kFloat) {
      attend_to_halves(work, sequences[b], b, queries, sinks);
      continue;
    }
    attend(attention_of(work, sequences[b], queries,
                        {.query = queries.data,
                         .keys = work.present_key.at<float>(b, 0, 0),
                         .values = work.present_value.at<float>(b, 0, 0),
                         .result = work.result.at<float>(b, 0, 0),
                         .heads = work.shared,
                         .first_head = 0},
                        sinks));
  }
}

bool is_whole_number(const Tensor& t) {
  return t.is_cpu() && t.is_contiguous() && (t.scalar_type() == c10::kInt || t.scalar_type() == c10::kLong);
}

// Gives the work as far as sizes and strides decide it; none where the script is to compute it, or to refuse it.
std::optional<CachedWork> work_of(const Operands& in, const Settings& settings) {
  const c10::ScalarType type = in.query.scalar_type();
  const auto fits = [&](const Tensor& t, int64_t dims) {
    return t.is_cpu() && t.layout() == c10::kStrided && t.scalar_type() == type && t.numel() > 0 && t.dim() == dims &&
           (t.stride(-1) == 1 || t.size(-1) == 1);
  };
  const bool is_taken = type == c10::kFloat || type == c10::kHalf || type == c10::kBFloat16;
  if (!is_taken || !fits(in.query, 4) || !fits(in.key, 4) || !fits(in.value, 4)) return {};
  CachedWork work{.settings = settings,
                  .type = type,
                  .batch = in.query.size(0),
                  .heads = in.query.size(1),
                  .shared = in.key.size(1),
                  .rows = in.query.size(2),
                  .key_size = in.query.size(3),
                  .value_size = in.value.size(3),
                  .past_rows = 0,
                  .capacity = 0,
                  .has_past = in.past_key.defined()};
  const auto is_of = [&](const Tensor& t, int64_t size) {
    return t.size(0) == work.batch && t.size(1) == work.shared && t.size(3) == size;
  };
  if (!is_of(in.key, work.key_size) || !is_of(in.value, work.value_size) || in.key.size(2) != work.rows ||
      in.value.size(2) != work.rows || work.heads % work.shared != 0) {
    return {};
  }
  if (!is_whole_number(in.lengths) || in.lengths.numel() != work.batch || !is_whole_number(in.total) ||
      in.total.numel() != 1) {
    return {};
  }
  if (work.has_past != in.past_value.defined()) return {};
  if (work.has_past) {
    const auto is_past = [&](const Tensor& t, int64_t size) {
      return t.is_cpu() && t.scalar_type() == type && t.dim() == 4 && is_of(t, size) &&
             (t.numel() == 0 || (t.stride(3) == 1 && t.stride(2) == size));
    };
    if (!is_past(in.past_key, work.key_size) || !is_past(in.past_value, work.value_size) ||
        in.past_key.size(2) != in.past_value.size(2)) {
      return {};
    }
    work.past_rows = in.past_key.size(2);
  }
  if (settings.do_rotary) {
    if (!in.cos.defined() || !in.sin.defined() || !fits(in.cos, 2) || !fits(in.sin, 2) || !in.cos.is_contiguous() ||
        !in.sin.is_contiguous() || in.cos.sizes() != in.sin.sizes() || 2 * in.cos.size(1) > work.key_size) {
      return {};
    }
    work.angles = in.cos.size(1);
    work.most_positions = in.cos.size(0);
    if (in.positions.defined()) {
      const int64_t count = in.positions.numel(), all = work.batch * work.rows;
      const bool has_all = in.positions.dim() == 2 && in.positions.size(1) == work.rows &&
                           (in.positions.size(0) == work.batch || in.positions.size(0) == 1);
      if (!is_whole_number(in.positions) || !has_all || all % count != 0) return {};
      work.given_positions = count;
    }
  }
  if (in.sink.defined() && (!fits(in.sink, 1) || in.sink.numel() != work.heads)) return {};
  work.query = HeadRows::of(in.query);
  work.key = HeadRows::of(in.key);
  work.value = HeadRows::of(in.value);
  work.past_key = HeadRows::of(in.past_key);
  work.past_value = HeadRows::of(in.past_value);
  const auto data = [](const Tensor& t) {
    return t.defined() ? static_cast<const char*>(t.const_data_ptr()) : nullptr;
  };
  work.cos = data(in.cos);
  work.sin = data(in.sin);
  work.sink = data(in.sink);
  work.lengths = Numbers::of(in.lengths);
  work.total = Numbers::of(in.total);
  work.positions = Numbers::of(in.positions);
  return work;
}

void set_results(CachedWork& work, const Tensor& result, const Tensor& present_key, const Tensor& present_value) {
  work.capacity = present_key.size(2);
  work.present_key = HeadRows::of(present_key);
  work.present_value = HeadRows::of(present_value);
  work.result = {static_cast<char*>(const_cast<void*>(result.const_data_ptr())), result.stride(0), work.value_size,
                 result.stride(1)};
}

// Runs the script, which is an operator, too.
Result by_script(const Operands& in, const Settings& settings) {
  const auto optional = [](const Tensor& t) { return t.defined() ? c10::IValue(t) : c10::IValue(); };
  std::vector<c10::IValue> stack{in.query,
                                 in.key,
                                 in.value,
                                 optional(in.past_key),
                                 optional(in.past_value),
                                 in.lengths,
                                 in.total,
                                 optional(in.cos),
                                 optional(in.sin),
                                 optional(in.positions),
                                 optional(in.sink),
                                 settings.causal,
                                 settings.do_rotary,
                                 settings.interleaved,
                                 settings.window,
                                 settings.scale ? c10::IValue(*settings.scale) : c10::IValue(),
                                 settings.softcap,
                                 settings.smooth_softmax};
  call_script("onnx_torch::plain_group_query_attention", stack);
  return {stack[0].toTensor(), stack[1].toTensor(), stack[2].toTensor()};
}

Result group_query_attention(const Tensor& q, const Tensor& k, const Tensor& v, const OptionalTensor& past_key,
                             const OptionalTensor& past_value, const Tensor& seqlens_k,
                             const Tensor& total_sequence_length, const OptionalTensor& cos_cache,
                             const OptionalTensor& sin_cache, const OptionalTensor& position_ids,
                             const OptionalTensor& head_sink, bool causal, bool do_rotary, bool rotary_interleaved,
                             int64_t local_window_size, std::optional<double> scale, double softcap,
                             bool smooth_softmax) {
  const auto tensor = [](const OptionalTensor& t) { return t.value_or(Tensor()); };
  const Operands in{q,
                    k,
                    v,
                    tensor(past_key),
                    tensor(past_value),
                    seqlens_k,
                    total_sequence_length,
                    tensor(cos_cache),
                    tensor(sin_cache),
                    tensor(position_ids),
                    tensor(head_sink)};
  const Settings settings{causal, do_rotary, rotary_interleaved, local_window_size, scale, softcap, smooth_softmax};
  auto work = work_of(in, settings);
  const int64_t capacity = work ? std::max(work->total[0], work->past_rows) : 0;
  constexpr int64_t kMostRows = int64_t{1} << 31;  // the type of total_sequence_length holds no more
  if (!work || capacity < 1 || capacity >= kMostRows || (!work->has_past && capacity < work->rows))
    return by_script(in, settings);
  const auto present = [&](const Tensor& past, int64_t size) {
    const std::vector<int64_t> sizes{work->batch, work->shared, capacity, size};
    if (past.defined()) {
      if (Tensor grown = grown_in_place(past, sizes); grown.defined()) return grown;
    }
    return work_tensor(sizes, work->type);
  };
  const Tensor result = work_tensor({work->batch, work->rows, work->heads * work->value_size}, work->type);
  const Tensor present_key = present(in.past_key, work->key_size),
               present_value = present(in.past_value, work->value_size);
  set_results(*work, result, present_key, present_value);
  compute(*work);
  return {result, present_key, present_value};
}

// Plans the attention. The plan relies on the present's size, which total_sequence_length decides.
std::unique_ptr<PlannedCall> plan(const PlannedOperands& of) {
  const auto tensor = [&](size_t i) { return of.tensor(i); };
  const Operands in{tensor(0), tensor(1), tensor(2), tensor(3), tensor(4), tensor(5),
                    tensor(6), tensor(7), tensor(8), tensor(9), tensor(10)};
  const auto& given = of.arguments;
  const Settings settings{
      given[11].toBool(),   given[12].toBool(), given[13].toBool(), given[14].toInt(), given[15].toOptional<double>(),
      given[16].toDouble(), given[17].toBool()};
  auto work = work_of(in, settings);
  if (!work || of.results[1].numel() == 0 || !of.results[1].is_contiguous() || !of.results[2].is_contiguous())
    return {};
  if (work->has_past && work->past_rows > 0 && (!in.past_key.is_contiguous() || !in.past_value.is_contiguous()))
    return {};
  set_results(*work, of.results[0], of.results[1], of.results[2]);
  std::vector<bool> is_there;
  for (size_t i = 0; i < 11; ++i) is_there.push_back(of.tensor(i).defined());
  return planned([work = *work, is_there](std::span<const TensorPlace> places) {
    CachedWork now = work;
    size_t next = 0;
    const auto place = [&](size_t argument) { return is_there[argument] ? places[next++].data : nullptr; };
    now.query.data = place(0);
    now.key.data = place(1);
    now.value.data = place(2);
    now.past_key.data = place(3);
    now.past_value.data = place(4);
    now.lengths.data = place(5);
    now.total.data = place(6);
    now.cos = place(7);
    now.sin = place(8);
    now.positions.data = place(9);
    now.sink = place(10);
    now.result.data = places[next].data;
    now.present_key.data = places[next + 1].data;
    now.present_value.data = places[next + 2].data;
    compute(now);
  });
}

}  // namespace

void register_group_query_attention() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def(
        "group_query_attention(Tensor q, Tensor k, Tensor v, Tensor? past_key, Tensor? past_value, Tensor seqlens_k, "
        "Tensor total_sequence_length, Tensor? cos_cache, Tensor? sin_cache, Tensor? position_ids, Tensor? head_sink, "
        "bool causal, bool do_rotary, bool rotary_interleaved, int local_window_size, float? scale, float softcap, "
        "bool smooth_softmax) -> (Tensor, Tensor, Tensor)",
        group_query_attention);
  });
  register_planner("onnx_torch::group_query_attention", plan);
}

}  // namespace onnxtorch
