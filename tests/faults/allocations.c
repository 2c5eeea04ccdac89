// Lets one allocation of a process fail. It is preloaded, in front of the C library's allocator.
#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "countdown.h"

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

static atomic_long left;  // until the one that fails; none does after it

// Where oneDNN's code lies, whose own allocations are spared: its operator new gives null, which its constructors write
// to. Before it is called, the library makes sure that there is memory.
static uintptr_t begin, end;

static int find_onednn(struct dl_phdr_info* library, size_t size, void* unused) {
  (void)size, (void)unused;
  if (!strstr(library->dlpi_name, "libdnnl")) return 0;
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const ElfW(Phdr)* const part = &library->dlpi_phdr[i];
    if (part->p_type != PT_LOAD || !(part->p_flags & PF_X)) continue;
    begin = library->dlpi_addr + part->p_vaddr;
    end = begin + part->p_memsz;
  }
  return 1;
}

// The n-th fails, from here on. Returns how many were left of what was asked before.
long fail_allocation(long n) {
  if (!end) dl_iterate_phdr(find_onednn, NULL);
  return atomic_exchange(&left, n);
}

static int fails(const void* caller) {
  if (atomic_load_explicit(&left, memory_order_relaxed) <= 0 || ((uintptr_t)caller >= begin && (uintptr_t)caller < end))
    return 0;
  if (!is_last(&left)) return 0;
  errno = ENOMEM;
  return 1;
}

static void* aligned(size_t alignment, size_t size, const void* caller) {
  return fails(caller) ? NULL : __libc_memalign(alignment, size);
}

void* malloc(size_t size) { return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(size); }

void* calloc(size_t count, size_t size) {
  return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size);
}

void* realloc(void* memory, size_t size) {
  return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(memory, size);
}

void* memalign(size_t alignment, size_t size) { return aligned(alignment, size, __builtin_return_address(0)); }
void* aligned_alloc(size_t alignment, size_t size) { return aligned(alignment, size, __builtin_return_address(0)); }

int posix_memalign(void** memory, size_t alignment, size_t size) {
  void* const found = aligned(alignment, size, __builtin_return_address(0));
  if (found) *memory = found;
  return found ? 0 : ENOMEM;
}
