// Work that is divided among threads. None of it may change its result with the number of threads.
//
// Costs are counted in elements: one is what it takes to read a float, add a number to it and write it, with vectors.
// A float that goes through exp, or that is compared with others without vectors, costs about eight; the product of two
// in registers, and its addition, a quarter or less.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/neighbours.h"

namespace onnxtorch {

// Tells how many items of this cost another thread is woken for, at least.
inline int64_t worth_a_thread(int64_t cost) {
  return std::max<int64_t>(worth_a_thread() / std::max<int64_t>(cost, 1), 1);
}

// Calls f(begin, end) for ranges of items that cost so much each.
template <typename F>
void parallel_for(int64_t items, int64_t cost, const F& f) {
  at::parallel_for(0, items, worth_a_thread(cost), f);
}

// Copies memory that lies elsewhere.
inline void copy_bytes(char* to, const char* from, size_t bytes) {
  constexpr int64_t kFloat = sizeof(float);
  const auto count = static_cast<int64_t>(bytes);
  parallel_for((count + kFloat - 1) / kFloat, 1, [=](int64_t begin, int64_t end) {
    std::memcpy(to + begin * kFloat, from + begin * kFloat,
                static_cast<size_t>(std::min(end * kFloat, count) - begin * kFloat));
  });
}

// Joins what f(begin, end) gives for ranges of items. To `join` neither their order matters nor how often `start`
// comes.
template <typename T, typename F, typename Join>
T parallel_reduce(int64_t items, int64_t cost, const T& start, const F& f, const Join& join) {
  return at::parallel_reduce(
      0, items, worth_a_thread(cost), start,
      [&](int64_t begin, int64_t end, const T& so_far) { return join(so_far, f(begin, end)); }, join);
}

// Tells how many threads are to share work of this cost.
inline int64_t threads_for(int64_t cost) {
  return std::clamp<int64_t>(cost / worth_a_thread(), 1, at::get_num_threads());
}

// Calls visit(index, thread) for each index. A thread begins with a part of its own, which its cache may have from the
// run before, and helps the others when it is done: memory decides how long one takes, and one thread may get less of
// it.
template <typename Visit>
void share_out(int64_t count, int64_t threads, const Visit& visit) {
  struct alignas(64) Next {
    std::atomic<int64_t> number;
  };
  std::vector<Next> next(threads);
  const auto first_of = [=](int64_t part) { return count * part / threads; };
  for (int64_t part = 0; part < threads; ++part) next[part].number = first_of(part);
  at::parallel_for(0, threads, 1, [&](int64_t own, int64_t /*end*/) {
    for (int64_t i = 0; i < threads; ++i) {
      const int64_t part = (own + i) % threads, end = first_of(part + 1);
      for (int64_t number; (number = next[part].number.fetch_add(1, std::memory_order_relaxed)) < end;)
        visit(number, own);
    }
  });
}

}  // namespace onnxtorch
