#include <c10/util/Exception.h>
#include <openjpeg.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "kernels/standard/image/image.h"

namespace onnxtorch::image {
namespace {

template <auto kRelease>
struct Release {
  template <typename T>
  void operator()(T* object) const {
    kRelease(object);
  }
};
using Codec = std::unique_ptr<opj_codec_t, Release<&opj_destroy_codec>>;
using Stream = std::unique_ptr<opj_stream_t, Release<&opj_stream_destroy>>;
using Decoded = std::unique_ptr<opj_image_t, Release<&opj_image_destroy>>;

struct File {
  Bytes bytes;
  size_t position = 0;
};

OPJ_SIZE_T read(void* out, OPJ_SIZE_T size, void* data) {
  File& file = *static_cast<File*>(data);
  const size_t count = std::min<size_t>(size, file.bytes.size() - file.position);
  if (count == 0) return static_cast<OPJ_SIZE_T>(-1);
  std::copy_n(file.bytes.data() + file.position, count, static_cast<uint8_t*>(out));
  file.position += count;
  return count;
}

OPJ_BOOL seek(OPJ_OFF_T position, void* data) {
  File& file = *static_cast<File*>(data);
  if (position < 0 || static_cast<size_t>(position) > file.bytes.size()) return OPJ_FALSE;
  file.position = position;
  return OPJ_TRUE;
}

OPJ_OFF_T skip(OPJ_OFF_T count, void* data) {
  File& file = *static_cast<File*>(data);
  const auto left = static_cast<OPJ_OFF_T>(file.bytes.size() - file.position);
  if (count < 0 || left == 0) return -1;
  const OPJ_OFF_T skipped = std::min(count, left);
  file.position += skipped;
  return skipped;
}

Stream open(File& file) {
  Stream stream(opj_stream_default_create(OPJ_TRUE));
  opj_stream_set_user_data(stream.get(), &file, nullptr);
  opj_stream_set_user_data_length(stream.get(), file.bytes.size());
  opj_stream_set_read_function(stream.get(), &read);
  opj_stream_set_seek_function(stream.get(), &seek);
  opj_stream_set_skip_function(stream.get(), &skip);
  return stream;
}

void keep_first_error(const char* message, void* data) {
  auto& error = *static_cast<std::string*>(data);
  if (error.empty()) error = message;
}
void ignore(const char* /*message*/, void* /*data*/) {}

Decoded decode(Bytes bytes) {
  constexpr uint8_t kCodestream[] = {0xFF, 0x4F, 0xFF, 0x51};
  const bool boxed = bytes.size() < 4 || !std::ranges::equal(bytes.first(4), kCodestream);
  File file{bytes};
  std::string error;
  const Stream stream = open(file);
  const Codec codec(opj_create_decompress(boxed ? OPJ_CODEC_JP2 : OPJ_CODEC_J2K));
  opj_set_error_handler(codec.get(), &keep_first_error, &error);
  opj_set_warning_handler(codec.get(), &ignore, nullptr);
  opj_set_info_handler(codec.get(), &ignore, nullptr);

  opj_dparameters_t parameters;
  opj_set_default_decoder_parameters(&parameters);
  opj_image_t* header = nullptr;
  const bool opened =
      opj_setup_decoder(codec.get(), &parameters) && opj_read_header(stream.get(), codec.get(), &header);
  Decoded image(header);
  TORCH_CHECK(opened, "OpenJPEG: ", error);
  TORCH_CHECK(image->numcomps >= 1 && image->numcomps <= 4, "the image has ", image->numcomps, " components");
  new_image(int64_t{image->x1} - image->x0, int64_t{image->y1} - image->y0);  // to check the size before decoding
  const bool decoded =
      opj_decode(codec.get(), stream.get(), image.get()) && opj_end_decompress(codec.get(), stream.get());
  TORCH_CHECK(decoded, "OpenJPEG: ", error);
  return image;
}

// One component of an image, which may be coarser than it, as 0 ... 255 by the image's pixels.
class Plane {
 public:
  Plane(const opj_image_t& image, int index) : image_(image), component_(image.comps[index]) {
    TORCH_CHECK(component_.data && component_.w > 0 && component_.h > 0 && component_.prec > 0 && component_.prec < 32,
                "component ", index, " cannot be used");
  }

  bool subsampled() const { return component_.dx > 1 || component_.dy > 1; }

  uint8_t at(int64_t x, int64_t y) const {
    const int64_t column = (image_.x0 + x) / component_.dx - component_.x0;
    const int64_t row = (image_.y0 + y) / component_.dy - component_.y0;
    const int64_t value = component_.data[std::clamp<int64_t>(row, 0, component_.h - 1) * component_.w +
                                          std::clamp<int64_t>(column, 0, component_.w - 1)];
    const int64_t zero = component_.sgnd ? int64_t{1} << (component_.prec - 1) : 0;
    return scale_to_byte(static_cast<uint32_t>(std::max<int64_t>(value + zero, 0)), (1U << component_.prec) - 1);
  }

 private:
  const opj_image_t& image_;
  const opj_image_comp_t& component_;
};

uint8_t to_byte(double value) { return static_cast<uint8_t>(std::clamp(std::lround(value), 0L, 255L)); }

void ycc_to_rgb(uint8_t* p) {
  const double y = p[0], cb = p[1] - 128.0, cr = p[2] - 128.0;
  p[0] = to_byte(y + 1.402 * cr);
  p[1] = to_byte(y - 0.344136 * cb - 0.714136 * cr);
  p[2] = to_byte(y + 1.772 * cb);
}

}  // namespace

at::Tensor decode_jpeg2000(Bytes bytes) {
  const Decoded decoded = decode(bytes);
  std::vector<Plane> planes;
  for (uint32_t i = 0; i < decoded->numcomps; ++i) planes.emplace_back(*decoded, i);

  const bool colour = planes.size() >= 3;
  const bool inks = planes.size() == 4 && decoded->color_space == OPJ_CLRSPC_CMYK;
  const bool ycc = colour && (decoded->color_space == OPJ_CLRSPC_SYCC || planes[1].subsampled());
  at::Tensor image = new_image(int64_t{decoded->x1} - decoded->x0, int64_t{decoded->y1} - decoded->y0);
  uint8_t* out = image.mutable_data_ptr<uint8_t>();
  for (int64_t y = 0; y < image.size(0); ++y) {
    for (int64_t x = 0; x < image.size(1); ++x, out += 3) {
      for (int i = 0; i < 3; ++i) out[i] = planes[colour ? i : 0].at(x, y);
      if (ycc) ycc_to_rgb(out);
      if (inks) {
        const uint8_t light[4] = {static_cast<uint8_t>(~out[0]), static_cast<uint8_t>(~out[1]),
                                  static_cast<uint8_t>(~out[2]), static_cast<uint8_t>(~planes[3].at(x, y))};
        cmyk_light_to_rgb(light, out);
      }
    }
  }
  return image;
}

}  // namespace onnxtorch::image
