// Runs models that are wrong somewhere, in processes of their own: where one ends by a signal, by an exception that is
// none of the package's, or takes too long, the model is kept, and another process goes on.
#include <dlfcn.h>
#include <execinfo.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "files.h"
#include "mutate.h"
#include "on_disk.h"
#include "onnx_torch/model.h"
#include "targets.h"

namespace onnxtorch::fuzz {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kUsage =
    "usage: onnx_torch_fuzz TARGET --seeds FOLDER [--runs N] [--seconds N] [--first N] [--seed N] [--bytes]\n"
    "                       [--keep FOLDER]\n"
    "       onnx_torch_fuzz TARGET FILE...      runs these inputs as they are\n";
constexpr int kSeconds = 10;               // that an input may take of the processor,
constexpr int kWaiting = 100;              // and till it is done, however busy the machine is
constexpr rlim_t kMemory = 4'500'000'000;  // bytes, over what the process has when it begins
constexpr size_t kMostBytes = size_t{8} << 20;
constexpr int kMostFrames = 48, kForeign = 3;
constexpr std::chrono::minutes kSilence{1};  // no longer than that, while inputs are tried

struct Arguments {
  std::string target;
  std::vector<fs::path> files;
  fs::path seeds, keep = "out/fuzz";
  int64_t runs = INT64_MAX, first = 0;
  double seconds = 1e18;
  uint64_t seed = 0;
  bool bytes = false;
};

// What the process that works tells the one that watches.
struct Shared {
  std::atomic<int64_t> number;  // of the input at work
  std::array<std::atomic<int64_t>, 5> outcomes;
  Clock::time_point begin, told;  // when the first input was tried, and when progress was last told
  size_t size;
  int frames;
  void* addresses[kMostFrames];
  char what[256];
  char bytes[kMostBytes];
};
Shared* shared = nullptr;

void on_signal(int number) {
  shared->frames = backtrace(shared->addresses, kMostFrames);
  std::signal(number, SIG_DFL);
  raise(number);
}

rlim_t address_space() {
  std::ifstream stream("/proc/self/statm");
  rlim_t pages = 0;
  stream >> pages;
  return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}

void limit_process() {
  const rlimit memory{address_space() + kMemory, RLIM_INFINITY}, no_core{0, 0};
  setrlimit(RLIMIT_AS, &memory);
  setrlimit(RLIMIT_CORE, &no_core);
  void* warm[1];
  backtrace(warm, 1);  // loads what it needs
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGILL, SIGALRM, SIGPROF}) std::signal(number, on_signal);
}

// Mixes a number into one that has nothing to do with its neighbours'.
uint64_t mixed(uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}

std::string input(const std::vector<std::string>& seeds, const Arguments& given, int64_t number) {
  Random random(mixed(given.seed * 0x9E3779B97F4A7C15 + static_cast<uint64_t>(number)));
  std::string bytes = random.of(seeds);
  const std::string& other = random.of(seeds);
  if (!given.bytes) return mutate_model(bytes, other, random);
  mutate_bytes(bytes, other, random);
  return bytes;
}

// 0: no more.
void limit_time(int seconds, int waiting) {
  const itimerval timer{.it_interval = {}, .it_value = {.tv_sec = seconds, .tv_usec = 0}};
  setitimer(ITIMER_PROF, &timer, nullptr);
  alarm(static_cast<unsigned>(waiting));
}

void work_on(const std::string& bytes, Target& target) {
  if (bytes.size() > kMostBytes) return;
  std::memcpy(shared->bytes, bytes.data(), bytes.size());
  shared->size = bytes.size();
  limit_time(kSeconds, kWaiting);
  try {
    ++shared->outcomes[static_cast<size_t>(target(bytes))];
  } catch (const std::exception& error) {
    std::strncpy(shared->what, error.what(), sizeof(shared->what) - 1);
    _exit(kForeign);
  }
  limit_time(0, 0);
}

int64_t seconds_since(Clock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - begin).count();
}

// Tells how many inputs were tried, once in a while.
void tell_progress(const Arguments& given) {
  if (Clock::now() - shared->told < kSilence) return;
  shared->told = Clock::now();
  std::cerr << given.target << ": " << shared->number - given.first << " inputs in " << seconds_since(shared->begin)
            << " s" << std::endl;
}

// From the first of them in a row; how a child ends tells what became of the one at work.
[[noreturn]] void work(const std::vector<std::string>& seeds, const Arguments& given, int64_t from,
                       Clock::time_point end) {
  limit_process();
  Target& target = *targets().at(given.target);
  for (int64_t number = from; number < given.first + given.runs && Clock::now() < end; ++number) {
    shared->number = number;
    work_on(input(seeds, given, number), target);
    tell_progress(given);
  }
  _exit(0);
}

// The name of a function that no table tells, as those of this program, by its debugger's tool.
std::string name_of(const char* program, std::ptrdiff_t offset) {
  std::ostringstream command;
  command << "addr2line -Cfe '" << program << "' 0x" << std::hex << offset << " 2>/dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> answer(popen(command.str().c_str(), "r"), pclose);
  char line[512] = {};
  if (!answer || !std::fgets(line, sizeof(line), answer.get()) || line[0] == '?') return "";
  const std::string name = std::regex_replace(line, std::regex("\\(anonymous namespace\\)::"), "");
  return name.substr(0, name.find_first_of("(<\n"));
}

