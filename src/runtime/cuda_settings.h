// The settings of torch's CUDA kernels for as long as the object lives: cuBLAS and cuDNN may compute float32 in TF32 or
// not, and attention is left to kernels of torch's own. torch has one setting of each for the process: it is as the
// latest of the objects that live asks, and as it was before when none does any more.
#pragma once

namespace onnxtorch {

class CudaSettings {
 public:
  explicit CudaSettings(bool tf32);
  ~CudaSettings();
  CudaSettings(const CudaSettings&) = delete;
  CudaSettings& operator=(const CudaSettings&) = delete;

 private:
  bool tf32_;
};

}  // namespace onnxtorch
