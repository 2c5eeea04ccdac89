#include "base/work_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <thread>
#include <vector>

namespace onnxtorch {
namespace {

constexpr int64_t kLarge = 1 << 20, kSmall = 1 << 10;

TEST(WorkMemory, GivesAgainWhatWasGivenUp) {
  const auto memory = std::make_shared<WorkMemory>();
  const WorkMemory::Scope scope(*memory);
  at::Tensor x = work_tensor({kLarge}, c10::kFloat);
  const void* const place = x.data_ptr();
  const at::Tensor y = work_tensor({kLarge}, c10::kFloat);
  EXPECT_NE(y.data_ptr(), place);
  x.reset();
  EXPECT_EQ(memory->kept_bytes(), kLarge * 4);
  const at::Tensor z = work_tensor({4, kLarge / 4}, {1, 4}, c10::kFloat);
  EXPECT_EQ(z.data_ptr(), place);
  EXPECT_EQ(z.strides(), (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(memory->kept_bytes(), 0);
}

TEST(WorkMemory, GivesNoMuchLargerBlockOfAnEarlierRun) {
  const auto memory = std::make_shared<WorkMemory>();
  const void* place = nullptr;
  {
    const WorkMemory::Scope scope(*memory);
    place = work_tensor({4 * kLarge}, c10::kFloat).data_ptr();
    EXPECT_EQ(work_tensor({kLarge}, c10::kFloat).data_ptr(), place);
  }
  const WorkMemory::Scope scope(*memory);
  EXPECT_NE(work_tensor({kLarge}, c10::kFloat).data_ptr(), place);
  EXPECT_EQ(work_tensor({4 * kLarge - 1}, c10::kFloat).data_ptr(), place);
}

TEST(WorkMemory, SmallResultsThatAreHeldLeaveLargeBlocksToLargeOnes) {
  const auto memory = std::make_shared<WorkMemory>();
  const WorkMemory::Scope scope(*memory);
  const void* const place = work_tensor({4 * kLarge + 1}, c10::kFloat).data_ptr();
  std::vector<at::Tensor> held;
  for (int layer = 0; layer < 3; ++layer) {
    held.push_back(work_tensor({kLarge}, c10::kFloat));
    EXPECT_EQ(work_tensor({4 * kLarge + 1}, c10::kFloat).data_ptr(), place);
  }
}

TEST(WorkMemory, GivesTheSmallestBlockThatIsLargeEnough) {
  const auto memory = std::make_shared<WorkMemory>();
  const WorkMemory::Scope scope(*memory);
  at::Tensor large = work_tensor({4 * kLarge}, c10::kFloat), small = work_tensor({2 * kLarge}, c10::kFloat);
  const void* const place = small.data_ptr();
  large.reset();
  small.reset();
  EXPECT_EQ(work_tensor({kLarge}, c10::kFloat).data_ptr(), place);
}

TEST(WorkMemory, GivesBackWhatNoTensorHolds) {
  const auto memory = std::make_shared<WorkMemory>();
  const WorkMemory::Scope scope(*memory);
  work_tensor({kLarge}, c10::kFloat);
  const at::Tensor held = work_tensor({2 * kLarge}, c10::kFloat).fill_(3);
  ASSERT_EQ(memory->kept_bytes(), kLarge * 4);
  memory->clear();
  EXPECT_EQ(memory->kept_bytes(), 0);
  EXPECT_EQ(held.sum().item<float>(), 6 * kLarge);
}

TEST(WorkMemory, KeepsNoLargeBlockForASmallTensor) {
  const auto memory = std::make_shared<WorkMemory>();
  const WorkMemory::Scope scope(*memory);
  work_tensor({2 * kLarge}, c10::kFloat);
  const at::Tensor x = work_tensor({kLarge}, c10::kFloat).fill_(3);
  const at::Tensor kept = snug(x);
  EXPECT_NE(kept.data_ptr(), x.data_ptr());
  EXPECT_TRUE(kept.equal(x));
  const at::Tensor fitting = work_tensor({kLarge}, c10::kFloat);
  EXPECT_EQ(snug(fitting).data_ptr(), fitting.data_ptr());
}

TEST(WorkMemory, KeepsNothingForEver) {
  const auto memory = std::make_shared<WorkMemory>();
  {
    const WorkMemory::Scope scope(*memory);
    work_tensor({kLarge}, c10::kFloat);
  }
  EXPECT_GT(memory->kept_bytes(), 0);
  for (int run = 0; run < 5; ++run) const WorkMemory::Scope scope(*memory);
  EXPECT_EQ(memory->kept_bytes(), 0);
}

TEST(WorkMemory, LeavesSmallTensorsAndOthersAlone) {
  const auto memory = std::make_shared<WorkMemory>();
  work_tensor({kLarge}, c10::kFloat);
  {
    const WorkMemory::Scope scope(*memory);
    work_tensor({kSmall}, c10::kFloat);
    std::thread([] { work_tensor({kLarge}, c10::kFloat); }).join();
  }
  EXPECT_EQ(memory->kept_bytes(), 0);
}

TEST(WorkMemory, GivesAtensResultsTheirMemory) {
  const auto memory = std::make_shared<WorkMemory>();
  const at::Tensor x = at::ones({kLarge});
  const WorkMemory::Scope scope(*memory);
  const void* const place = at::add(x, x).data_ptr();
  EXPECT_EQ(memory->kept_bytes(), kLarge * 4);
  const at::Tensor y = at::mul(x, 3);
  EXPECT_EQ(y.data_ptr(), place);
  EXPECT_EQ(memory->kept_bytes(), 0);
  EXPECT_TRUE(is_last_reference(y));
  EXPECT_EQ(y.sum().item<float>(), 3 * kLarge);
}

TEST(WorkMemory, GivesRawMemoryAndTakesItBack) {
  const auto memory = std::make_shared<WorkMemory>();
  c10::Allocator& allocator = *c10::GetAllocator(c10::kCPU);
  void* const small = allocator.raw_allocate(kSmall);
  void* large = nullptr;
  {
    const WorkMemory::Scope scope(*memory);
    large = allocator.raw_allocate(kLarge);
    allocator.raw_deallocate(small);
    EXPECT_EQ(memory->kept_bytes(), 0);
  }
  allocator.raw_deallocate(large);
  EXPECT_EQ(memory->kept_bytes(), kLarge);
}

TEST(WorkMemory, MayEndBeforeItsTensors) {
  auto memory = std::make_shared<WorkMemory>();
  at::Tensor x;
  {
    const WorkMemory::Scope scope(*memory);
    x = work_tensor({kLarge}, c10::kFloat);
  }
  memory.reset();
  x.fill_(1);
  EXPECT_EQ(x.sum().item<float>(), kLarge);
}

TEST(WorkMemory, TellsTheLastReference) {
  const auto memory = std::make_shared<WorkMemory>();
  const WorkMemory::Scope scope(*memory);
  for (const int64_t size : {kSmall, kLarge}) {
    const at::Tensor x = work_tensor({size}, c10::kFloat);
    EXPECT_TRUE(is_last_reference(x));
    {
      const at::Tensor same = x;
      EXPECT_FALSE(is_last_reference(x));
    }
    const at::Tensor part = x.narrow(0, 0, 2);
    EXPECT_FALSE(is_last_reference(x));
    EXPECT_FALSE(is_last_reference(part));
  }
  EXPECT_TRUE(is_last_reference(at::ones({4})));
  float lent[4] = {};
  EXPECT_FALSE(is_last_reference(at::from_blob(lent, {4})));
}

TEST(WorkMemory, GivesAResultTheMemoryOfTheLastReference) {
  const auto memory = std::make_shared<WorkMemory>();
  const WorkMemory::Scope scope(*memory);
  for (const int64_t size : {kSmall, kLarge}) {
    const at::Tensor x = work_tensor({size}, c10::kFloat);
    note_bound(x, 2);
    {
      const at::Tensor same = x;
      EXPECT_FALSE(work_tensor_over(x).is_alias_of(x));
    }
    EXPECT_TRUE(work_tensor_over(x).is_same(x));
    EXPECT_EQ(bound_of(x), std::numeric_limits<float>::infinity());
  }
}

TEST(WorkMemory, ForgetsABoundWithTheRun) {
  const auto memory = std::make_shared<WorkMemory>();
  constexpr float kUnknown = std::numeric_limits<float>::infinity();
  at::Tensor x;
  {
    const WorkMemory::Scope scope(*memory);
    x = work_tensor({kLarge}, c10::kFloat);
    EXPECT_EQ(bound_of(x), kUnknown);
    note_bound(x, 3);
    EXPECT_EQ(bound_of(x), 3);
    EXPECT_EQ(bound_of(x.narrow(0, 1, 2)), 3);
    {
      const WorkMemory::Scope inner(*memory);
      EXPECT_EQ(bound_of(x), kUnknown);
    }
    EXPECT_EQ(bound_of(x), 3);
  }
  EXPECT_EQ(bound_of(x), kUnknown);
  note_bound(x, 3);
  const WorkMemory::Scope scope(*memory);
  EXPECT_EQ(bound_of(x), kUnknown);
  x.reset();
  EXPECT_EQ(bound_of(work_tensor({kLarge}, c10::kFloat)), kUnknown);
  const at::Tensor small = work_tensor({kSmall}, c10::kFloat);
  note_bound(small, 3);
  EXPECT_EQ(bound_of(small), kUnknown);
}

}  // namespace
}  // namespace onnxtorch
