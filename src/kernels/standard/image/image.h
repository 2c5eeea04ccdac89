// Decoders of image files, one per format. Each takes a whole file and returns an RGB image, a uint8 tensor [height,
// width, 3]; each throws c10::Error at a file that it cannot decode, and holds against any bytes whatever.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace onnxtorch::image {

using Bytes = std::span<const uint8_t>;

at::Tensor decode_bmp(Bytes file);
at::Tensor decode_jpeg(Bytes file);
at::Tensor decode_jpeg2000(Bytes file);
at::Tensor decode_png(Bytes file);
at::Tensor decode_pnm(Bytes file);
at::Tensor decode_tiff(Bytes file);
at::Tensor decode_webp(Bytes file);

// Allocates an uninitialised RGB image; throws if it has no pixels or an unreasonable number of them.
at::Tensor new_image(int64_t width, int64_t height);

// Scales a value of 0 ... max to 0 ... 255.
inline uint8_t scale_to_byte(uint32_t value, uint32_t max) {
  return value >= max ? 255 : static_cast<uint8_t>((uint64_t{value} * 255 + max / 2) / max);
}

// Converts CMYK to RGB. Each ink is given as the light it lets through: 255 is none of it.
inline void cmyk_light_to_rgb(const uint8_t* cmyk, uint8_t* rgb) {
  for (int i = 0; i < 3; ++i) rgb[i] = scale_to_byte(cmyk[i] * cmyk[3], 255 * 255);
}

}  // namespace onnxtorch::image
