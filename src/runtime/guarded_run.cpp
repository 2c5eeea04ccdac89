#include "runtime/guarded_run.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/interruption.h"
#include "base/run_apart.h"
#include "base/stopwatch.h"
#include "base/text_of.h"
#include "base/thread_limit.h"
#include "graph/program.h"

namespace onnxtorch {
namespace {

using c10::IValue;

// The time that a run which is to stop may still take, before it is left.
constexpr double kSecondsToStop = 0.1;

// The state that a run and whoever waits for it share.
struct Attempt {
  GuardedRun run;
  int threads = at::get_num_threads();  // those of the thread that waits
  std::atomic<int64_t> at_node = -1;
  StopFlag stop = {};
  GuardedRun::Result result = {};
  std::exception_ptr failure = nullptr;
  std::string reason = {};  // why it was stopped

  void go(const StopFlag* flag) noexcept {
    try {
      const ThreadLimit limit(threads);
      RunGuard guard(run.limits, flag, &at_node);
      try {
        guard.check();
        std::optional<NodeTimer> timer;
        if (run.timed) timer.emplace(run.device);
        result.values = run.executable->run(run.inputs, run.strings, std::move(run.targets));
        if (timer) result.times = timer->times();
      } catch (...) {
        failure = std::current_exception();
        reason = guard.reason();
        if (reason.empty() && interrupted()) reason = stopped_by_caller();
      }
    } catch (...) {  // the limit or the guard cannot be set up
      failure = std::current_exception();
    }
  }

  GuardedRun::Result outcome() {
    if (!failure) return std::move(result);
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      if (interrupted() || reason.empty()) throw;
      throw StoppedRun(reason, node_number(text_of(error)));
    }
  }

  std::optional<size_t> node() const {
    return at_node < 0 ? std::nullopt : std::optional(static_cast<size_t>(at_node));
  }
};

bool is_owned(const at::Tensor& t) { return !t.defined() || t.storage().data_ptr().get_context() != nullptr; }

// Gives the value with the tensors copied that lie in the caller's memory.
IValue owned(const IValue& value) {
  if (value.isTensor()) return is_owned(value.toTensor()) ? value : value.toTensor().clone();
  if (!value.isList()) return value;
  c10::impl::GenericList list(value.toList().elementType());
  for (const IValue& item : value.toListRef()) list.push_back(owned(item));
  return list;
}

GuardedRun::Result run_apart_from_caller(GuardedRun run, const StopFlag* stop) {
  for (IValue& input : run.inputs) input = owned(input);
  for (at::Tensor& target : run.targets) {
    if (!is_owned(target)) target = at::Tensor();
  }
  const Stopwatch run_time;
  const double seconds = run.limits.seconds;
  const auto attempt = std::make_shared<Attempt>(std::move(run));
  std::optional<Stopwatch> over;  // since it is to stop
  std::exception_ptr interruption;
  const auto waits = [&] {
    if (!interruption) {
      try {
        check_interruption();
      } catch (...) {
        interruption = std::current_exception();
      }
    }
    if (interruption || (stop && stop->set)) attempt->stop.set = true;
    if (!over && (attempt->stop.set || run_time.seconds() > seconds)) over.emplace();
    return !over || over->seconds() < kSecondsToStop;
  };
  const auto work = [attempt] {
    const Interruptible interruptible(attempt->stop);
    attempt->go(&attempt->stop);
  };
  const bool is_done = run_apart(work, waits);
  if (interruption) std::rethrow_exception(interruption);
  if (!is_done) {
    const std::string reason = attempt->stop.set ? stopped_by_caller() : takes_longer_than(seconds);
    throw StoppedRun(reason + " (the node goes on in a thread of its own until it is done)", attempt->node());
  }
  return attempt->outcome();
}

}  // namespace

GuardedRun::Result GuardedRun::operator()(const StopFlag* stop) && {
  if (may_leave) return run_apart_from_caller(std::move(*this), stop);
  Attempt attempt{std::move(*this)};
  attempt.go(stop);
  return attempt.outcome();
}

}  // namespace onnxtorch
