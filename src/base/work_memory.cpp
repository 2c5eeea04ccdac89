#include "base/work_memory.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/strides.h>
#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/interruption.h"

namespace onnxtorch {

// A block that a tensor has.
struct WorkMemory::Lent {
  std::shared_ptr<WorkMemory> memory;
  Blocks::node_type block;
  float bound = 0;        // the bound of what is in the block
  uint64_t noted_in = 0;  // the scope that knows the bound, by its number
};

// The allocator of tensors on the CPU. It stands in front of the one that was there, and takes what it gives itself from
// the work memory of the run that is under way in the thread.
class RunAllocator final : public c10::Allocator {
 public:
  using Lent = WorkMemory::Lent;

  static RunAllocator& get() {
    static auto& allocator = *new RunAllocator;  // tensors may outlive everything
    return allocator;
  }

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return &give_up_either; }
  void copy_data(void* to, const void* from, size_t bytes) const override { around_->copy_data(to, from, bytes); }

  // Notes a block of which a tensor takes so many bytes, and gives its place. AddressSanitizer knows the bytes as well.
  c10::DataPtr lend(std::unique_ptr<Lent> lent, size_t bytes) {
    void* const data = lent->block.mapped().pages.get();
    ASAN_UNPOISON_MEMORY_REGION(data, bytes);
    const std::lock_guard lock(mutex_);
    lent_.emplace(data, std::move(lent));
    return {data, data, &give_up, c10::kCPU};
  }

  // Gives the block that a tensor has; none where another allocator gave the memory.
  Lent* lent_to(const at::Tensor& tensor) const {
    const c10::DataPtr& data = tensor.storage().data_ptr();
    return data.get_deleter() == &give_up ? find(data.get_context()) : nullptr;
  }

  // Tells whether an allocator gave the memory of the tensor, this one or the one behind it.
  bool gave(const at::Tensor& tensor) const {
    const c10::DeleterFnPtr deleter = tensor.storage().data_ptr().get_deleter();
    return deleter == &give_up || deleter == around_->raw_deleter();
  }

 private:
  RunAllocator() : around_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this); }

  Lent* find(void* data) const {
    const std::lock_guard lock(mutex_);
    const auto found = lent_.find(data);
    return found == lent_.end() ? nullptr : found->second.get();
  }

  static void give_up(void* data);
  // Gives up memory of this allocator or of the one behind it: who asks for raw memory has no more than its address.
  static void give_up_either(void* data) { get().find(data) ? give_up(data) : get().around_->raw_deallocate(data); }

  c10::Allocator* const around_;
  mutable ForkSafeMutex mutex_;
  std::unordered_map<void*, std::unique_ptr<Lent>> lent_;  // by their addresses
};

namespace {

constexpr size_t kLeastBytes = 1 << 18;  // below that allocators keep memory themselves
constexpr uint64_t kMostRuns = 4;        // a block waits for no more
constexpr size_t kMostTimes = 4;         // as large as what is asked for

thread_local WorkMemory::Scope* current = nullptr;
std::atomic<uint64_t> scopes = 0;

bool is_snug(size_t block, size_t bytes) { return block - bytes <= bytes / 4; }

// It takes its place when the library is loaded: later another allocator may stand there for a while.
[[maybe_unused]] const RunAllocator& installed = RunAllocator::get();

}  // namespace

// Where memory is being counted, the allocator behind this one gives it, so that the count is complete.
c10::DataPtr RunAllocator::allocate(size_t bytes) {
  if (!current || bytes < kLeastBytes || c10::memoryProfilingEnabled()) return around_->allocate(bytes);
  return current->memory().lend(bytes);
}

void RunAllocator::give_up(void* data) {
  std::unique_ptr<Lent> lent;
  {
    RunAllocator& own = get();
    const std::lock_guard lock(own.mutex_);
    lent = std::move(own.lent_.extract(data).mapped());
  }
  lent->memory->give_up(std::move(lent->block));
}

WorkMemory::Scope::Scope(WorkMemory& memory)
    : around_(std::exchange(current, this)), memory_(memory), number_(++scopes) {}

WorkMemory::Scope::~Scope() {
  current = around_;
  memory_.end_run();
}

// Takes the smallest block that is large enough. One that this run has used already may be four times as large: the run
// needs it in any case, whereas one of an earlier run would live on with all of its size. It may not be larger yet, for
// a small result may be held until the end of the run, and the run needs another block then.
WorkMemory::Blocks::node_type WorkMemory::take(size_t bytes) {
  check_interruption();
  {
    const std::lock_guard lock(mutex_);
    const auto fits = [&](const auto& block) {
      return is_snug(block.first, bytes) || (block.second.given_up == runs_ && block.first <= kMostTimes * bytes);
    };
    const auto found = std::find_if(blocks_.lower_bound(bytes), blocks_.end(), fits);
    if (found != blocks_.end()) return blocks_.extract(found);
  }
  Blocks made;
  Pages pages = new_pages(bytes);
  const size_t size = pages.get_deleter().bytes;
  ASAN_POISON_MEMORY_REGION(pages.get(), size);
  return made.extract(made.emplace(size, Block{std::move(pages)}));
}

// Takes a block back. The last that was given up is the first to be taken: it may still be in the cache.
void WorkMemory::give_up(Blocks::node_type block) {
  const std::lock_guard lock(mutex_);
  block.mapped().given_up = runs_;
  ASAN_POISON_MEMORY_REGION(block.mapped().pages.get(), block.key());
  blocks_.insert(blocks_.lower_bound(block.key()), std::move(block));
}

void WorkMemory::end_run() {
  const std::lock_guard lock(mutex_);
  ++runs_;
  std::erase_if(blocks_, [&](const auto& block) { return block.second.given_up + kMostRuns < runs_; });
}

c10::DataPtr WorkMemory::lend(size_t bytes) {
  return RunAllocator::get().lend(std::make_unique<Lent>(Lent{shared_from_this(), take(bytes)}), bytes);
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
  return at::detail::empty_strided_cpu(sizes, strides, dtype);
}

at::Tensor work_tensor(at::IntArrayRef sizes, c10::ScalarType dtype) {
  return work_tensor(sizes, c10::contiguous_strides(sizes), dtype);
}

void give_back_work_memory() {
  if (current) current->memory().clear();
}

bool is_last_reference(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1 && RunAllocator::get().gave(tensor);
}

at::Tensor work_tensor_over(const at::Tensor& tensor) {
  if (!is_last_reference(tensor)) return work_tensor(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  note_bound(tensor, std::numeric_limits<float>::infinity());
  return tensor;
}

at::Tensor snug(const at::Tensor& tensor) {
  const auto* const lent = RunAllocator::get().lent_to(tensor);
  return !lent || is_snug(lent->block.key(), tensor.storage().nbytes()) ? tensor : tensor.clone();
}

float bound_of(const at::Tensor& tensor) {
  const auto* const lent = RunAllocator::get().lent_to(tensor);
  const bool is_known = lent && current && lent->noted_in == current->number();
  return is_known ? lent->bound : std::numeric_limits<float>::infinity();
}

void note_bound(const at::Tensor& tensor, float bound) {
  auto* const lent = RunAllocator::get().lent_to(tensor);
  if (!lent || !current) return;
  lent->bound = bound;
  lent->noted_in = current->number();
}

}  // namespace onnxtorch
