#include "base/neighbours.h"

#include <fcntl.h>
#include <omp.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <latch>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace onnxtorch {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kBetweenReadings(10);
constexpr int kShareOfReadings = 200;      // readings take one part in so many of a processor at most
constexpr int kReadingsWithoutRuns = 200;  // there are no more readings after so many

const int processors = omp_get_num_procs();  // as libgomp has counted them when it was loaded

bool is_set(const char* variable) {
  const char* const value = std::getenv(variable);
  return value && *value;
}

const bool is_wanted = processors > 1 && !is_set("OMP_WAIT_POLICY") && !is_set("GOMP_SPINCOUNT");

std::atomic<int64_t> begun = 0, ended = 0;  // counts of runs
std::atomic<bool> waits_are_short = false;

// Reads what the scheduler tells of a thread: how long it ran, how long it waited to run, and how often it began to. It
// uses no stream, as one would take as long to be made as the file to be read.
bool read_numbers(const std::filesystem::path& file, std::array<int64_t, 3>& numbers) {
  const int opened = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (opened < 0) return false;
  std::array<char, 80> text{};
  const ssize_t length = read(opened, text.data(), text.size() - 1);
  close(opened);
  const char *next = text.data(), *const end = next + std::max<ssize_t>(0, length);
  for (int64_t& number : numbers) {
    while (next < end && *next == ' ') ++next;
    const auto [after, error] = std::from_chars(next, end, number);
    if (error != std::errc()) return false;
    next = after;
  }
  return true;
}

nanoseconds work_of_this_thread() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

// Tells whether so many threads are to be had: libgomp ends a process that can have no more.
bool can_start(int count) {
  std::latch tried(1);
  std::vector<std::jthread> threads;
  try {
    while (std::ssize(threads) < count) threads.emplace_back([&] { tried.wait(); });
  } catch (const std::system_error&) {
  }
  tried.count_down();
  return std::ssize(threads) == count;
}

// The thread that reads, which lives from a run until no run has followed for a while. It is never destroyed, as it may
// be at work when the process ends.
class Watch {
 public:
  static Watch& instance() {
    static auto* const only = new Watch;
    return *only;
  }

  bool goes_on() const { return goes_on_; }

  // Starts the thread. Where no more threads are to be had, nothing is read.
  void begin() {
    const std::lock_guard lock(mutex_);
    if (goes_on_.exchange(true)) return;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the program's own threads
    try {
      thread_ = std::jthread([this](const std::stop_token& stop) { read_until(stop); });
    } catch (const std::system_error&) {
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  // Ends the thread, and with it the threads that it holds, as a child would count them though they are not there.
  void before_fork() {
    mutex_.lock();
    thread_ = {};
    goes_on_ = false;
  }
  void after_fork() { mutex_.unlock(); }

 private:
  void read_until(const std::stop_token& stop) {
    pthread_setname_np(pthread_self(), "neighbours");
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any wake;
    LongWaits waits;
    Crowding crowding;
    std::optional<ShortWaits> held;
    nanoseconds between = kBetweenReadings;
    Clock::time_point last = Clock::now();
    int64_t seen = -1;
    for (int without_runs = 0; without_runs < kReadingsWithoutRuns; ++without_runs) {
      wake.wait_for(lock, stop, between, [] { return false; });
      if (stop.stop_requested()) break;
      const nanoseconds work = work_of_this_thread();
      const std::optional<nanoseconds> waited = waits.take();
      if (!waited) return;  // the reading is not begun again
      between = std::max<nanoseconds>(kBetweenReadings, kShareOfReadings * (work_of_this_thread() - work));
      const Clock::time_point now = Clock::now();
      const bool crowded = crowding.after(now - std::exchange(last, now), *waited);
      if (!crowded) held.reset();
      if (crowded && !held && can_start(processors)) held.emplace();
      waits_are_short = held.has_value();
      if (std::exchange(seen, begun.load()) != begun || begun != ended) without_runs = 0;
    }
    waits_are_short = false;
    goes_on_ = false;
  }

  std::mutex mutex_;
  std::jthread thread_;
  std::atomic<bool> goes_on_ = false;
};

[[maybe_unused]] const int registered =
    pthread_atfork([] { Watch::instance().before_fork(); }, [] { Watch::instance().after_fork(); },
                   [] {
                     ended = begun.load();  // other threads' runs are not here
                     Watch::instance().after_fork();
                   });

}  // namespace

bool Crowding::after(Time passed, Time waited) {
  constexpr int kUsual = 4;                   // waits of one part in so many of the time are usual
  constexpr Time kUnusual = milliseconds(6);  // processes that live for a moment take less
  constexpr Time kLong = milliseconds(1);
  constexpr Time kShortHold = milliseconds(250), kLongHold = seconds(2), kAfresh = seconds(4);
  passed = std::min<Time>(passed, milliseconds(100));  // more has passed where the process was stopped
  quiet_ = waited < kLong ? quiet_ + passed : Time(0);
  unusual_ = std::max(Time(0), unusual_ + waited - passed / kUsual);
  since_ += passed;
  if (crowded_ == (crowded_ ? quiet_ < hold_ : unusual_ >= kUnusual)) return crowded_;
  crowded_ = !crowded_;
  if (crowded_) hold_ = hold_ == Time(0) || since_ >= kAfresh ? kShortHold : std::min<Time>(2 * hold_, kLongHold);
  since_ = Time(0);
  return crowded_;
}

std::optional<LongWaits::Time> LongWaits::take() {
  constexpr int64_t kToWake = 50'000;  // nanoseconds, at most, where a processor is free
  std::unordered_map<int, Waits> now;
  int64_t waited = 0;
  std::error_code none;
  for (std::filesystem::directory_iterator entry(threads_, none), end; entry != end; entry.increment(none)) {
    const int thread = std::stoi(entry->path().filename());
    std::array<int64_t, 3> numbers{};
    if (thread == gettid() || !read_numbers(entry->path() / "schedstat", numbers)) continue;
    const Waits waits{numbers[1], numbers[2]};
    now.emplace(thread, waits);
    if (before_.empty()) continue;
    const Waits before = before_.contains(thread) ? before_[thread] : Waits{};
    waited += std::max<int64_t>(0, waits.nanoseconds - before.nanoseconds - kToWake * (waits.count - before.count));
  }
  before_ = std::move(now);
  return before_.empty() ? std::nullopt : std::optional<Time>(waited);
}

ShortWaits::ShortWaits() {
  int count = 0;
#pragma omp parallel num_threads(processors + 1) reduction(+ : count)
  count += 1;
  threads_ = count;
}

ShortWaits::~ShortWaits() { omp_pause_resource_all(omp_pause_soft); }

WatchedRun::WatchedRun() : watched_(is_wanted && omp_get_max_threads() > 1) {
  if (!watched_) return;
  ++begun;
  if (!Watch::instance().goes_on()) Watch::instance().begin();
}

WatchedRun::~WatchedRun() {
  if (watched_) ++ended;
}

int64_t worth_a_thread() {
  constexpr int64_t kUsual = 1 << 15, kMore = 8;  // to wake a thread, and to be woken by it, takes tens of microseconds
  return waits_are_short.load(std::memory_order_relaxed) ? kMore * kUsual : kUsual;
}

}  // namespace onnxtorch
