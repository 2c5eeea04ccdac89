// Recordings as CUDA graphs.
#include "base/recording.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <exception>
#include <optional>

#include "base/stopwatch.h"

namespace onnxtorch::cuda {
namespace {

using c10::cuda::CUDAStream;

constexpr int kPlainRuns = 2;  // in which cuBLAS and cuDNN choose, and allocate what they keep

void let_wait(CUDAStream later, CUDAStream earlier) {
  c10::cuda::CUDAEvent event;
  event.record(earlier);
  event.block(later);
}

template <typename Step>
void quietly(const Step& step) {
  try {
    step();
  } catch (const std::exception&) {
  }
}

// A recording as a CUDA graph. torch's generator of random numbers takes part by itself, and gives other numbers in
// each replay.
class CudaRecording final : public Recording {
 public:
  explicit CudaRecording(c10::Device device) : device_(device) {}
  CudaRecording(const CudaRecording&) = delete;
  CudaRecording& operator=(const CudaRecording&) = delete;

  // Waits, as the device may still replay the graph, in a stream that the allocator knows nothing of.
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
      // The capture takes in nothing that other threads ask of CUDA meanwhile.
      graph_->capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
      try {
        work();
        graph_->capture_end();
      } catch (...) {
        abandon();
        throw;
      }
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

  double seconds_of(const Work& work) override {
    const c10::cuda::CUDAGuard on_device(device_);
    const CUDAStream stream = c10::cuda::getCurrentCUDAStream();
    stream.synchronize();
    const Stopwatch stopwatch;
    work();
    stream.synchronize();
    return stopwatch.seconds();
  }

 private:
  // Ends the capture, or the stream could do nothing else. What failed may have broken it, so that this fails as well.
  // torch 2.11 then does not tell the allocator, which would go on to ask a graph that is gone.
  void abandon() {
    quietly([this] { graph_->capture_end(); });
    graph_.reset();
    quietly([this] { c10::cuda::CUDACachingAllocator::endAllocateToPool(device_.index(), pool_); });
  }

  c10::Device device_;
  at::cuda::MempoolId_t pool_ = at::cuda::graph_pool_handle();
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
