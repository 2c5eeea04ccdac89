#include "base/memory_reserve.h"

#include <sys/mman.h>

#include <atomic>
#include <new>

namespace onnxtorch {
namespace {

constexpr size_t kBytes = 1 << 21;  // the C library's allocator grows by half of it where it cannot grow by little

std::atomic<void*> reserve = nullptr;
std::atomic<std::new_handler> around = nullptr;  // the handler of whoever uses the process
thread_local bool taken = false;

void* new_pages() {
  void* const pages = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return pages == MAP_FAILED ? nullptr : pages;
}

void give_back(void* pages) { ::munmap(pages, kBytes); }

// Gives the reserve back. `new` calls this where it finds no memory, and tries again after.
void take_reserve() {
  if (void* const pages = reserve.exchange(nullptr)) {
    give_back(pages);
    taken = true;
  } else if (const std::new_handler handler = around) {
    handler();
  } else {
    throw std::bad_alloc();
  }
}

}  // namespace

bool keep_memory_reserve() {
  taken = false;
  if (reserve.load(std::memory_order_relaxed)) return true;
  static const bool installed = [] {
    around = std::set_new_handler(take_reserve);
    return true;
  }();
  static_cast<void>(installed);
  void* const pages = new_pages();
  void* none = nullptr;
  if (pages && !reserve.compare_exchange_strong(none, pages)) give_back(pages);
  return pages != nullptr;
}

void need_memory_reserve() {
  if (!keep_memory_reserve()) throw std::bad_alloc();
}

void check_memory_reserve() {
  if (taken) throw std::bad_alloc();
}

}  // namespace onnxtorch
