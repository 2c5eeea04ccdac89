#include "base/work_memory.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

#include "base/interruption.h"

namespace onnxtorch {
namespace {

constexpr size_t kLeastBytes = 1 << 18;  // below that allocators keep memory themselves
constexpr uint64_t kMostRuns = 4;        // a block waits for no more

thread_local WorkMemory::Scope* current = nullptr;
std::atomic<uint64_t> scopes = 0;

bool is_snug(size_t block, size_t bytes) { return block - bytes <= bytes / 4; }

}  // namespace

WorkMemory::Scope::Scope(WorkMemory& memory)
    : around_(std::exchange(current, this)), memory_(memory), number_(++scopes) {}

WorkMemory::Scope::~Scope() {
  current = around_;
  memory_.end_run();
}

// Takes the smallest block that is large enough. One that this run has used already may be twice as large: the run needs
// it in any case, whereas one of an earlier run would live on with all of its size. It may not be larger yet, for a
// small result may be held until the end of the run, and the run needs another block then.
WorkMemory::Block WorkMemory::take(size_t bytes) {
  check_interruption();
  {
    const std::lock_guard lock(mutex_);
    const auto fits = [&](const auto& block) {
      return is_snug(block.first, bytes) || (block.second.given_up == runs_ && block.first <= 2 * bytes);
    };
    const auto found = std::find_if(blocks_.lower_bound(bytes), blocks_.end(), fits);
    if (found != blocks_.end()) {
      Block block = std::move(found->second);
      blocks_.erase(found);
      return block;
    }
  }
  return {c10::GetCPUAllocator()->allocate(bytes), bytes};
}

// Takes a block back. The last that was given up is the first to be taken: it may still be in the cache.
void WorkMemory::give_up(Block block) {
  const std::lock_guard lock(mutex_);
  block.given_up = runs_;
  const size_t size = block.size;
  blocks_.emplace_hint(blocks_.lower_bound(size), size, std::move(block));
}

void WorkMemory::end_run() {
  const std::lock_guard lock(mutex_);
  ++runs_;
  std::erase_if(blocks_, [&](const auto& block) { return block.second.given_up + kMostRuns < runs_; });
}

void WorkMemory::take_back(void* lent) {
  const std::unique_ptr<Lent> held(static_cast<Lent*>(lent));
  held->memory->give_up(std::move(held->block));
}

at::Tensor WorkMemory::empty(at::IntArrayRef sizes, at::IntArrayRef strides, c10::ScalarType dtype, size_t bytes) {
  auto lent = std::make_unique<Lent>(Lent{shared_from_this(), take(bytes)});
  void* const data = lent->block.data.get();
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, {data, lent.release(), &take_back, c10::kCPU});
  at::Tensor result = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(dtype));
  result.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return result;
}

// Gives what the tensor's storage holds; none where another allocator gave the memory.
WorkMemory::Lent* WorkMemory::lent_to(const at::Tensor& tensor) {
  return tensor.storage().data_ptr().cast_context<Lent>(&take_back);
}

size_t WorkMemory::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  size_t bytes = 0;
  for (const auto& [size, block] : blocks_) bytes += size;
  return bytes;
}

void WorkMemory::clear() {
  const std::lock_guard lock(mutex_);
  blocks_.clear();
}

at::Tensor work_tensor(at::IntArrayRef sizes, at::IntArrayRef strides, c10::ScalarType dtype) {
  const size_t bytes = at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(dtype));
  // Where memory is being counted, the allocator gives it, so that the count is complete.
  if (!current || bytes < kLeastBytes || c10::memoryProfilingEnabled()) {
    return at::detail::empty_strided_cpu(sizes, strides, dtype);
  }
  return current->memory().empty(sizes, strides, dtype, bytes);
}

at::Tensor work_tensor(at::IntArrayRef sizes, c10::ScalarType dtype) {
  return work_tensor(sizes, c10::contiguous_strides(sizes), dtype);
}

void give_back_work_memory() {
  if (current) current->memory().clear();
}

bool is_last_reference(const at::Tensor& tensor) {
  if (tensor.use_count() != 1 || tensor.storage().use_count() != 1) return false;
  return WorkMemory::lent_to(tensor) ||
         tensor.storage().data_ptr().get_deleter() == c10::GetCPUAllocator()->raw_deleter();
}

at::Tensor work_tensor_over(const at::Tensor& tensor) {
  if (!is_last_reference(tensor)) return work_tensor(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  note_bound(tensor, std::numeric_limits<float>::infinity());
  return tensor;
}

at::Tensor snug(const at::Tensor& tensor) {
  const auto* const lent = WorkMemory::lent_to(tensor);
  return !lent || is_snug(lent->block.size, tensor.storage().nbytes()) ? tensor : tensor.clone();
}

float bound_of(const at::Tensor& tensor) {
  const auto* const lent = WorkMemory::lent_to(tensor);
  const bool is_known = lent && current && lent->noted_in == current->number();
  return is_known ? lent->bound : std::numeric_limits<float>::infinity();
}

void note_bound(const at::Tensor& tensor, float bound) {
  auto* const lent = WorkMemory::lent_to(tensor);
  if (!lent || !current) return;
  lent->bound = bound;
  lent->noted_in = current->number();
}

}  // namespace onnxtorch
