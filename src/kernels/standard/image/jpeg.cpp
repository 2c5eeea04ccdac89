#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <jpeglib.h>

#include <cstdio>  // jpeglib.h needs it; the headers of ATen before it have it, too

#include "kernels/standard/image/escape.h"
#include "kernels/standard/image/image.h"

namespace onnxtorch::image {
namespace {

class JpegDecoder {
 public:
  explicit JpegDecoder(Bytes file) : file_(file) {
    jpeg_.err = jpeg_std_error(&errors_);
    errors_.error_exit = &on_error;
    errors_.emit_message = &on_message;
    jpeg_.client_data = &escape_;
    check(escape_.run([this] { jpeg_create_decompress(&jpeg_); }));
    progress_.progress_monitor = &limit_scans;
    jpeg_.progress = &progress_;
  }
  JpegDecoder(const JpegDecoder&) = delete;
  ~JpegDecoder() { jpeg_destroy_decompress(&jpeg_); }

  at::Tensor decode() {
    check(escape_.run([this] { read_header(); }));
    at::Tensor image = new_image(jpeg_.image_width, jpeg_.image_height);
    const bool inks = jpeg_.out_color_space == JCS_CMYK;
    at::Tensor pixels = inks ? at::empty({image.size(0), image.size(1), 4}, at::kByte) : image;
    uint8_t* const first_row = pixels.mutable_data_ptr<uint8_t>();
    check(escape_.run([this, first_row] { read_rows(first_row); }));
    if (inks) convert_inks(pixels, image);
    return image;
  }

 private:
  void read_header() {
    jpeg_mem_src(&jpeg_, file_.data(), file_.size());
    jpeg_.src->fill_input_buffer = &on_end_of_file;
    jpeg_read_header(&jpeg_, TRUE);
    const bool inks = jpeg_.jpeg_color_space == JCS_CMYK || jpeg_.jpeg_color_space == JCS_YCCK;
    jpeg_.out_color_space = inks ? JCS_CMYK : JCS_RGB;
  }

  void read_rows(uint8_t* first_row) {
    jpeg_start_decompress(&jpeg_);
    const size_t row_bytes = size_t{jpeg_.output_width} * jpeg_.output_components;
    while (jpeg_.output_scanline < jpeg_.output_height) {
      uint8_t* row = first_row + jpeg_.output_scanline * row_bytes;
      jpeg_read_scanlines(&jpeg_, &row, 1);
    }
  }

  // Converts inks to RGB. Adobe's programs store how much light passes, others how much ink there is.
  void convert_inks(const at::Tensor& pixels, at::Tensor& image) const {
    const uint8_t flip = jpeg_.saw_Adobe_marker ? 0 : 0xFF;
    const uint8_t* from = pixels.const_data_ptr<uint8_t>();
    uint8_t* to = image.mutable_data_ptr<uint8_t>();
    for (int64_t i = 0; i < image.size(0) * image.size(1); ++i, from += 4, to += 3) {
      const uint8_t light[4] = {static_cast<uint8_t>(from[0] ^ flip), static_cast<uint8_t>(from[1] ^ flip),
                                static_cast<uint8_t>(from[2] ^ flip), static_cast<uint8_t>(from[3] ^ flip)};
      cmyk_light_to_rgb(light, to);
    }
  }

  void check(bool succeeded) const { TORCH_CHECK(succeeded, "libjpeg: ", escape_.message()); }

  static void on_error(j_common_ptr jpeg) {
    char message[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, message);
    static_cast<Escape*>(jpeg->client_data)->fail(message);
  }
  static void on_message(j_common_ptr /*jpeg*/, int /*level*/) {}

  static boolean on_end_of_file(j_decompress_ptr jpeg) {
    static_cast<Escape*>(jpeg->client_data)->fail("the file is truncated");
  }

  // Stops at too many scans, as a small progressive file can hold scans without end.
  static void limit_scans(j_common_ptr jpeg) {
    constexpr int kMaxScans = 500;
    if (jpeg->is_decompressor && reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number > kMaxScans) {
      static_cast<Escape*>(jpeg->client_data)->fail("too many scans");
    }
  }

  Bytes file_;
  Escape escape_;
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  jpeg_decompress_struct jpeg_{};
};

}  // namespace

at::Tensor decode_jpeg(Bytes file) { return JpegDecoder(file).decode(); }

}  // namespace onnxtorch::image