// The functions that were at work, the innermost first.
std::string place() {
  constexpr int kMost = 4;
  std::string text;
  int told = 0;
  for (int i = 2; i < shared->frames && told < kMost; ++i) {  // after the signal's own
    Dl_info where{};
    if (!dladdr(shared->addresses[i], &where) || !where.dli_fname) continue;
    const auto offset = static_cast<char*>(shared->addresses[i]) - static_cast<char*>(where.dli_fbase);
    std::string name = where.dli_sname ? where.dli_sname : name_of(where.dli_fname, offset - 1);
    if (name.empty()) name = fs::path(where.dli_fname).filename().string() + "+" + std::to_string(offset);
    text.append(told++ > 0 ? " < " : "").append(name);
  }
  return text;
}

// A message's first line, without the numbers in it.
std::string kind_of(const std::string& what) {
  static const std::regex number("-?[0-9]+(\\.[0-9]+)?");
  return std::regex_replace(what.substr(0, what.find('\n')), number, "N");
}

// Why a child ended before its time; empty where it did not.
std::string fate(int status) {
  if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGALRM || WTERMSIG(status) == SIGPROF)) return "hangs in " + place();
  if (WIFSIGNALED(status)) return std::string(strsignal(WTERMSIG(status))) + " in " + place();
  if (WEXITSTATUS(status) == kForeign) return "foreign exception: " + kind_of(shared->what);
  return WEXITSTATUS(status) ? "exit code " + std::to_string(WEXITSTATUS(status)) : "";
}

// Runs the function in a child, and tells why that ended before its time.
template <typename Function>
std::string apart(const Function& function) {
  shared->frames = 0;
  std::memset(shared->what, 0, sizeof(shared->what));
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("no more processes");
  if (child == 0) function();
  int status = 0;
  waitpid(child, &status, 0);
  return fate(status);
}

int replay(const Arguments& given) {
  int bad = 0;
  for (const fs::path& file : given.files) {
    const std::string bytes = read(file);
    const std::string why = apart([&] {
      limit_process();
      work_on(bytes, *targets().at(given.target));
      _exit(0);
    });
    std::cout << file.string() << ": " << (why.empty() ? "fine" : why) << std::endl;
    bad += why.empty() ? 0 : 1;
  }
  return bad ? 1 : 0;
}

int fuzz(const Arguments& given) {
  const std::vector<std::string> seeds = files_in(given.seeds);
  shared->begin = shared->told = Clock::now();
  const auto end = shared->begin + std::chrono::duration_cast<Clock::duration>(
                                       std::chrono::duration<double>(std::min(given.seconds, 1e9)));
  std::map<std::string, int64_t> fates;
  int64_t next = given.first;
  while (next < given.first + given.runs && Clock::now() < end) {
    shared->number = next - 1;
    const std::string why = apart([&] { work(seeds, given, next, end); });
    next = shared->number + 1;
    if (why.empty()) break;
    if (fates[why]++ > 0) continue;
    fs::create_directories(given.keep);
    const fs::path file = given.keep / (given.target + "-" + std::to_string(next - 1) + ".onnx");
    std::ofstream(file, std::ios::binary).write(shared->bytes, static_cast<std::streamsize>(shared->size));
    std::cout << file.string() << ": " << why << std::endl;
  }
  const auto& [no_model, refused, prepared, failed, ran] = shared->outcomes;
  int64_t found = 0;
  for (const auto& [why, count] : fates) found += count;
  std::cout << given.target << ": " << next - given.first << " inputs in " << seconds_since(shared->begin)
            << " s: " << no_model << " no models, " << refused << " refused, " << prepared << " prepared, " << failed
            << " failed in their run, " << ran << " ran; " << found << " bad ends of " << fates.size() << " kinds"
            << std::endl;
  return fates.empty() ? 0 : 1;
}

Arguments parsed(int count, char** values) {
  Arguments given;
  for (int i = 1; i < count; ++i) {
    const std::string name = values[i];
    const auto value = [&]() -> std::string {
      if (i + 1 == count) throw std::invalid_argument(name + " takes a value");
      return values[++i];
    };
    if (name == "--seeds") {
      given.seeds = value();
    } else if (name == "--keep") {
      given.keep = value();
    } else if (name == "--runs") {
      given.runs = std::stoll(value());
    } else if (name == "--first") {
      given.first = std::stoll(value());
    } else if (name == "--seconds") {
      given.seconds = std::stod(value());
    } else if (name == "--seed") {
      given.seed = std::stoull(value());
    } else if (name == "--bytes") {
      given.bytes = true;
    } else if (given.target.empty()) {
      given.target = name;
    } else {
      given.files.emplace_back(name);
    }
  }
  if (!targets().contains(given.target)) throw std::invalid_argument("no target of this name: " + given.target);
  if (given.files.empty() == given.seeds.empty()) throw std::invalid_argument("either --seeds or files are needed");
  given.runs = std::min(given.runs, INT64_MAX - given.first);
  return given;
}

int main_of(int count, char** values) {
  const Arguments given = parsed(count, values);
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no memory");
  shared = new (memory) Shared;
  make_ready();
  ignore_warnings();
  make_folders_in_memory();
  return given.files.empty() ? fuzz(given) : replay(given);
}

}  // namespace
}  // namespace onnxtorch::fuzz

int main(int count, char** values) {
  try {
    return onnxtorch::fuzz::main_of(count, values);
  } catch (const std::exception& error) {
    std::cerr << "onnx_torch_fuzz: " << error.what() << "\n" << onnxtorch::fuzz::kUsage;
    return 2;
  }
}
