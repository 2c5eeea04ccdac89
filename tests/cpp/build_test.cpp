// Tests of what the build must get right though no symbol asks for it.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/custom_class.h>

#include <mutex>
#include <set>
#include <thread>

namespace onnxtorch {
namespace {

TEST(Build, LoadsTheKernels) {
  EXPECT_NE(torch::getCustomClass("__torch__.torch.classes.onnx_torch.StringPool"), nullptr);
}

TEST(Build, CompilesParallelForWithThreads) {
  at::set_num_threads(2);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  at::parallel_for(0, 2, 1, [&](int64_t, int64_t) {
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(threads.size(), 2u);
}

}  // namespace
}  // namespace onnxtorch
