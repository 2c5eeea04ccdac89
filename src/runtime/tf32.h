// Whether cuBLAS and cuDNN may compute float32 in TF32, for as long as the object lives. torch has one setting for the
// process: it is as the latest of the objects that live asks, and when none does any more, as it was.
#pragma once

namespace onnxtorch {

class Tf32Setting {
 public:
  explicit Tf32Setting(bool allowed);
  ~Tf32Setting();
  Tf32Setting(const Tf32Setting&) = delete;
  Tf32Setting& operator=(const Tf32Setting&) = delete;

 private:
  bool allowed_;
};

}  // namespace onnxtorch
