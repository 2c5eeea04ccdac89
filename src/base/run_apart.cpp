#include "base/run_apart.h"

#include <ATen/ThreadLocalState.h>
#include <omp.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/work_beside.h"

namespace onnxtorch {
namespace {

constexpr std::chrono::milliseconds kBetweenQuestions(5);

// The sign that the work is done, which both threads have.
class Done {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_one();
  }

  bool within(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [this] { return done_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
};

void let_go_on() { [[maybe_unused]] static const bool told = (let_work_go_on_at_exit(), true); }

}  // namespace

bool run_apart(std::function<void()> work, const std::function<bool()>& waits) {
  const auto done = std::make_shared<Done>();
  const auto shared = std::make_shared<std::function<void()>>(std::move(work));
  const auto apart = [shared, done, settings = at::ThreadLocalState()] {
    const WorkBeside beside;
    {
      const at::ThreadLocalStateGuard guard(settings);
      (*shared)();
    }
    *shared = nullptr;  // lets go of what the work holds
    done->set();
  };
  omp_pause_resource_all(omp_pause_soft);  // this thread's team, which would spin beside that of the work
  try {
    std::thread(apart).detach();
  } catch (const std::system_error&) {
    (*shared)();
    return true;
  }
  try {
    while (!done->within(kBetweenQuestions)) {
      if (waits()) continue;
      let_go_on();
      return false;
    }
  } catch (...) {
    let_go_on();
    throw;
  }
  return true;
}

}  // namespace onnxtorch
