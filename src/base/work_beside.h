// Work of threads that nobody waits for when the process ends.
#pragma once

namespace onnxtorch {

// The sign that this thread, which is not the main one, is at work while one lives.
class __attribute__((visibility("default"))) WorkBeside {
 public:
  WorkBeside();
  ~WorkBeside();
  WorkBeside(const WorkBeside&) = delete;
  WorkBeside& operator=(const WorkBeside&) = delete;
};

// Lets the process end beside such work: without the destructors of static objects, which it may be using. To be called
// when all of these are made, as what is told last is done first.
__attribute__((visibility("default"))) void let_work_go_on_at_exit();

}  // namespace onnxtorch
