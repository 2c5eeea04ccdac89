#include "runtime/processor_quota.h"

#include <ATen/Parallel.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

// A libtorch without MKL lacks this function.
extern "C" int MKL_Get_Max_Threads() __attribute__((weak));

namespace fs = std::filesystem;

namespace onnxtorch {
namespace {

// Gives a group's quota in processors: microseconds of work by those of a period. cgroup v2 has them in one file ("max
// 100000" is no quota), v1 in two (-1 is none).
std::optional<double> quota_of(const fs::path& group) {
  double work = 0, period = 0;
  if (std::ifstream(group / "cpu.max") >> work >> period && period > 0) return work / period;
  std::ifstream(group / "cpu.cfs_quota_us") >> work;
  std::ifstream(group / "cpu.cfs_period_us") >> period;
  return work > 0 && period > 0 ? std::optional(work / period) : std::nullopt;
}

std::optional<double> smaller(std::optional<double> a, std::optional<double> b) {
  return a && b ? std::min(*a, *b) : a ? a : b;
}

// Tells whether a line of /proc/self/cgroup, "number:controllers:group", is of processors; v2 has no controllers there.
bool lists_processors(const std::string& controllers) {
  return controllers.empty() || ("," + controllers + ",").find(",cpu,") != std::string::npos;
}

// Gives the number of threads that libtorch takes where nobody tells it, as a new thread sees it: that has no number of
// its own yet.
int default_threads() {
  int threads = 0;
  std::thread([&] { threads = MKL_Get_Max_Threads ? MKL_Get_Max_Threads() : omp_get_max_threads(); }).join();
  return threads;
}

bool is_set(const char* variable) {
  const char* const value = std::getenv(variable);
  return value && *value;
}

}  // namespace

std::optional<double> processor_quota(const fs::path& root) {
  std::optional<double> quota;
  std::ifstream groups(root / "proc/self/cgroup");
  std::string number, controllers, group;
  while (std::getline(groups, number, ':') && std::getline(groups, controllers, ':') && std::getline(groups, group)) {
    if (!lists_processors(controllers)) continue;
    const fs::path mounted = root / "sys/fs/cgroup" / (controllers.empty() ? "" : "cpu");
    // In a container the files of its own group may lie at the top, though the group has a longer name outside.
    for (fs::path name = fs::path(group).relative_path();; name = name.parent_path()) {
      quota = smaller(quota, quota_of(mounted / name));
      if (name.empty()) break;
    }
  }
  return quota;
}

void follow_processor_quota(const fs::path& root) {
  if (is_set("OMP_NUM_THREADS") || is_set("MKL_NUM_THREADS")) return;
  const std::optional<double> quota = processor_quota(root);
  if (!quota) return;
  const int threads = std::max(1, static_cast<int>(std::ceil(*quota)));
  // The default is asked for last: where another thread is busy, as numpy's are after its import, that takes
  // milliseconds.
  if (threads < at::get_num_threads() && at::get_num_threads() == default_threads()) at::set_num_threads(threads);
}

}  // namespace onnxtorch
