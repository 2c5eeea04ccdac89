// The reductions of what a pass computes. A part of chain.cpp.
#pragma once

#include <ATen/cpu/vec/functional.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/simd/chain.h"
#include "kernels/simd/vectors.h"

namespace onnxtorch::chain::CPU_CAPABILITY {

using at::vec::Vectorized;
using onnxtorch::CPU_CAPABILITY::Vec;

constexpr int64_t kWidth = Vec::size();

// A reducer. At most kMostInTurn floats are reduced one after another; what these come to, which is less, is reduced as
// doubles.
struct Sum {
  static constexpr float kOfNone = 0;
  static constexpr int64_t kMostInTurn = 8;
  Vec operator()(const Vec& x, const Vec& y) const { return x + y; }
  double operator()(double x, double y) const { return x + y; }
};

struct Maximum {
  static constexpr float kOfNone = -std::numeric_limits<float>::infinity();
  static constexpr int64_t kMostInTurn = std::numeric_limits<int64_t>::max();
  Vec operator()(const Vec& x, const Vec& y) const { return at::vec::maximum(x, y); }
  double operator()(double x, double y) const { return ((y > x) | (y != y)) ? y : x; }
};

struct Minimum {
  static constexpr float kOfNone = std::numeric_limits<float>::infinity();
  static constexpr int64_t kMostInTurn = std::numeric_limits<int64_t>::max();
  Vec operator()(const Vec& x, const Vec& y) const { return at::vec::minimum(x, y); }
  double operator()(double x, double y) const { return ((y < x) | (y != y)) ? y : x; }
};

constexpr int64_t kShortRun = 16;
constexpr int64_t kShortRow = 32;

// Reduces the lanes of a vector, in doubles where ATen has no instructions for it, and adds one float after another.
template <typename F>
double reduce_vector(const Vec& x, const F& f) {
#ifdef CPU_CAPABILITY_DEFAULT
  float floats[kWidth];
  x.store(floats);
  double total = F::kOfNone;
  for (const float lane : floats) total = f(total, lane);
  return total;
#else
  return at::vec::vec_reduce_all<float>(f, x);
#endif
}

template <typename F>
double reduce_run(const float* x, int64_t count, const F& f) {
  constexpr int64_t kSide = 4;
  double total = F::kOfNone;
  if (count >= kSide * kWidth) {
    Vec totals[kSide] = {Vec(F::kOfNone), Vec(F::kOfNone), Vec(F::kOfNone), Vec(F::kOfNone)};
    for (int64_t left = count / (kSide * kWidth); left > 0;) {
      const int64_t turns = std::min(left, F::kMostInTurn);
      Vec sums[kSide];
      for (int64_t j = 0; j < kSide; ++j) sums[j] = Vec::loadu(x + j * kWidth);
      for (int64_t turn = 1; turn < turns; ++turn) {
        for (int64_t j = 0; j < kSide; ++j) sums[j] = f(sums[j], Vec::loadu(x + (turn * kSide + j) * kWidth));
      }
      for (int64_t j = 0; j < kSide; ++j) totals[j] = f(totals[j], sums[j]);
      x += turns * kSide * kWidth;
      left -= turns;
    }
    total = reduce_vector(f(f(totals[0], totals[1]), f(totals[2], totals[3])), f);
    count %= kSide * kWidth;
  }
  if (count >= kWidth) {
    Vec sums = Vec::loadu(x);
    for (x += kWidth, count -= kWidth; count >= kWidth; x += kWidth, count -= kWidth) sums = f(sums, Vec::loadu(x));
    total = f(total, reduce_vector(sums, f));
  }
  for (int64_t i = 0; i < count; ++i) total = f(total, x[i]);
  return total;
}

// Reduces short contiguous runs, as many at once as a vector has elements. Gives the number of those that are done.
template <typename F>
int64_t reduce_short_runs(const float* x, int64_t runs, int64_t count, float* to, float divisor, const F& f) {
  const auto places = Vectorized<int32_t>::arange(0, static_cast<int32_t>(count));
  int64_t done = 0;
  for (; done + kWidth <= runs; done += kWidth, x += kWidth * count) {
    Vec sums(F::kOfNone);
    for (int64_t i = 0; i < count; ++i) sums = f(sums, at::vec::gather<sizeof(float)>(x + i, places));
    (sums / Vec(divisor)).store(to + done);
  }
  return done;
}

// The totals of columns: the sums of a turn's rows, and those of the turns before.
struct Totals {
  float* turn;
  double* turns;
};

template <typename F>
void reduce_turn(const float* x, int64_t rows, int64_t columns, float* sums, const F& f) {
  constexpr int64_t kSide = 4;
  int64_t column = 0;
  for (; column + kSide * kWidth <= columns; column += kSide * kWidth) {
    Vec side[kSide];
    for (int64_t j = 0; j < kSide; ++j) side[j] = Vec::loadu(sums + column + j * kWidth);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t j = 0; j < kSide; ++j) side[j] = f(side[j], Vec::loadu(x + row * columns + column + j * kWidth));
    }
    for (int64_t j = 0; j < kSide; ++j) side[j].store(sums + column + j * kWidth);
  }
  for (; column + kWidth <= columns; column += kWidth) {
    Vec side = Vec::loadu(sums + column);
    for (int64_t row = 0; row < rows; ++row) side = f(side, Vec::loadu(x + row * columns + column));
    side.store(sums + column);
  }
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = column; i < columns; ++i) sums[i] = static_cast<float>(f(sums[i], x[row * columns + i]));
  }
}

