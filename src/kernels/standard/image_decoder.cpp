// ImageDecoder: any of seven formats, told apart by their first bytes.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <string_view>

#include "kernels/standard/image/image.h"

namespace onnxtorch {
namespace {

using image::Bytes;
using namespace std::string_view_literals;

struct Format {
  std::string_view magic;  // '?' stands for any byte
  at::Tensor (*decode)(Bytes);
};

constexpr Format kFormats[] = {
    {"\xFF\xD8\xFF"sv, image::decode_jpeg},
    {"\x89PNG\r\n\x1A\n"sv, image::decode_png},
    {"\0\0\0\x0CjP  \r\n\x87\n"sv, image::decode_jpeg2000},
    {"\xFF\x4F\xFF\x51"sv, image::decode_jpeg2000},
    {"RIFF????WEBP"sv, image::decode_webp},
    {"II*\0"sv, image::decode_tiff},
    {"MM\0*"sv, image::decode_tiff},
    {"II+\0"sv, image::decode_tiff},
    {"MM\0+"sv, image::decode_tiff},
    {"P1"sv, image::decode_pnm},
    {"P2"sv, image::decode_pnm},
    {"P3"sv, image::decode_pnm},
    {"P4"sv, image::decode_pnm},
    {"P5"sv, image::decode_pnm},
    {"P6"sv, image::decode_pnm},
    {"BM"sv, image::decode_bmp},
};

bool starts_with(Bytes file, std::string_view magic) {
  if (file.size() < magic.size()) return false;
  for (size_t i = 0; i < magic.size(); ++i) {
    if (magic[i] != '?' && file[i] != static_cast<uint8_t>(magic[i])) return false;
  }
  return true;
}

at::Tensor decode_any(Bytes file) {
  for (const Format& format : kFormats) {
    if (starts_with(file, format.magic)) return format.decode(file);
  }
  TORCH_CHECK(false, "the format is none of BMP, JPEG, JPEG 2000, PNG, PNM, TIFF and WebP");
}

// Computes the luma of ITU-R BT.601, rounded as Pillow does.
at::Tensor to_grayscale(const at::Tensor& rgb) {
  at::Tensor gray = at::empty({rgb.size(0), rgb.size(1), 1}, rgb.options());
  const uint8_t* from = rgb.const_data_ptr<uint8_t>();
  uint8_t* to = gray.mutable_data_ptr<uint8_t>();
  for (int64_t i = 0; i < gray.numel(); ++i, from += 3) {
    to[i] = static_cast<uint8_t>((from[0] * 19595 + from[1] * 38470 + from[2] * 7471 + (1 << 15)) >> 16);
  }
  return gray;
}

// Decodes a file on the host, wherever its bytes lie.
at::Tensor image_decoder(const at::Tensor& encoded_stream, std::string_view pixel_format) {
  TORCH_CHECK(pixel_format == "RGB" || pixel_format == "BGR" || pixel_format == "Grayscale",
              "ImageDecoder: no pixel_format is called \"", pixel_format, "\"");
  TORCH_CHECK(encoded_stream.scalar_type() == at::kByte && encoded_stream.dim() == 1,
              "ImageDecoder: encoded_stream must be a vector of uint8");
  const at::Tensor stream = encoded_stream.cpu().contiguous();
  const at::Device device = encoded_stream.device();
  try {
    at::Tensor rgb = decode_any({stream.const_data_ptr<uint8_t>(), static_cast<size_t>(stream.numel())});
    if (pixel_format == "RGB") return rgb.to(device);
    return (pixel_format == "BGR" ? rgb.flip(2) : to_grayscale(rgb)).to(device);
  } catch (const c10::Error& error) {
    // The specification asks for an empty image, whatever the reason.
    TORCH_WARN("ImageDecoder: ", error.what_without_backtrace(), "; the result is an empty image");
    return at::empty({0, 0, pixel_format == "Grayscale" ? 1 : 3}, encoded_stream.options());
  }
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(onnx_torch, m) {
  // The image in a file of one of ImageDecoder's formats, as uint8 [height, width, channels]; empty if there is none.
  m.def("image_decoder(Tensor encoded_stream, str pixel_format) -> Tensor");
  m.impl("image_decoder", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(image_decoder));
}

}  // namespace onnxtorch
