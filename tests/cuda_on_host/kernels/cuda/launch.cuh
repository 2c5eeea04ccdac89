// Stands in for the launches of kernels: they run on the CPU, the threads of a block by turns, from barrier to barrier.
#pragma once

#include <cuda_runtime_api.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <vector>

#undef NDEBUG
#include <cassert>

#define __global__
#define __host__
#define __device__
#define __shared__ static  // one block runs at a time

namespace onnxtorch::cuda {

struct dim3 {
  unsigned x, y;

  dim3(unsigned width, unsigned height = 1) : x(width), y(height) {}
};

inline dim3 threadIdx{0}, blockIdx{0}, blockDim{1}, gridDim{1};

// The threads of a block, each with a stack of its own.
class Block {
 public:
  Block(unsigned threads, std::function<void()> kernel) : kernel_(std::move(kernel)), fibers_(threads) {
    running_ = this;
    for (Fiber& fiber : fibers_) {
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.data();
      fiber.context.uc_stack.ss_size = fiber.stack.size();
      fiber.context.uc_link = &scheduler_;
      makecontext(&fiber.context, &Block::enter, 0);
    }
  }

  // All threads come to a barrier, or all to their end; what CUDA leaves undefined is an error here.
  void run() {
    for (size_t finished = 0; finished == 0;) {
      for (current_ = 0; current_ < fibers_.size(); ++current_) {
        threadIdx = {static_cast<unsigned>(current_)};
        swapcontext(&scheduler_, &fibers_[current_].context);
        finished += fibers_[current_].finished;
      }
      if (finished != 0 && finished != fibers_.size())
        throw std::logic_error("a barrier that some threads do not reach");
    }
  }

  static void wait() { swapcontext(&running_->fibers_[running_->current_].context, &running_->scheduler_); }

 private:
  struct Fiber {
    ucontext_t context{};
    std::vector<char> stack = std::vector<char>(1 << 16);
    bool finished = false;
  };

  static void enter() {
    running_->kernel_();
    running_->fibers_[running_->current_].finished = true;
  }

  inline static Block* running_ = nullptr;
  std::function<void()> kernel_;
  std::vector<Fiber> fibers_;
  ucontext_t scheduler_{};
  size_t current_ = 0;
};

inline void __syncthreads() { Block::wait(); }

constexpr int kThreadsOfWarp = 32;

// All threads of a block come to it, as often.
inline float sum_of_warp(float x) {
  static float of_threads[1024];
  const unsigned thread = threadIdx.x;
  for (unsigned distance = kThreadsOfWarp / 2; distance > 0; distance /= 2) {
    of_threads[thread] = x;
    Block::wait();
    x += of_threads[thread ^ distance];
    Block::wait();
  }
  return x;
}

inline void atomicMin(int* address, int value) { *address = std::min(*address, value); }

template <typename Each>
cudaError_t for_each(int64_t count, cudaStream_t /*stream*/, const Each& each) {
  for (int64_t i = 0; i < count; ++i) each(i);
  return cudaSuccess;
}

// What CUDA launches.
inline bool fits(dim3 blocks, dim3 threads) {
  return blocks.x > 0 && blocks.x <= INT32_MAX && blocks.y > 0 && blocks.y <= UINT16_MAX && threads.x > 0 &&
         threads.y == 1 && threads.x <= 1024;
}

template <typename... Parameters, typename... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, cudaStream_t /*stream*/,
                   const Arguments&... arguments) {
  if (!fits(blocks, threads)) return cudaErrorInvalidConfiguration;
  blockDim = threads;
  gridDim = blocks;
  for (blockIdx.y = 0; blockIdx.y < blocks.y; ++blockIdx.y) {
    for (blockIdx.x = 0; blockIdx.x < blocks.x; ++blockIdx.x) {
      Block(threads.x, [&] { kernel(arguments...); }).run();
    }
  }
  return cudaSuccess;
}

}  // namespace onnxtorch::cuda
