#include "gil.h"

#include <cxxabi.h>
#include <unistd.h>

namespace onnxtorch {
namespace {

[[noreturn]] void rest() {
  for (;;) ::pause();
}

// Takes the lock, or rests where the interpreter has ended. Python's own main thread holds the lock while it ends it.
template <typename Take>
auto taken(const Take& take) {
  try {
    return take();
  } catch (const abi::__forced_unwind&) {
    rest();
  }
}

}  // namespace

WithoutGil::WithoutGil() : thread_(PyEval_SaveThread()) {}

WithoutGil::~WithoutGil() {
  taken([this] { PyEval_RestoreThread(thread_); });
}

WithGil::WithGil() : state_(taken([] { return PyGILState_Ensure(); })) {}

WithGil::~WithGil() { PyGILState_Release(state_); }

}  // namespace onnxtorch
