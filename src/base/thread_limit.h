// The number of threads that the calls of this thread use, for as long as the object lives. Other threads keep theirs.
#pragma once

namespace onnxtorch {

class ThreadLimit {
 public:
  explicit ThreadLimit(int threads);  // 0: no limit of our own
  ~ThreadLimit();
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  bool active_;
  int openmp_ = 0;
  int mkl_ = 0;
};

}  // namespace onnxtorch
