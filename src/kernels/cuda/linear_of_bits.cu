#include <bit>
#include <cmath>

#include "base/halves.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_of_bits.h"
#ifdef __CUDACC__
#include <cuda_fp16.h>
#endif

namespace onnxtorch::cuda {
namespace {

__device__ float as_float(float x) { return x; }
__device__ float as_float(BFloat16 x) { return of_bfloat16(x.bits); }
__device__ float as_float(Float16 x) {
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(x.bits));  // one instruction
#else
  return of_float16(x.bits);
#endif
}

template <typename T>
__device__ T as(float x) {
  if constexpr (std::is_same_v<T, float>) return x;
  if constexpr (std::is_same_v<T, BFloat16>) return {to_bfloat16(x)};
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<T, Float16>) return {__half_as_ushort(__float2half_rn(x))};
#else
  if constexpr (std::is_same_v<T, Float16>) return {to_float16(x)};
#endif
}

template <int kBits>
constexpr int kNumbers = 32 / kBits;  // of a word

template <int kBits>
__device__ uint32_t number_of(uint32_t word, int i) {
  return word >> (i * kBits) & ((1U << kBits) - 1);
}

// Adds a number to 2^23, as its lowest bits.
template <int kBits>
__device__ float plus_2_23(uint32_t word, int i) {
  return std::bit_cast<float>(number_of<kBits>(word, i) | 0x4B000000U);
}

// A word of a row, and the scale and the zero point of its block.
struct Word {
  uint32_t numbers;
  float scale, zero_point;
};

template <int kBits>
__device__ Word word_of(const BitsWeight& weight, int64_t row, int64_t word) {
  const int64_t block = row * weight.blocks_of_row + (word >> weight.words_of_block_log2);
  return {weight.numbers[row * weight.words_of_row + word], weight.scales[block],
          weight.zero_points ? weight.zero_points[block] : 0.0F};
}

// Gives what the numbers of a word stand for, in units of its scale. The form of the weight is the same for all
// threads.
template <int kBits>
__device__ void unpack(const BitsWeight& weight, const Word& word, float (&to)[kNumbers<kBits>]) {
  constexpr float kHalf = 0x1p23F + (1 << (kBits - 1));  // exactly
  if (weight.values) {
#pragma unroll
    for (int i = 0; i < kNumbers<kBits>; ++i) to[i] = weight.values[number_of<kBits>(word.numbers, i)];
  } else if (weight.zero_points) {
#pragma unroll
    for (int i = 0; i < kNumbers<kBits>; ++i) to[i] = plus_2_23<kBits>(word.numbers, i) - 0x1p23F - word.zero_point;
  } else {
#pragma unroll
    for (int i = 0; i < kNumbers<kBits>; ++i) to[i] = plus_2_23<kBits>(word.numbers, i) - kHalf;
  }
}

template <typename T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Vector {
  T of[kCount];
};

// Tells whether vectors may be loaded from the rows of a matrix.
template <typename T, int kCount>
bool are_aligned(const T* rows, int64_t size) {
  constexpr size_t kAlignment = alignof(Vector<T, kCount>);
  return reinterpret_cast<uintptr_t>(rows) % kAlignment == 0 && size * sizeof(T) % kAlignment == 0;
}

// Loads elements of a row from `first` on, which are zero past its end.
template <typename T, int kCount>
__device__ void load(const T* row, int64_t first, int64_t size, bool is_aligned, float (&to)[kCount]) {
  if (is_aligned && first + kCount <= size) {
    const auto vector = *reinterpret_cast<const Vector<T, kCount>*>(row + first);
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = as_float(vector.of[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = first + i < size ? as_float(row[first + i]) : 0.0F;
  }
}

constexpr int kThreadsOfBlock = 128;
constexpr int kColumns = 4;  // of the result, that a block computes

// Multiplies rows of x by the weight. The threads of a block share out the words of a row; what is loaded of x is
// multiplied by all of the block's columns.
template <int kBits, int kRows, typename T>
__global__ void multiply(BitsWeight weight, int64_t rows, const T* x, bool is_aligned, const T* bias, T* y) {
  constexpr int kResults = kRows * kColumns, kWarps = kThreadsOfBlock / kThreadsOfWarp;
  __shared__ float shares[kWarps][kResults];
  const int64_t first_column = static_cast<int64_t>(blockIdx.x) * kColumns;
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kRows;
  const int64_t words = (weight.in + kNumbers<kBits> - 1) / kNumbers<kBits>;
  float sums[kRows][kColumns] = {};
  for (int64_t word = threadIdx.x; word < words; word += kThreadsOfBlock) {
    float numbers[kColumns][kNumbers<kBits>], scales[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const Word read = word_of<kBits>(weight, std::min(first_column + c, weight.out - 1), word);
      unpack<kBits>(weight, read, numbers[c]);
      scales[c] = read.scale;
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float elements[kNumbers<kBits>];
      const T* const row = x + std::min(first_row + r, rows - 1) * weight.in;
      load(row, word * kNumbers<kBits>, weight.in, is_aligned, elements);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < kNumbers<kBits>; ++i) sum = std::fma(elements[i], numbers[c][i], sum);
        sums[r][c] = std::fma(sum, scales[c], sums[r][c]);
      }
    }
  }

  const int thread = static_cast<int>(threadIdx.x), warp = thread / kThreadsOfWarp;
#pragma unroll
  for (int i = 0; i < kResults; ++i) {
    const float sum = sum_of_warp(sums[i / kColumns][i % kColumns]);
    if (thread % kThreadsOfWarp == 0) shares[warp][i] = sum;
  }
  __syncthreads();
  const int64_t row = first_row + thread / kColumns, column = first_column + thread % kColumns;
  if (thread >= kResults || row >= rows || column >= weight.out) return;
  float sum = bias ? as_float(bias[column]) : 0.0F;
  for (int other = 0; other < kWarps; ++other) sum += shares[other][thread];
  y[row * weight.out + column] = as<T>(sum);
}

