#include <c10/util/Exception.h>
#include <webp/decode.h>

#include "kernels/standard/image/image.h"

namespace onnxtorch::image {

at::Tensor decode_webp(Bytes file) {
  WebPBitstreamFeatures features;
  const VP8StatusCode status = WebPGetFeatures(file.data(), file.size(), &features);
  TORCH_CHECK(status == VP8_STATUS_OK, "libwebp: status ", static_cast<int>(status));
  TORCH_CHECK(!features.has_animation, "the file is an animation");
  at::Tensor image = new_image(features.width, features.height);
  const auto row_bytes = static_cast<int>(image.stride(0));
  TORCH_CHECK(WebPDecodeRGBInto(file.data(), file.size(), image.mutable_data_ptr<uint8_t>(), image.nbytes(), row_bytes),
              "libwebp: the file is damaged or truncated");
  return image;
}

}  // namespace onnxtorch::image
