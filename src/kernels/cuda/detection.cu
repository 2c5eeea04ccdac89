#include "kernels/cuda/detection.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/standard/boxes.h"

namespace onnxtorch::cuda {
namespace {

// The region, the channel and the bin that an element of a pooled result comes from.
struct Bin {
  int64_t region, channel, y, x;

  __device__ Bin(const RegionPooling& sizes, int64_t i) {
    x = i % sizes.bins_x;
    i /= sizes.bins_x;
    y = i % sizes.bins_y;
    i /= sizes.bins_y;
    channel = i % sizes.channels;
    region = i / sizes.channels;
  }
};

__host__ __device__ int64_t results(const RegionPooling& sizes) {
  return sizes.regions * sizes.channels * sizes.bins_y * sizes.bins_x;
}

template <typename T>
__device__ const T* plane(const RegionPooling& sizes, const T* x, int64_t batch, int64_t channel) {
  return x + (batch * sizes.channels + channel) * sizes.height * sizes.width;
}

// The sampling points of one bin.
template <typename T>
struct BinSamples {
  RegionAxis<T> axis;
  int64_t bin;

  __device__ size_t size() const { return axis.grid; }
  __device__ AxisSample<T> operator[](size_t i) const { return axis.sample(bin, static_cast<int64_t>(i)); }
};

}  // namespace

template <typename T>
cudaError_t roi_align(const RegionPooling& sizes, const RoiAlignOptions& options, const T* x, const T* rois,
                      const int64_t* batch_indices, T* out, cudaStream_t stream) {
  return for_each(results(sizes), stream, [=] __device__(int64_t i) {
    const Bin bin(sizes, i);
    const T* roi = rois + bin.region * 4;
    const BinSamples<T> ys{region_axis(roi[1], roi[3], sizes.bins_y, sizes.height, options), bin.y};
    const BinSamples<T> xs{region_axis(roi[0], roi[2], sizes.bins_x, sizes.width, options), bin.x};
    const bool region_is_too_large =
        ys.axis.grid == RegionAxis<T>::kTooLarge || xs.axis.grid == RegionAxis<T>::kTooLarge;
    assert(!region_is_too_large);
    const int64_t batch = batch_indices[bin.region];
    assert(batch >= 0 && batch < sizes.batches);
    const T* image = plane(sizes, x, batch, bin.channel);
    out[i] = options.maximum ? maximum_of_bin(image, sizes.width, ys, xs) : average_of_bin(image, sizes.width, ys, xs);
  });
}

template cudaError_t roi_align(const RegionPooling&, const RoiAlignOptions&, const float*, const float*, const int64_t*,
                               float*, cudaStream_t);
template cudaError_t roi_align(const RegionPooling&, const RoiAlignOptions&, const double*, const double*,
                               const int64_t*, double*, cudaStream_t);

template <typename T>
cudaError_t max_roi_pool(const RegionPooling& sizes, double spatial_scale, const T* x, const T* rois, T* out,
                         cudaStream_t stream) {
  return for_each(results(sizes), stream, [=] __device__(int64_t i) {
    const Bin bin(sizes, i);
    const T* roi = rois + bin.region * 5;
    const auto pixels = [&](T first, T last, int64_t index, int64_t bins, int64_t size) {
      const T first_pixel = scaled_pixel(first, spatial_scale), last_pixel = scaled_pixel(last, spatial_scale);
      assert(is_pixel(first_pixel) && is_pixel(last_pixel));
      return pixels_of_bin(index, bins, static_cast<int64_t>(first_pixel), static_cast<int64_t>(last_pixel), size);
    };
    const Interval columns = pixels(roi[1], roi[3], bin.x, sizes.bins_x, sizes.width);
    const Interval rows = pixels(roi[2], roi[4], bin.y, sizes.bins_y, sizes.height);
    const T batch = roi[0];
    assert(batch >= 0 && batch < static_cast<T>(sizes.batches));
    out[i] = maximum_within(plane(sizes, x, static_cast<int64_t>(batch), bin.channel), sizes.width, rows, columns);
  });
}

template cudaError_t max_roi_pool(const RegionPooling&, double, const float*, const float*, float*, cudaStream_t);
template cudaError_t max_roi_pool(const RegionPooling&, double, const double*, const double*, double*, cudaStream_t);

namespace {

constexpr int kTile = 512;

// Selects boxes, with a block for each group. Tile after tile of boxes is brought in, a box to a thread. What was
// selected from earlier tiles suppresses some; then the first that is left is selected, and suppresses others of the
// tile, and so on.
__global__ void select_in_group(Selection sizes, const float* boxes, const int64_t* order, const bool* high,
                                int64_t* selected, int64_t* counts) {
  __shared__ Box tile[kTile];
  __shared__ int next;
  const int64_t group = blockIdx.x;
  const int thread = threadIdx.x;
  const float* const of_batch = boxes + group / sizes.classes * sizes.boxes * 4;
  order += group * sizes.boxes;
  high += group * sizes.boxes;
  selected += group * sizes.limit;

  const auto suppresses = [&](const Box& better, const Box& box) {
    return intersection_over_union(box, better) > sizes.iou_threshold;
  };
  int64_t count = 0;
  for (int64_t begin = 0; begin < sizes.boxes && count < sizes.limit; begin += kTile) {
    const int64_t candidate = begin + thread;
    const int64_t box_index = candidate < sizes.boxes ? order[candidate] : 0;
    bool left = candidate < sizes.boxes && high[box_index];
    const Box box = box_of(of_batch + box_index * 4, sizes.center_point_box);
    tile[thread] = box;
    for (int64_t i = 0; left && i < count; ++i) {
      left = !suppresses(box_of(of_batch + selected[i] * 4, sizes.center_point_box), box);
    }
    while (count < sizes.limit) {
      __syncthreads();
      if (thread == 0) next = kTile;
      __syncthreads();
      if (left) atomicMin(&next, thread);
      __syncthreads();
      const int best = next;
      if (best == kTile) break;
      if (thread == best) selected[count] = box_index;
      left = left && thread > best && !suppresses(tile[best], box);
      ++count;
    }
    __syncthreads();  // the tile is no longer read, and what was selected is there for all
  }
  if (thread == 0) counts[group] = count;
}

}  // namespace

cudaError_t select_boxes(const Selection& sizes, const float* boxes, const int64_t* order, const bool* high,
                         int64_t* selected, int64_t* counts, cudaStream_t stream) {
  return launch(select_in_group, static_cast<unsigned>(sizes.groups), kTile, stream, sizes, boxes, order, high,
                selected, counts);
}

}  // namespace onnxtorch::cuda
