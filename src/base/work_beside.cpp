#include "base/work_beside.h"

#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <iostream>

namespace onnxtorch {
namespace {

std::atomic<int> work_beside = 0;

void end_at_once(int status, void*) {
  if (work_beside == 0) return;
  std::cout.flush();
  std::fflush(nullptr);
  ::_exit(status);
}

}  // namespace

WorkBeside::WorkBeside() { ++work_beside; }

WorkBeside::~WorkBeside() { --work_beside; }

void let_work_go_on_at_exit() { ::on_exit(end_at_once, nullptr); }

}  // namespace onnxtorch
