#include "kernels/cpu/quantized/strips.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/own_pages.h"
#include "base/parallel.h"

namespace onnxtorch {
namespace {

constexpr int64_t kAlignment = 64, kMostColumns = kPanelColumns;
constexpr size_t kOpenGroups = 32;  // among which a place is sought for a step: more take longer, and gain little

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// A matrix, or columns of it.
struct Matrix {
  const int8_t* data;
  int64_t rows, columns, apart;
};

struct Step {
  uint16_t row = 0;  // the index of its four rows
  std::array<std::array<int8_t, kMostColumns>, kStepRows> weights{};
};

// The sums of the positive and of the negative weights that are added in the same 16 bits.
using Load = std::array<uint8_t, kStepRows * kMostColumns>;

Load load_of(const Step& step) {
  Load load;
  for (int64_t half = 0; half < 2; ++half) {
    const auto &first = step.weights[2 * half], &second = step.weights[2 * half + 1];
    uint8_t* const positive = load.data() + 2 * half * kMostColumns;
    for (int64_t c = 0; c < kMostColumns; ++c) {
      positive[c] = static_cast<uint8_t>(std::max<int>(first[c], 0) + std::max<int>(second[c], 0));
      positive[kMostColumns + c] =
          static_cast<uint8_t>(std::min(255, -std::min<int>(first[c], 0) - std::min<int>(second[c], 0)));
    }
  }
  return load;
}

// What a group may take yet: kMostWeight less its load.
using Room = Load;

// Tells whether a load fits the room. All is of 8 bits, so that the compiler compares 16 elements at once.
bool fits(const Load& load, const Room& room) {
  uint8_t excess = 0;
  for (size_t i = 0; i < load.size(); ++i) excess |= static_cast<uint8_t>(std::max(load[i], room[i]) - room[i]);
  return excess == 0;
}

uint8_t most(const Load& load) {
  uint8_t result = 0;
  for (const uint8_t one : load) result = std::max(result, one);
  return result;
}

// Takes half of the weights that are too much for one step.
Step take_excess(Step& step, const Load& load) {
  Step excess{.row = step.row};
  for (int64_t row = 0; row < kStepRows; ++row) {
    for (int64_t c = 0; c < kMostColumns; ++c) {
      int8_t& weight = step.weights[row][c];
      if (load[(row / 2 * 2 + (weight < 0 ? 1 : 0)) * kMostColumns + c] <= kMostWeight) continue;
      excess.weights[row][c] = static_cast<int8_t>(weight / 2);
      weight = static_cast<int8_t>(weight - weight / 2);
    }
  }
  return excess;
}

// The steps of a strip, and the groups that they are put into.
class Groups {
 public:
  explicit Groups(int64_t expected_steps) { steps_.reserve(expected_steps); }

  void add(const Step& step) {
    const Load load = load_of(step);
    const uint8_t highest = most(load);
    if (highest == 0) return;
    if (highest <= kMostWeight) return add(step, load);
    Step rest = step;
    const Step excess = take_excess(rest, load);
    add(rest, load_of(rest));
    add(excess, load_of(excess));
  }

  // Closes all groups, and gives the indices of their steps: those of groups of one step first, then of two, and so on.
  const std::array<std::vector<uint32_t>, kMostSteps>& by_size() {
    for (size_t i = 0; i < open_count_; ++i) close(open_[i]);
    open_count_ = 0;
    return closed_;
  }

  const Step& step(uint32_t index) const { return steps_[index]; }

 private:
  struct Group {
    Room room;
    std::array<uint32_t, kMostSteps> steps;
    int64_t count;

    void add(uint32_t step, const Load& load) {
      for (size_t i = 0; i < load.size(); ++i) room[i] -= load[i];
      steps[count++] = step;
    }
  };

  void add(const Step& step, const Load& load) {
    const auto index = static_cast<uint32_t>(steps_.size());
    steps_.push_back(step);
    for (size_t i = 0; i < open_count_; ++i) {
      Group& group = open_[i];
      if (!fits(load, group.room)) continue;
      group.add(index, load);
      if (group.count == kMostSteps) {
        close(group);
        group = open_[--open_count_];
      }
      return;
    }
    Group& group = opened();
    group.room.fill(kMostWeight);
    group.count = 0;
    group.add(index, load);
  }

