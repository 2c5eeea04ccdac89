// Counts what threads do, down to the one that fails.
#pragma once

#include <stdatomic.h>

// Counts one more, unless none is to fail: says whether it is the one that does. However many threads count at a time,
// the number stays at 0 after it.
static inline int is_last(atomic_long* left) {
  long before = atomic_load_explicit(left, memory_order_relaxed);
  while (before > 0 && !atomic_compare_exchange_weak(left, &before, before - 1)) {
  }
  return before == 1;
}
