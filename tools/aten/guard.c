// Memory for tensors between pages that nobody may touch, preloaded into the processes that try operators. A block ends at
// a page's end, as far as its alignment lets it. Its bytes, and those beside it up to the pages' ends, are those that
// guard_fill was last called with: what is read without having been written differs from one filling to another, and what is
// written beside the block is found when it is freed.
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { kPage = 4096 };
static const size_t kSpace = (size_t)1 << 42;

struct Header {  // in the page in front of the block's own
  size_t pages;
  char* start;
  size_t size;
  int fill;
};

static char* space;
static atomic_size_t used;
static int fill_byte = 0x5a;

extern void __libc_free(void*);

void guard_fill(int byte) { fill_byte = byte; }

__attribute__((constructor)) static void reserve(void) {
  void* memory = mmap(NULL, kSpace, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory != MAP_FAILED) space = memory;
}

int posix_memalign(void** out, size_t alignment, size_t size) {
  if (alignment < sizeof(void*) || alignment > kPage || (alignment & (alignment - 1))) return EINVAL;
  if (!space || size > kSpace / 2) return ENOMEM;
  const size_t pages = (size + kPage - 1) / kPage + (size == 0);
  const size_t at = atomic_fetch_add(&used, (pages + 2) * kPage);  // with one in front and one behind
  if (at + (pages + 2) * kPage > kSpace) return ENOMEM;
  struct Header* const header = (struct Header*)(space + at);
  char* const first = (char*)header + kPage;
  char* const end = first + pages * kPage;
  if (mprotect(header, (pages + 1) * kPage, PROT_READ | PROT_WRITE)) return ENOMEM;
  char* const start = end - (size + alignment - 1) / alignment * alignment;
  memset(first, fill_byte, pages * kPage);
  *header = (struct Header){pages, start, size, fill_byte};
  if (mprotect(header, kPage, PROT_NONE)) return ENOMEM;
  *out = size ? start : first;
  return 0;
}

static void complain(void) {
  static const char message[] = "written beside a tensor\n";
  if (write(STDERR_FILENO, message, sizeof message - 1) < 0) _exit(3);
  abort();
}

void free(void* memory) {
  char* const block = memory;
  if (!space || block < space || block >= space + kSpace) {
    __libc_free(memory);
    return;
  }
  char* const page = space + (size_t)(block - space) / kPage * kPage;
  struct Header* const header = (struct Header*)(page - kPage);
  if (mprotect(header, kPage, PROT_READ)) abort();
  const char* const first = page;
  const char* const end = first + header->pages * kPage;
  for (const char* beside = first; beside < header->start; ++beside) {
    if (*beside != (char)header->fill) complain();
  }
  for (const char* beside = header->start + header->size; beside < end; ++beside) {
    if (*beside != (char)header->fill) complain();
  }
  const int kept = errno;
  mmap(header, (header->pages + 1) * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  errno = kept;
}