  // Opens a group; where kOpenGroups are open, it closes one of them, each in its turn.
  Group& opened() {
    if (open_count_ < kOpenGroups) return open_[open_count_++];
    Group& group = open_[next_closed_++ % kOpenGroups];
    close(group);
    return group;
  }

  void close(const Group& group) {
    auto& to = closed_[group.count - 1];
    to.insert(to.end(), group.steps.begin(), group.steps.begin() + group.count);
  }

  std::vector<Step> steps_;
  std::array<Group, kOpenGroups> open_{};
  size_t open_count_ = 0, next_closed_ = 0;
  std::array<std::vector<uint32_t>, kMostSteps> closed_;
};

// Gives the weights of a step with the four of a column beside each other, the first row's in the lowest byte.
std::array<uint32_t, kMostColumns> by_column(const Step& step) {
  const auto byte = [&](int64_t row, int64_t column) {
    return uint32_t{static_cast<uint8_t>(step.weights[row][column])};
  };
  std::array<uint32_t, kMostColumns> result;
  for (int64_t c = 0; c < kMostColumns; ++c)
    result[c] = byte(0, c) | byte(1, c) << 8 | byte(2, c) << 16 | byte(3, c) << 24;
  return result;
}

// The beginning of a strip's memory, which tells where its parts lie, and how long it is.
struct Header {
  int32_t groups[kMostSteps];
  int32_t totals[kMostColumns];
  int32_t steps;

  static constexpr int64_t kRowsAt = kMostColumns * 8;
  int64_t steps_at() const { return aligned(kRowsAt + steps * static_cast<int64_t>(sizeof(uint16_t))); }
  int64_t bytes(int64_t columns) const { return aligned(steps_at() + steps * kStepRows * columns); }
};
static_assert(sizeof(Header) <= Header::kRowsAt && Header::kRowsAt % kAlignment == 0);

std::vector<uint8_t> laid_out(const Matrix& m, int64_t columns) {
  Groups groups((m.rows + kStepRows - 1) / kStepRows);
  Header header{};
  for (int64_t row = 0; row < m.rows; row += kStepRows) {
    Step step{.row = static_cast<uint16_t>(row / kStepRows)};
    for (int64_t r = 0; r < std::min(kStepRows, m.rows - row); ++r) {
      auto& weights = step.weights[r];
      std::copy_n(m.data + (row + r) * m.apart, m.columns, weights.begin());
      for (int64_t c = 0; c < kMostColumns; ++c) header.totals[c] += weights[c];
    }
    groups.add(step);
  }
  const auto& by_size = groups.by_size();
  for (size_t i = 0; i < by_size.size(); ++i) {
    header.groups[i] = static_cast<int32_t>(by_size[i].size() / (i + 1));
    header.steps += static_cast<int32_t>(by_size[i].size());
  }
  std::vector<uint8_t> result(header.bytes(columns));
  std::memcpy(result.data(), &header, sizeof(header));
  auto* row = reinterpret_cast<uint16_t*>(result.data() + Header::kRowsAt);
  uint8_t* weights = result.data() + header.steps_at();
  for (const std::vector<uint32_t>& steps : by_size) {
    for (const uint32_t index : steps) {
      const Step& step = groups.step(index);
      *row++ = step.row;
      std::memcpy(weights, by_column(step).data(), kStepRows * columns);
      weights += kStepRows * columns;
    }
  }
  return result;
}

const Header& header_at(const at::Tensor& bytes, int64_t number) {
  const auto* const from = static_cast<const uint8_t*>(bytes.const_data_ptr());
  return *reinterpret_cast<const Header*>(from + reinterpret_cast<const int64_t*>(from)[number]);
}

}  // namespace

at::Tensor in_strips(const at::Tensor& matrices, int64_t strip_columns) {
  const int64_t count = matrices.size(0), rows = matrices.size(1), columns = matrices.size(2);
  const int64_t strips = (columns + strip_columns - 1) / strip_columns;
  const at::Tensor dense = matrices.contiguous();
  const auto* const from = static_cast<const int8_t*>(dense.const_data_ptr());
  std::vector<std::vector<uint8_t>> parts(count * strips);
  constexpr int64_t kCost = 32;  // of a weight, for which a place is sought
  parallel_for(count * strips, kCost * rows * strip_columns, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t column = i % strips * strip_columns;
      parts[i] = laid_out(
          {from + i / strips * rows * columns + column, rows, std::min(strip_columns, columns - column), columns},
          strip_columns);
    }
  });
  std::vector<int64_t> begins;
  int64_t bytes = aligned(count * strips * static_cast<int64_t>(sizeof(int64_t)));
  for (const auto& part : parts) {
    begins.push_back(bytes);
    bytes += static_cast<int64_t>(part.size());
  }
  at::Tensor result = own_pages(bytes);
  auto* const to = static_cast<uint8_t*>(result.data_ptr());
  std::memcpy(to, begins.data(), begins.size() * sizeof(int64_t));
  for (size_t i = 0; i < parts.size(); ++i) std::ranges::copy(parts[i], to + begins[i]);
  return result;
}

