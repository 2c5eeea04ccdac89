// Memory for large intermediate results, which a model's runs use again and again. An allocator gives memory of that
// size back to the system, which clears every page of it before the next use, or keeps it in pieces that do not fit.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "base/fork_safe.h"
#include "base/own_pages.h"

namespace onnxtorch {

// The blocks that a model's runs have given up. What a few runs have not asked for goes back to the system. Any number
// of threads may run the model.
class __attribute__((visibility("default"))) WorkMemory : public std::enable_shared_from_this<WorkMemory> {
 public:
  // A scope in which large tensors that this thread makes take memory from there, ATen's as well.
  class Scope {
   public:
    explicit Scope(WorkMemory& memory);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

    WorkMemory& memory() const { return memory_; }
    uint64_t number() const { return number_; }

   private:
    Scope* const around_;
    WorkMemory& memory_;
    const uint64_t number_;
  };

  size_t kept_bytes() const;
  // Gives back to the system what no tensor holds.
  void clear();

 private:
  friend class RunAllocator;
  struct Block {
    Pages pages;
    uint64_t given_up = 0;  // the run in which it was
  };
  using Blocks = std::multimap<size_t, Block>;  // by their sizes
  struct Lent;

  c10::DataPtr lend(size_t bytes);
  Blocks::node_type take(size_t bytes);
  void give_up(Blocks::node_type block);
  void end_run();

  mutable ForkSafeMutex mutex_;
  Blocks blocks_;
  uint64_t runs_ = 0;
};

// Gives a tensor on the CPU, not filled.
__attribute__((visibility("default"))) at::Tensor work_tensor(at::IntArrayRef sizes, at::IntArrayRef strides,
                                                              c10::ScalarType dtype);
__attribute__((visibility("default"))) at::Tensor work_tensor(at::IntArrayRef sizes, c10::ScalarType dtype);

// Gives back to the system what this thread's runs have left for later ones.
__attribute__((visibility("default"))) void give_back_work_memory();

// Tells whether nothing but this tensor knows its memory, which an allocator gave: an operator that takes the tensor
// may leave its result there. TorchScript moves a value out of its register to the operator that is the last to read
// it; weights, what a caller has given, and what another tensor looks at have further references.
__attribute__((visibility("default"))) bool is_last_reference(const at::Tensor& tensor);

// Gives memory for a result of the tensor's sizes and strides, of which each element is computed from those in its own
// row or place after these have been read: the tensor's own memory, where this is the last reference to it.
__attribute__((visibility("default"))) at::Tensor work_tensor_over(const at::Tensor& tensor);

// Gives the tensor for somebody who may keep it for long: a copy where its block is much larger than it.
__attribute__((visibility("default"))) at::Tensor snug(const at::Tensor& tensor);

// Gives the bound of a tensor, with which none of its elements is NaN; infinity where a run has not noted it of the
// tensor's memory. It goes with the run.
__attribute__((visibility("default"))) float bound_of(const at::Tensor& tensor);
__attribute__((visibility("default"))) void note_bound(const at::Tensor& tensor, float bound);

}  // namespace onnxtorch
