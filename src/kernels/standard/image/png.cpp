#include <c10/util/Exception.h>
#include <png.h>

#include <algorithm>
#include <vector>

#include "kernels/standard/image/escape.h"
#include "kernels/standard/image/image.h"

namespace onnxtorch::image {
namespace {

class PngDecoder {
 public:
  explicit PngDecoder(Bytes file) : rest_(file) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &escape_, &on_error, &on_warning);
    if (png_) info_ = png_create_info_struct(png_);
  }
  PngDecoder(const PngDecoder&) = delete;
  ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }

  at::Tensor decode() {
    TORCH_CHECK(info_, "libpng cannot be used");
    check(escape_.run([this] { read_header(); }));
    at::Tensor image = new_image(png_get_image_width(png_, info_), png_get_image_height(png_, info_));
    TORCH_CHECK(png_get_rowbytes(png_, info_) == static_cast<size_t>(image.stride(0)), "unexpected pixel format");

    std::vector<uint8_t*> rows(image.size(0));
    for (int64_t y = 0; y < image.size(0); ++y) rows[y] = image.mutable_data_ptr<uint8_t>() + y * image.stride(0);
    uint8_t** const first_row = rows.data();
    check(escape_.run([this, first_row] { png_read_image(png_, first_row); }));
    return image;
  }

 private:
  void read_header() {
    png_set_read_fn(png_, &rest_, &read);
    png_read_info(png_, info_);
    png_set_expand(png_);
    png_set_strip_16(png_);
    png_set_strip_alpha(png_);
    png_set_gray_to_rgb(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
  }

  void check(bool succeeded) const { TORCH_CHECK(succeeded, "libpng: ", escape_.message()); }

  static void read(png_structp png, png_bytep out, size_t count) {
    auto& rest = *static_cast<Bytes*>(png_get_io_ptr(png));
    if (count > rest.size()) png_error(png, "the file is truncated");
    std::copy_n(rest.data(), count, out);
    rest = rest.subspan(count);
  }

  static void on_error(png_structp png, png_const_charp message) {
    static_cast<Escape*>(png_get_error_ptr(png))->fail(message);
  }
  static void on_warning(png_structp /*png*/, png_const_charp /*message*/) {}

  Bytes rest_;
  Escape escape_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

}  // namespace

at::Tensor decode_png(Bytes file) { return PngDecoder(file).decode(); }

}  // namespace onnxtorch::image