template <int kBits, int kRows, typename T>
cudaError_t launch_multiply(int64_t rows, const BitsWeight& weight, const T* x, const T* bias, T* y,
                            cudaStream_t stream) {
  const dim3 blocks(static_cast<unsigned>((weight.out + kColumns - 1) / kColumns),
                    static_cast<unsigned>((rows + kRows - 1) / kRows));
  const bool is_aligned = are_aligned<T, kNumbers<kBits>>(x, weight.in);
  return launch(multiply<kBits, kRows, T>, blocks, kThreadsOfBlock, stream, weight, rows, x, is_aligned, bias, y);
}

template <int kBits, typename T>
cudaError_t multiply_rows(int64_t rows, const BitsWeight& weight, const T* x, const T* bias, T* y,
                          cudaStream_t stream) {
  const auto kernel = rows == 1   ? launch_multiply<kBits, 1, T>
                      : rows == 2 ? launch_multiply<kBits, 2, T>
                      : rows <= 4 ? launch_multiply<kBits, 4, T>
                                  : launch_multiply<kBits, 8, T>;
  return kernel(rows, weight, x, bias, y, stream);
}

// Dequantizes the weight, with a block for each row.
template <int kBits, typename T>
__global__ void dequantize(BitsWeight weight, bool is_aligned, T* to) {
  const int64_t row = blockIdx.x;
  T* const row_of_result = to + row * weight.in;
  for (int64_t word = threadIdx.x; word * kNumbers<kBits> < weight.in; word += kThreadsOfBlock) {
    const Word read = word_of<kBits>(weight, row, word);
    const int64_t first = word * kNumbers<kBits>;
    float numbers[kNumbers<kBits>];
    unpack<kBits>(weight, read, numbers);
    if (is_aligned && first + kNumbers<kBits> <= weight.in) {
      Vector<T, kNumbers<kBits>> vector;
#pragma unroll
      for (int i = 0; i < kNumbers<kBits>; ++i) vector.of[i] = as<T>(numbers[i] * read.scale);
      *reinterpret_cast<Vector<T, kNumbers<kBits>>*>(row_of_result + first) = vector;
    } else {
#pragma unroll
      for (int i = 0; i < kNumbers<kBits>; ++i) {
        if (first + i < weight.in) row_of_result[first + i] = as<T>(numbers[i] * read.scale);
      }
    }
  }
}

template <int kBits, typename T>
cudaError_t launch_dequantize(const BitsWeight& weight, T* to, cudaStream_t stream) {
  const bool is_aligned = are_aligned<T, kNumbers<kBits>>(to, weight.in);
  return launch(dequantize<kBits, T>, static_cast<unsigned>(weight.out), kThreadsOfBlock, stream, weight, is_aligned,
                to);
}

}  // namespace

template <typename T>
cudaError_t multiply_bits(int64_t rows, const BitsWeight& weight, const T* x, const T* bias, T* y,
                          cudaStream_t stream) {
  const auto kernel = weight.bits == 2   ? multiply_rows<2, T>
                      : weight.bits == 4 ? multiply_rows<4, T>
                                         : multiply_rows<8, T>;
  return kernel(rows, weight, x, bias, y, stream);
}

template <typename T>
cudaError_t dequantize_bits(const BitsWeight& weight, T* to, cudaStream_t stream) {
  const auto kernel = weight.bits == 2   ? launch_dequantize<2, T>
                      : weight.bits == 4 ? launch_dequantize<4, T>
                                         : launch_dequantize<8, T>;
  return kernel(weight, to, stream);
}

#define INSTANTIATE(T)                                                                                  \
  template cudaError_t multiply_bits(int64_t, const BitsWeight&, const T*, const T*, T*, cudaStream_t); \
  template cudaError_t dequantize_bits(const BitsWeight&, T*, cudaStream_t)
INSTANTIATE(float);
INSTANTIATE(Float16);
INSTANTIATE(BFloat16);
#undef INSTANTIATE

}  // namespace onnxtorch::cuda
