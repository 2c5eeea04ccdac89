#include "gil.h"

#include <cxxabi.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <iostream>

namespace onnxtorch {
namespace {

[[noreturn]] void rest() {
  for (;;) ::pause();
}

// Python's own main thread holds the lock while it ends the interpreter.
template <typename Take>
auto taken(const Take& take) {
  try {
    return take();
  } catch (const abi::__forced_unwind&) {
    rest();
  }
}

std::atomic<int> work_beside = 0;

void end_at_once(int status, void*) {
  if (work_beside == 0) return;
  std::cout.flush();
  std::fflush(nullptr);
  ::_exit(status);
}

}  // namespace

WithoutGil::WithoutGil() : thread_(PyEval_SaveThread()) {}

WithoutGil::~WithoutGil() {
  taken([this] { PyEval_RestoreThread(thread_); });
}

WithGil::WithGil() : state_(taken([] { return PyGILState_Ensure(); })) {}

WithGil::~WithGil() { PyGILState_Release(state_); }

WorkBeside::WorkBeside() { ++work_beside; }

WorkBeside::~WorkBeside() { --work_beside; }

// What is registered last, here when the interpreter has ended, comes first.
void let_work_go_on_at_exit() {
  Py_AtExit([] { ::on_exit(end_at_once, nullptr); });
}

}  // namespace onnxtorch