// Reduces rows from the index `row` on.
template <typename F>
void reduce_rows(const float* x, int64_t row, int64_t rows, int64_t columns, bool are_last, Totals to, const F& f) {
  for (const int64_t end = row + rows; row < end;) {
    const int64_t turns = std::min(end - row, F::kMostInTurn - row % F::kMostInTurn);
    if (row % F::kMostInTurn == 0) std::fill_n(to.turn, columns, F::kOfNone);
    reduce_turn(x, turns, columns, to.turn, f);
    x += turns * columns;
    row += turns;
    if (row % F::kMostInTurn != 0 && (!are_last || row != end)) continue;
    for (int64_t i = 0; i < columns; ++i) to.turns[i] = f(to.turns[i], to.turn[i]);
  }
}

// Reduces short rows, which are taken for parts of long ones.
template <typename F>
void reduce_short_rows(const float* x, int64_t rows, int64_t columns, double* totals, const F& f) {
  const int64_t side = 2 * kShortRow / columns, long_rows = rows / side;
  if (long_rows > 1) {
    float turn[2 * kShortRow];
    double turns[2 * kShortRow];
    std::fill_n(turns, side * columns, F::kOfNone);
    reduce_rows(x, 0, long_rows, side * columns, true, {turn, turns}, f);
    for (int64_t row = 0; row < side; ++row) {
      for (int64_t i = 0; i < columns; ++i) totals[i] = f(totals[i], turns[row * columns + i]);
    }
    x += long_rows * side * columns;
    rows -= long_rows * side;
  }
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < columns; ++i) totals[i] = f(totals[i], x[row * columns + i]);
  }
}

template <typename G>
void with(Reducer reducer, const G& use) {
  switch (reducer) {
    case Reducer::Sum:
      return use(Sum());
    case Reducer::Maximum:
      return use(Maximum());
    case Reducer::Minimum:
      return use(Minimum());
  }
}

// Takes what a pass computes, one block after another, into the totals of its rows.
class Reductions {
 public:
  // `results` are those of the reductions alone.
  Reductions(const Loop& loop, void* const* results) : loop_(loop), results_(results) {}

