// The number of processors that a container lets its processes have, however many the machine has.
#pragma once

#include <filesystem>
#include <optional>

namespace onnxtorch {

// Gives the smallest quota of this process's cgroup and of those around it, in processors; none where there is no
// quota. `root` is where the files of the system are.
std::optional<double> processor_quota(const std::filesystem::path& root = "/");

// Sets libtorch's number of threads to the quota, rounded up, where it is the default and larger: one for each
// processor that the process may run on. A number that somebody has set, by OMP_NUM_THREADS or at::set_num_threads,
// stays.
void follow_processor_quota(const std::filesystem::path& root = "/");

}  // namespace onnxtorch
