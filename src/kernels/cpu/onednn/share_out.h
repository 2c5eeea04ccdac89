// Work for several threads that comes in pieces, whose memory has the say over how long one takes.
#pragma once

#include <ATen/Parallel.h>

#include <atomic>
#include <cstdint>
#include <vector>

namespace onnxtorch::onednn {

// Calls visit(number, thread) for each number. A thread begins with a part of its own, which its cache may have from
// the run before, and helps the others when it is done: they all read from one memory, and one may get less of it.
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

}  // namespace onnxtorch::onednn
