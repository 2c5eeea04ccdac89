// What torch's CUDA kernels are asked for, for as long as the object lives: whether cuBLAS and cuDNN may compute
// float32 in TF32; and that attention is left to kernels of torch's own. torch has one setting of each for the process:
// it is as the latest of the objects that live asks, and when none does any more, as it was.
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
