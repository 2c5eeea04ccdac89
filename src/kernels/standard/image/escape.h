// The way out of C libraries that want their error handlers to leave by longjmp.
#pragma once

#include <csetjmp>
#include <cstdio>

namespace onnxtorch::image {

class Escape {
 public:
  // Runs body and says whether it came to its end. A body is C in spirit: it and what it calls have no local with a
  // destructor, for fail() skips them.
  template <typename Body>
  [[gnu::noinline]] bool run(const Body& body) {
    if (setjmp(target_)) return false;
    body();
    return true;
  }

  [[noreturn]] void fail(const char* message) {
    std::snprintf(message_, sizeof(message_), "%s", message);
    std::longjmp(target_, 1);
  }

  const char* message() const { return message_; }

 private:
  std::jmp_buf target_;
  char message_[256] = "";
};

}  // namespace onnxtorch::image
