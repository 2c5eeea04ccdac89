#include "base/own_pages.h"

#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <c10/util/strides.h>
#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "base/parallel.h"
#include "base/view_of.h"

namespace onnxtorch {

namespace {

constexpr int64_t kLeastBytes = 1 << 16, kLeastHuge = 1 << 22, kMostShared = 1 << 25;

// Tells whether an allocator gives the memory: where it is little, or where memory is being counted, so that the count
// is complete.
bool is_for_allocator(int64_t bytes) { return bytes < kLeastBytes || c10::memoryProfilingEnabled(); }

int64_t page_size() {
  static const int64_t size = ::sysconf(_SC_PAGESIZE);
  return size;
}

// Has the system give pages before they are written to, which takes three quarters of the time that it takes for one by
// one, and several threads share. Where it cannot (before Linux 5.14), they come one by one.
void populate(char* pages, int64_t bytes) {
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which older headers do not have
  const int64_t page = page_size();
  parallel_for((bytes + page - 1) / page, page, [=](int64_t begin, int64_t end) {
    ::madvise(pages + begin * page, static_cast<size_t>((end - begin) * page), kPopulateWrite);
  });
}

void give_back(char* pages, int64_t bytes) { GiveBackPages{static_cast<size_t>(bytes)}(pages); }

// Makes a tensor on pages of its own, however many are mapped around them.
at::Tensor on(char* pages, int64_t bytes) {
  return view_of(pages, {bytes}, at::kByte, {pages, [bytes](void* own) { give_back(static_cast<char*>(own), bytes); }});
}

}  // namespace

void GiveBackPages::operator()(char* pages) const {
  ASAN_UNPOISON_MEMORY_REGION(pages, bytes);  // what is mapped there next may be anything
  ::munmap(pages, bytes);
}

Pages new_pages(size_t bytes) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;
  const auto page = static_cast<size_t>(page_size());
  const size_t size = (bytes + page - 1) / page * page;
  void* const start = size < bytes ? MAP_FAILED : ::mmap(nullptr, size, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  TORCH_CHECK(start != MAP_FAILED, "there is not enough memory for a tensor of ", bytes, " bytes");
  return {static_cast<char*>(start), {size}};
}

at::Tensor own_pages(int64_t bytes) {
  if (is_for_allocator(bytes)) return at::empty({bytes}, at::kByte);
  Pages pages = new_pages(static_cast<size_t>(bytes));
  populate(pages.get(), bytes);
  return on(pages.release(), bytes);
}

at::Tensor own_copy(const at::Tensor& weight, c10::ScalarType type) {
  const c10::DimVector in_rows = c10::contiguous_strides(weight.sizes());
  const at::IntArrayRef strides = weight.is_non_overlapping_and_dense() ? weight.strides() : in_rows;
  const int64_t bytes = weight.numel() * static_cast<int64_t>(c10::elementSize(type));
  return own_pages(bytes).view(type).as_strided(weight.sizes(), strides).copy_(weight);
}

HugePages::~HugePages() { give_back_rest(); }

at::Tensor HugePages::take(int64_t bytes) {
  if (is_for_allocator(bytes)) return at::empty({bytes}, at::kByte);
  const int64_t page = page_size(), size = (bytes + page - 1) / page * page;
  if (size > left_) {
    give_back_rest();
    left_ = std::max(size, std::min(expected_, kMostShared));
    free_ = new_pages(static_cast<size_t>(left_)).release();
    if (left_ >= kLeastHuge) {
      ::madvise(free_, static_cast<size_t>(left_), MADV_HUGEPAGE);
    } else {
      populate(free_, left_);
    }
  }
  char* const pages = free_;
  free_ += size;
  left_ -= size;
  expected_ -= size;
  return on(pages, bytes);
}

void HugePages::give_back_rest() {
  if (left_ > 0) give_back(free_, left_);
  left_ = 0;
}

}  // namespace onnxtorch