Strip strip_at(const at::Tensor& bytes, int64_t number) {
  const Header& header = header_at(bytes, number);
  const auto* const from = reinterpret_cast<const uint8_t*>(&header);
  return {.groups = header.groups,
          .rows = reinterpret_cast<const uint16_t*>(from + Header::kRowsAt),
          .steps = reinterpret_cast<const int8_t*>(from + header.steps_at()),
          .totals = header.totals};
}

bool are_strips(const at::Tensor& bytes, at::IntArrayRef sizes, int64_t strip_columns) {
  const int64_t strips = sizes[0] * ((sizes[2] + strip_columns - 1) / strip_columns), size = bytes.numel();
  const int64_t table = aligned(strips * static_cast<int64_t>(sizeof(int64_t)));
  const auto from = reinterpret_cast<uintptr_t>(bytes.const_data_ptr());
  if (size < table || from % alignof(int64_t) != 0) return false;
  for (int64_t i = 0; i < strips; ++i) {
    const int64_t begin = static_cast<const int64_t*>(bytes.const_data_ptr())[i];
    if (begin < table || begin % kAlignment != 0 || begin > size - Header::kRowsAt) return false;
    const Header& header = header_at(bytes, i);
    int64_t steps = 0;
    for (int64_t n = 0; n < kMostSteps; ++n) steps += header.groups[n] < 0 ? size : (n + 1) * header.groups[n];
    if (header.steps != steps || header.bytes(strip_columns) > size - begin) return false;
    const Strip strip = strip_at(bytes, i);
    if (!std::all_of(strip.rows, strip.rows + steps, [&](uint16_t row) { return row * kStepRows < sizes[1]; }))
      return false;
  }
  return true;
}

at::Tensor from_strips(const at::Tensor& bytes, at::IntArrayRef sizes, int64_t strip_columns) {
  const int64_t rows = sizes[1], columns = sizes[2], strips = (columns + strip_columns - 1) / strip_columns;
  at::Tensor result = at::zeros(sizes, at::kChar);
  auto* const to = static_cast<int8_t*>(result.data_ptr());
  for (int64_t i = 0; i < sizes[0] * strips; ++i) {
    const Strip strip = strip_at(bytes, i);
    const int64_t first = i % strips * strip_columns, width = std::min(strip_columns, columns - first);
    for (int32_t s = 0; s < header_at(bytes, i).steps; ++s) {
      const int64_t from = strip.rows[s] * kStepRows;
      for (int64_t r = 0; r < std::min(kStepRows, rows - from); ++r) {
        int8_t* const row = to + (i / strips * rows + from + r) * columns + first;
        for (int64_t c = 0; c < width; ++c) {
          row[c] = static_cast<int8_t>(row[c] + strip.steps[(s * strip_columns + c) * kStepRows + r]);
        }
      }
    }
  }
  return result;
}

}  // namespace onnxtorch
