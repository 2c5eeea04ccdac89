// Python's lock, given back and taken again. Where the interpreter has ended meanwhile, a thread that asks for the lock
// rests for ever, as Python's own daemon threads do: Python would end it by unwinding its stack, which C++ takes for an
// exception that leaves a destructor.
#pragma once

#include <Python.h>

namespace onnxtorch {

// Not to be had while one lives.
class WithoutGil {
 public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const thread_;
};

// Held while one lives, by a thread that may hold it already.
class WithGil {
 public:
  WithGil();
  ~WithGil();
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  const PyGILState_STATE state_;
};

// Tells that a thread other than the main one is at work while one lives.
class WorkBeside {
 public:
  WorkBeside();
  ~WorkBeside();
  WorkBeside(const WorkBeside&) = delete;
  WorkBeside& operator=(const WorkBeside&) = delete;
};

// Lets the process end beside such work: without the destructors of static objects, which it may be using.
void let_work_go_on_at_exit();

}  // namespace onnxtorch
