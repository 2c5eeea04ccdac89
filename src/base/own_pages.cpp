#include "base/own_pages.h"

#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <sys/mman.h>

#include "base/view_of.h"

namespace onnxtorch {

at::Tensor own_pages(int64_t bytes) {
  constexpr int64_t kLeastBytes = 1 << 16;
  // Who counts memory is to count all of it.
  if (bytes < kLeastBytes || c10::memoryProfilingEnabled()) return at::empty({bytes}, at::kByte);
  const auto size = static_cast<size_t>(bytes);
  void* const start = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TORCH_CHECK(start != MAP_FAILED, "no memory for a weight of ", bytes, " bytes");
  return view_of(start, {bytes}, at::kByte, {start, [size](void* pages) { ::munmap(pages, size); }});
}

}  // namespace onnxtorch
