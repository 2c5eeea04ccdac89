#include <c10/util/Exception.h>
#include <tiffio.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "kernels/standard/image/image.h"

namespace onnxtorch::image {
namespace {

struct File {
  Bytes bytes;
  toff_t position = 0;
  std::string error = {};
};

File& file_of(thandle_t handle) { return *static_cast<File*>(handle); }

tmsize_t read(thandle_t handle, void* out, tmsize_t size) {
  File& file = file_of(handle);
  const auto start = std::min<toff_t>(file.position, file.bytes.size());
  const auto count = std::min<toff_t>(size, file.bytes.size() - start);
  std::copy_n(file.bytes.data() + start, count, static_cast<uint8_t*>(out));
  file.position = start + count;
  return static_cast<tmsize_t>(count);
}

tmsize_t refuse_to_write(thandle_t /*handle*/, void* /*in*/, tmsize_t /*size*/) { return -1; }

toff_t seek(thandle_t handle, toff_t offset, int whence) {
  File& file = file_of(handle);
  const toff_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? file.position : file.bytes.size();
  return file.position = base + offset;
}

int close(thandle_t /*handle*/) { return 0; }
toff_t size(thandle_t handle) { return file_of(handle).bytes.size(); }

int keep_first_error(TIFF* /*tiff*/, void* handle, const char* /*module*/, const char* format, va_list arguments) {
  std::string& error = file_of(handle).error;
  if (error.empty()) {
    error.resize(256);
    const int length = std::vsnprintf(error.data(), error.size(), format, arguments);
    error.resize(std::clamp<int>(length, 0, static_cast<int>(error.size()) - 1));
  }
  return 1;
}

int ignore_warning(TIFF* /*tiff*/, void* /*handle*/, const char* /*module*/, const char* /*format*/, va_list /*args*/) {
  return 1;
}

std::unique_ptr<TIFF, decltype(&TIFFClose)> open(File& file) {
  constexpr tmsize_t kMaxAllocation = tmsize_t{1} << 30;
  const std::unique_ptr<TIFFOpenOptions, decltype(&TIFFOpenOptionsFree)> options(TIFFOpenOptionsAlloc(),
                                                                                 &TIFFOpenOptionsFree);
  TIFFOpenOptionsSetErrorHandlerExtR(options.get(), &keep_first_error, &file);
  TIFFOpenOptionsSetWarningHandlerExtR(options.get(), &ignore_warning, nullptr);
  TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), kMaxAllocation);
  return {TIFFClientOpenExt("", "rm", &file, &read, &refuse_to_write, &seek, &close, &size, nullptr, nullptr,
                            options.get()),
          &TIFFClose};
}

// Keeps the colours as they are: libtiff multiplies them with an alpha channel unless it takes that for done.
void keep_colours_from_alpha(TIFF* tiff) {
  uint16_t count = 0;
  const uint16_t* kinds = nullptr;
  if (TIFFGetField(tiff, TIFFTAG_EXTRASAMPLES, &count, &kinds) != 1 || count == 0) return;
  const std::vector<uint16_t> multiplied(count, EXTRASAMPLE_ASSOCALPHA);
  TIFFSetField(tiff, TIFFTAG_EXTRASAMPLES, count, multiplied.data());
}

}  // namespace

at::Tensor decode_tiff(Bytes bytes) {
  File file{bytes};
  const auto tiff = open(file);
  TORCH_CHECK(tiff, "libtiff: ", file.error);
  uint32_t width = 0, height = 0;
  TIFFGetField(tiff.get(), TIFFTAG_IMAGEWIDTH, &width);
  TIFFGetField(tiff.get(), TIFFTAG_IMAGELENGTH, &height);
  at::Tensor image = new_image(width, height);
  keep_colours_from_alpha(tiff.get());

  const size_t pixels = size_t{width} * height;
  const auto raster = std::make_unique_for_overwrite<uint32_t[]>(pixels);
  const int done = TIFFReadRGBAImageOriented(tiff.get(), width, height, raster.get(), ORIENTATION_TOPLEFT,
                                             /*stopOnError=*/1);
  TORCH_CHECK(done == 1, "libtiff: ", file.error);
  uint8_t* out = image.mutable_data_ptr<uint8_t>();
  for (const uint32_t pixel : std::span(raster.get(), pixels)) {
    *out++ = static_cast<uint8_t>(TIFFGetR(pixel));
    *out++ = static_cast<uint8_t>(TIFFGetG(pixel));
    *out++ = static_cast<uint8_t>(TIFFGetB(pixel));
  }
  return image;
}

}  // namespace onnxtorch::image
