#include "runtime/processor_quota.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "temporary_folder.h"

namespace onnxtorch {
namespace {

namespace fs = std::filesystem;
using ::testing::Optional;

// The files as the kernel shows them, in a folder of their own.
class ProcessorQuota : public ::testing::Test {
 protected:
  void write(const fs::path& file, const std::string& text) const { folder_.write(file, text + '\n'); }

  testing::TemporaryFolder folder_;
  const fs::path& root_ = folder_.path();
};

TEST_F(ProcessorQuota, IsNoneWithoutFiles) { EXPECT_EQ(processor_quota(root_), std::nullopt); }

TEST_F(ProcessorQuota, IsReadFromVersion2) {
  write("proc/self/cgroup", "0::/");
  write("sys/fs/cgroup/cpu.max", "250000 100000");
  EXPECT_THAT(processor_quota(root_), Optional(2.5));
}

TEST_F(ProcessorQuota, IsNoneWhereItIsMax) {
  write("proc/self/cgroup", "0::/");
  write("sys/fs/cgroup/cpu.max", "max 100000");
  EXPECT_EQ(processor_quota(root_), std::nullopt);
}

TEST_F(ProcessorQuota, IsTheSmallestOfAllGroupsAround) {
  write("proc/self/cgroup", "0::/kubepods/pod/container");
  write("sys/fs/cgroup/kubepods/cpu.max", "800000 100000");
  write("sys/fs/cgroup/kubepods/pod/cpu.max", "150000 50000");
  write("sys/fs/cgroup/kubepods/pod/container/cpu.max", "max 100000");
  EXPECT_THAT(processor_quota(root_), Optional(3));
}

TEST_F(ProcessorQuota, IsReadFromVersion1) {
  write("proc/self/cgroup", "9:name=systemd:/\n4:cpuset:/other\n1:cpu,cpuacct:/docker/one\n0::/");
  write("sys/fs/cgroup/cpu/docker/one/cpu.cfs_quota_us", "150000");
  write("sys/fs/cgroup/cpu/docker/one/cpu.cfs_period_us", "100000");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  EXPECT_THAT(processor_quota(root_), Optional(1.5));
}

TEST_F(ProcessorQuota, IsFoundAtTheTopOfAContainer) {
  write("proc/self/cgroup", "1:cpuacct,cpu:/docker/one");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  EXPECT_THAT(processor_quota(root_), Optional(0.5));
}

TEST_F(ProcessorQuota, IsNoneOfGroupsThatShareOtherThings) {
  write("proc/self/cgroup", "4:cpuset:/\n2:cpuacct:/");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  EXPECT_EQ(processor_quota(root_), std::nullopt);
}

// Gives the number of threads in a new thread after a function. Nobody has set one, as the test has a process of its
// own.
int threads_after(const std::function<void()>& follow) {
  int threads = 0;
  std::thread([&] {
    follow();
    threads = at::get_num_threads();
  }).join();
  return threads;
}

TEST_F(ProcessorQuota, LimitsTheDefaultNumberOfThreadsAndNoOther) {
  unsetenv("OMP_NUM_THREADS");
  unsetenv("MKL_NUM_THREADS");
  const auto follow = [&] { follow_processor_quota(root_); };
  const int before = threads_after([] {});
  EXPECT_EQ(threads_after(follow), before);  // there is no quota
  write("proc/self/cgroup", "0::/");
  write("sys/fs/cgroup/cpu.max", "50000 100000");
  setenv("OMP_NUM_THREADS", "8", 1);
  EXPECT_EQ(threads_after(follow), before);
  unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(threads_after(follow), 1);
  at::set_num_threads(before + 3);
  EXPECT_EQ(threads_after(follow), before + 3);
}

}  // namespace
}  // namespace onnxtorch
