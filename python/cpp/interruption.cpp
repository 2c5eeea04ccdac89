#include "interruption.h"

#include <pybind11/pybind11.h>
#include <signal.h>
#include <time.h>

// Each CPython exports this function; from 3.13 on, only a header of CPython's own declares it.
extern "C" PyAPI_FUNC(int) _PyOS_IsMainThread(void);

namespace onnxtorch {
namespace {

namespace py = pybind11;

struct sigaction around;  // the handler in whose place ours is: Python's own, unless somebody else came before

// Handles the signal. Python gets to know of it as it always does, and then whoever is at work.
void handle(int number, siginfo_t* info, void* context) {
  if (around.sa_flags & SA_SIGINFO) {
    around.sa_sigaction(number, info, context);
  } else {
    around.sa_handler(number);
  }
  interrupt();
}

// Puts ours in front of the handler that is there; where Ctrl-C is ignored or ends the process, it stays so.
void install() {
  struct sigaction there;
  if (::sigaction(SIGINT, nullptr, &there)) return;
  const bool is_ours = there.sa_flags & SA_SIGINFO && there.sa_sigaction == handle;
  const bool is_plain = !(there.sa_flags & SA_SIGINFO) && (there.sa_handler == SIG_DFL || there.sa_handler == SIG_IGN);
  if (is_ours || is_plain) return;
  around = there;
  there.sa_flags |= SA_SIGINFO;
  there.sa_sigaction = handle;
  ::sigaction(SIGINT, &there, nullptr);
}

// Gives the time in milliseconds, exact to a few of them.
int64_t now() {
  timespec time;
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return time.tv_sec * int64_t{1000} + time.tv_nsec / 1000000;
}

}  // namespace

// Looks for the handler again, as Python's may be another one by now. It takes half a microsecond, too long for each of
// many runs.
bool notices_signals() {
  static int64_t looked = 0;
  constexpr int64_t kLookAgain = 10;
  if (!_PyOS_IsMainThread()) return false;
  if (const int64_t time = now(); time - looked >= kLookAgain) {
    looked = time;
    install();
  }
  return true;
}

void ask_python() {
  const WithGil gil;
  check_signals();
}

void check_signals() {
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

}  // namespace onnxtorch