  // Lets the next block begin with this element of the pass.
  void begin_at(int64_t element) {
    const ReducedRows& rows = loop_.rows;
    const int64_t row = element / rows.columns, group = row / rows.group, in_group = row % rows.group;
    const int64_t of_group = in_group / rows.part;
    position_ = {group * rows.parts() + of_group, of_group, in_group % rows.part, element % rows.columns};
  }

  // Takes the block's elements, whole groups, whole rows or a piece of one at a time. They are given for each
  // reduction.
  void take(const float* const* elements, int64_t count) {
    const auto& [columns, group, part] = loop_.rows;
    auto& [result, of_group, row, column] = position_;
    for (int64_t done = 0; done < count;) {
      const int64_t rest = count - done, left = std::min(part, group - of_group * part) - row;
      const int64_t whole = column == 0 && rest >= columns ? std::min(rest / columns, left) : 0;
      const int64_t width = whole > 0 ? columns : std::min(columns - column, rest);
      const int64_t height = std::max<int64_t>(whole, 1), groups = whole == group ? rest / columns / group : 1;
      const Piece piece{row, height, column, width, height == left};
      for (size_t i = 0; i < loop_.reductions.size(); ++i) {
        with(loop_.reductions[i].reducer,
             [&](const auto& f) { reduce(i, elements[i] + done, piece, groups, result * columns + column, f); });
      }
      done += groups * height * width;
      column += width;
      if (column < columns) continue;
      column = 0;
      row += height;
      if (!piece.are_last) continue;
      row = 0;
      result += groups;
      of_group = (of_group + 1) * part < group ? of_group + 1 : 0;
    }
  }

 private:
  // The place of an element: in a part, which is one of its group's.
  struct ElementPosition {
    int64_t part, of_group, row, column;
  };

  // Elements of a block, which are of one part.
  struct Piece {
    int64_t row, rows;  // of the part
    int64_t column, columns;
    bool are_last;
  };

  // Reduces a piece, or as many whole groups that follow one another.
  template <typename F>
  void reduce(size_t number, const float* x, const Piece& piece, int64_t groups, int64_t result, const F& f) {
    const float divisor = loop_.reductions[number].divisor;
    const int64_t columns = loop_.rows.columns, in_strip = piece.column % kStrip;
    const Totals totals{turn_[number] + in_strip, turns_[number] + in_strip};
    auto* const floats = static_cast<float*>(results_[number]) + result;
    auto* const doubles = static_cast<double*>(results_[number]) + result;
    int64_t done = 0;
    if (columns == 1 && groups > 1 && piece.rows <= kShortRun && !loop_.gives_doubles)
      done = reduce_short_runs(x, groups, piece.rows, floats, divisor, f);
    for (; done < groups; ++done) {
      reduce_piece(x + done * piece.rows * piece.columns, piece, totals, f);
      if (!piece.are_last) continue;
      if (loop_.gives_doubles) {
        std::copy_n(totals.turns, piece.columns, doubles + done * piece.columns);
        continue;
      }
      for (int64_t i = 0; i < piece.columns; ++i)
        floats[done * piece.columns + i] = static_cast<float>(totals.turns[i]) / divisor;
    }
  }

  template <typename F>
  void reduce_piece(const float* x, const Piece& piece, Totals totals, const F& f) {
    if (piece.row == 0) std::fill_n(totals.turns, piece.columns, F::kOfNone);
    if (loop_.rows.columns == 1) {
      *totals.turns = f(*totals.turns, reduce_run(x, piece.rows, f));
    } else if (loop_.rows.columns <= kShortRow) {
      reduce_short_rows(x, piece.rows, piece.columns, totals.turns, f);
    } else {
      reduce_rows(x, piece.row, piece.rows, piece.columns, piece.are_last, totals, f);
    }
  }

  const Loop& loop_;
  void* const* const results_;
  ElementPosition position_{};  // of the next block
  alignas(64) float turn_[kMostReductions][kStrip];
  alignas(64) double turns_[kMostReductions][kStrip];
};

}  // namespace onnxtorch::chain::CPU_CAPABILITY
