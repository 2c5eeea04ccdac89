// Python's lock, given back and taken again. Where the interpreter has ended meanwhile, a thread that asks for the lock
// rests for ever, as Python's own daemon threads do: Python would end it by unwinding its stack, which C++ takes for an
// exception that leaves a destructor.
#pragma once

#include <Python.h>

namespace onnxtorch {

// A scope in which this thread does not hold the lock.
class WithoutGil {
 public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const thread_;
};

// A scope in which this thread holds the lock, which it may hold already.
class WithGil {
 public:
  WithGil();
  ~WithGil();
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  const PyGILState_STATE state_;
};

}  // namespace onnxtorch
