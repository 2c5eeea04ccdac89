// Lets one read of a file fail, or end early. It is preloaded, in front of the C library's functions that read.
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "countdown.h"

static atomic_long left;  // until the one that fails; none does after it
static char ending[256];  // of the paths of the files that are meant
static int ends_early;

// The n-th read of a file whose path ends so fails, from here on. Returns how many were left of what was asked before.
long fail_read(long n, const char* of, int early) {
  snprintf(ending, sizeof ending, "%s", of);
  ends_early = early;
  return atomic_exchange(&left, n);
}

static int is_meant(int file) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t size = readlink(link, path, sizeof path - 1);
  const ssize_t wanted = (ssize_t)strlen(ending);
  return size >= wanted && !memcmp(path + size - wanted, ending, (size_t)wanted);
}

static int fails(int file) {
  const int error = errno;
  const int fails = atomic_load(&left) > 0 && is_meant(file) && is_last(&left);
  errno = error;
  return fails;
}

static ssize_t failed(void) {
  if (ends_early) return 0;
  errno = EIO;
  return -1;
}

ssize_t read(int file, void* to, size_t size) {
  return fails(file) ? failed() : syscall(SYS_read, file, to, size);
}

ssize_t pread(int file, void* to, size_t size, off_t offset) {
  return fails(file) ? failed() : syscall(SYS_pread64, file, to, size, offset);
}

ssize_t pread64(int file, void* to, size_t size, off64_t offset) {
  return fails(file) ? failed() : syscall(SYS_pread64, file, to, size, offset);
}
