#include "base/own_pages.h"

#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <c10/util/strides.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "base/view_of.h"

namespace onnxtorch {

namespace {

constexpr int64_t kLeastBytes = 1 << 16, kLeastHuge = 1 << 22, kMostShared = 1 << 25;

// Tells whether an allocator gives the memory: where it is little, or where memory is being counted, so that the count
// is complete.
bool is_for_allocator(int64_t bytes) { return bytes < kLeastBytes || c10::memoryProfilingEnabled(); }

// Maps pages. The system gives all at once where it is asked to, in three quarters of the time that it takes for one by
// one.
char* new_pages(int64_t bytes, bool at_once) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at_once ? MAP_POPULATE : 0);
  void* const start = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, flags, -1, 0);
  TORCH_CHECK(start != MAP_FAILED, "no memory for a weight of ", bytes, " bytes");
  return static_cast<char*>(start);
}

void give_back(void* pages, int64_t bytes) { ::munmap(pages, static_cast<size_t>(bytes)); }

// Makes a tensor on pages of its own, however many are mapped around them.
at::Tensor on(char* pages, int64_t bytes) {
  return view_of(pages, {bytes}, at::kByte, {pages, [bytes](void* own) { give_back(own, bytes); }});
}

}  // namespace

at::Tensor own_pages(int64_t bytes) {
  return is_for_allocator(bytes) ? at::empty({bytes}, at::kByte) : on(new_pages(bytes, /*at_once=*/true), bytes);
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
  static const int64_t page = ::sysconf(_SC_PAGESIZE);
  const int64_t size = (bytes + page - 1) / page * page;
  if (size > left_) {
    give_back_rest();
    left_ = std::max(size, std::min(expected_, kMostShared));
    const bool are_huge = left_ >= kLeastHuge;
    free_ = new_pages(left_, /*at_once=*/!are_huge);
    if (are_huge) ::madvise(free_, static_cast<size_t>(left_), MADV_HUGEPAGE);
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
