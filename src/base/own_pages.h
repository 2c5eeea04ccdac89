// Memory for weights and for large intermediate results. It goes back to the system as soon as it is given up, where an
// allocator would keep it for others: while a model is prepared, most weights are held for a moment in one layout, and
// then in another. The GNU C library's, before 2.38, finds no room for an aligned block in one of the same size that was
// freed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>

namespace onnxtorch {

struct GiveBackPages {
  size_t bytes;
  void operator()(char* pages) const;
};
using Pages = std::unique_ptr<char, GiveBackPages>;

// Takes pages of the system's for so many bytes. They are zeros, and take no memory before they are written to.
__attribute__((visibility("default"))) Pages new_pages(size_t bytes);

// Gives a tensor of so many bytes, not filled.
__attribute__((visibility("default"))) at::Tensor own_pages(int64_t bytes);

// Copies a weight, in another type, and in the order in which its elements lie.
__attribute__((visibility("default"))) at::Tensor own_copy(const at::Tensor& weight, c10::ScalarType type);

// Memory for weights that are filled at once, one after another: huge pages, which several share, as the system gives
// one in a fifth of the time that its small pages take.
class HugePages {
 public:
  explicit HugePages(int64_t bytes) : expected_(bytes) {}  // those of all of them together
  HugePages(const HugePages&) = delete;
  HugePages& operator=(const HugePages&) = delete;
  ~HugePages();
  at::Tensor take(int64_t bytes);

 private:
  void give_back_rest();

  int64_t expected_;  // bytes that are still to come
  char* free_ = nullptr;
  int64_t left_ = 0;
};

}  // namespace onnxtorch
