// Lets one allocation of a process fail, of those that are made without Python's lock: pybind11 ends the process where
// one of its own fails. It is preloaded, in front of the C library's allocator.
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

static atomic_long left;  // until the one that fails; none does after it
static atomic_size_t least;

// The n-th of at least so many bytes fails, from here on. Returns how many were left of what was asked before.
long fail_allocation(long n, size_t bytes) {
  atomic_store(&least, bytes);
  return atomic_exchange(&left, n);
}

extern int PyGILState_Check(void) __attribute__((weak));

static int fails(size_t size) {
  if (atomic_load_explicit(&left, memory_order_relaxed) <= 0 || size < least || PyGILState_Check()) return 0;
  if (atomic_fetch_sub(&left, 1) != 1) return 0;
  errno = ENOMEM;
  return 1;
}

void* malloc(size_t size) { return fails(size) ? NULL : __libc_malloc(size); }
void* calloc(size_t count, size_t size) { return fails(count * size) ? NULL : __libc_calloc(count, size); }
void* realloc(void* memory, size_t size) { return fails(size) ? NULL : __libc_realloc(memory, size); }
void* memalign(size_t alignment, size_t size) { return fails(size) ? NULL : __libc_memalign(alignment, size); }
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void** memory, size_t alignment, size_t size) {
  void* const found = memalign(alignment, size);
  if (found) *memory = found;
  return found ? 0 : ENOMEM;
}
