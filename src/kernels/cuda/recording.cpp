// Recordings as CUDA graphs.
#include "kernels/recording.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <exception>
#include <optional>

namespace onnxtorch::cuda {
namespace {

using c10::cuda::CUDAStream;

constexpr int kPlainRuns = 2;  // in which cuBLAS and cuDNN choose, and allocate what they keep

void let_wait(CUDAStream later, CUDAStream earlier) {
  c10::cuda::CUDAEvent event;
  event.record(earlier);
  event.block(later);
}

// torch's generator of random numbers takes part of itself, and gives other numbers in each replay.
class CudaRecording final : public Recording {
 public:
  explicit CudaRecording(c10::Device device) : device_(device) {}
  CudaRecording(const CudaRecording&) = delete;
  CudaRecording& operator=(const CudaRecording&) = delete;

  // The device may be at it still, in a stream that the allocator knows nothing of.
  ~CudaRecording() override {
    try {
      replayed_.synchronize();
    } catch (const std::exception& error) {
      TORCH_WARN("a CUDA graph may not have come to its end: ", error.what());
    }
  }

  void record(const Work& work) override {
    const c10::cuda::CUDAGuard on_device(device_);
    const CUDAStream callers = c10::cuda::getCurrentCUDAStream(), own = c10::cuda::getStreamFromPool();
    let_wait(own, callers);
    {
      const c10::cuda::CUDAStreamGuard in_stream(own);
      for (int i = 0; i < kPlainRuns; ++i) work();
      own.synchronize();
      graph_.emplace();
      // What other threads ask of CUDA meanwhile is no part of it.
      graph_->capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
      try {
        work();
      } catch (...) {
        abandon();
        throw;
      }
      graph_->capture_end();
    }
    let_wait(callers, own);
  }

  void replay(const Work& before, const Work& after) override {
    const c10::cuda::CUDAGuard on_device(device_);
    const CUDAStream stream = c10::cuda::getCurrentCUDAStream();
    replayed_.block(stream);
    before();
    graph_->replay();
    after();
    replayed_.record(stream);
  }

 private:
  // Ends the capture, or the stream could do nothing else. What failed may have broken it, so that this fails as well.
  void abandon() {
    try {
      graph_->capture_end();
    } catch (const std::exception&) {
    }
    graph_.reset();
  }

  c10::Device device_;
  std::optional<at::cuda::CUDAGraph> graph_;
  c10::cuda::CUDAEvent replayed_;
};

[[maybe_unused]] const bool registered = [] {
  register_recorder({.make = [](c10::Device device) { return std::make_unique<CudaRecording>(device); },
                     .is_at_work =
                         [](c10::Device device) {
                           const c10::cuda::CUDAGuard on_device(device);
                           return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
                         }});
  return true;
}();

}  // namespace
}  // namespace onnxtorch::cuda
