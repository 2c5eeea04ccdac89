#include "kernels/standard/image/image.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

namespace onnxtorch::image {

at::Tensor new_image(int64_t width, int64_t height) {
  constexpr int64_t kMaxPixels = int64_t{1} << 27;  // a small file can claim, and some formats fill, any size
  TORCH_CHECK(width > 0 && height > 0, "the image is of size ", width, " x ", height);
  TORCH_CHECK(width <= kMaxPixels / height, "the image is too large: ", width, " x ", height);
  return at::empty({height, width, 3}, at::kByte);
}

}  // namespace onnxtorch::image
