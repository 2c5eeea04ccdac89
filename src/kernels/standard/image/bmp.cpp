// Windows bitmaps with 1 to 32 bits a pixel, plain, with bit fields or run-length encoded, and those of OS/2.
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <vector>

#include "kernels/standard/image/byte_reader.h"
#include "kernels/standard/image/image.h"

namespace onnxtorch::image {
namespace {

using Rgb = std::array<uint8_t, 3>;

enum Compression : uint32_t { kPlain = 0, kRunLength8 = 1, kRunLength4 = 2, kBitFields = 3, kAlphaBitFields = 6 };

struct Header {
  uint32_t pixels_at;
  int64_t width = 0, height = 0;
  bool top_down = false;
  int bits = 0;
  uint32_t compression = kPlain;
  std::array<uint32_t, 3> masks{};
  std::vector<Rgb> palette;
};

Header read_header(ByteReader& file) {
  constexpr uint32_t kFileHeader = 14, kCoreHeader = 12, kInfoHeader = 40;
  Header h;
  file.seek(10);
  h.pixels_at = file.u32_little();
  const uint32_t header_size = file.u32_little();
  const bool core = header_size == kCoreHeader;
  uint32_t palette_at = kFileHeader + header_size, colours = 0;
  if (core) {
    h.width = file.u16_little();
    h.height = file.u16_little();
    file.take(2);
    h.bits = static_cast<int>(file.u16_little());
  } else {
    TORCH_CHECK(header_size >= kInfoHeader && header_size < 256, "the header's size is ", header_size);
    h.width = static_cast<int32_t>(file.u32_little());
    h.height = static_cast<int32_t>(file.u32_little());
    h.top_down = h.height < 0;
    h.height = std::abs(h.height);
    file.take(2);
    h.bits = static_cast<int>(file.u16_little());
    h.compression = file.u32_little();
    file.take(12);
    colours = file.u32_little();
    file.take(4);
  }

  if (h.compression == kBitFields || h.compression == kAlphaBitFields) {
    for (uint32_t& mask : h.masks) mask = file.u32_little();
    if (header_size == kInfoHeader) palette_at += h.compression == kBitFields ? 12 : 16;
    h.compression = kPlain;
  } else if (h.bits == 16) {
    h.masks = {0x7C00, 0x03E0, 0x001F};
  } else if (h.bits == 32) {
    h.masks = {0xFF0000, 0x00FF00, 0x0000FF};
  }
  const bool run_length =
      (h.compression == kRunLength8 && h.bits == 8) || (h.compression == kRunLength4 && h.bits == 4);
  TORCH_CHECK(h.compression == kPlain || run_length, "compression ", h.compression, " of ", h.bits, " bits a pixel");

  if (h.bits <= 8) {
    TORCH_CHECK(h.bits == 1 || h.bits == 2 || h.bits == 4 || h.bits == 8, h.bits, " bits a pixel");
    const uint32_t most = 1U << h.bits;
    file.seek(palette_at);
    h.palette.resize(most);
    for (uint32_t i = 0; i < (colours == 0 ? most : std::min(colours, most)); ++i) {
      const Bytes entry = file.take(core ? 3 : 4);
      h.palette[i] = {entry[2], entry[1], entry[0]};
    }
  } else {
    TORCH_CHECK(h.bits == 16 || h.bits == 24 || h.bits == 32, h.bits, " bits a pixel");
  }
  return h;
}

uint8_t masked(uint32_t pixel, uint32_t mask) {
  if (mask == 0) return 0;
  const int shift = std::countr_zero(mask);
  return static_cast<uint8_t>(uint64_t{(pixel & mask) >> shift} * 255 / (mask >> shift));
}

Rgb pixel_of_row(const Header& h, Bytes row, size_t x) {
  switch (h.bits) {
    case 24:
      return {row[x * 3 + 2], row[x * 3 + 1], row[x * 3]};
    case 16:
    case 32: {
      uint32_t pixel = 0;
      const size_t bytes = h.bits / 8;
      for (size_t i = bytes; i-- > 0;) pixel = pixel << 8 | row[x * bytes + i];
      return {masked(pixel, h.masks[0]), masked(pixel, h.masks[1]), masked(pixel, h.masks[2])};
    }
    default: {
      const size_t bit = x * h.bits;
      return h.palette[row[bit / 8] >> (8 - h.bits - bit % 8) & ((1 << h.bits) - 1)];
    }
  }
}

// Reads the palette indices of a run-length encoded image, its rows as in the file.
std::vector<uint8_t> read_runs(const Header& h, ByteReader& file) {
  std::vector<uint8_t> indices(h.width * h.height, 0);
  int64_t x = 0, y = 0;
  const auto put = [&](uint8_t index) {
    TORCH_CHECK(x < h.width && y < h.height, "a run leaves the image");
    indices[y * h.width + x++] = index;
  };
  const bool nibbles = h.bits == 4;
  while (true) {
    const uint8_t count = file.byte(), value = file.byte();
    if (count > 0) {
      for (int i = 0; i < count; ++i) put(!nibbles ? value : i % 2 ? value & 0xF : value >> 4);
    } else if (value == 0) {  // end of the row
      x = 0;
      ++y;
    } else if (value == 1) {  // end of the image
      return indices;
    } else if (value == 2) {  // a step ahead
      x += file.byte();
      y += file.byte();
    } else {  // as many pixels one by one, filled up to an even number of bytes
      const size_t bytes = nibbles ? (value + 1) / 2 : value;
      const Bytes run = file.take(bytes);
      for (int i = 0; i < value; ++i) put(!nibbles ? run[i] : i % 2 ? run[i / 2] & 0xF : run[i / 2] >> 4);
      file.take(bytes % 2);
    }
  }
}

}  // namespace

at::Tensor decode_bmp(Bytes bytes) {
  ByteReader file(bytes);
  Header header = read_header(file);
  at::Tensor image = new_image(header.width, header.height);
  file.seek(header.pixels_at);

  std::vector<uint8_t> indices;
  size_t row_bytes = (header.width * header.bits + 31) / 32 * 4;
  if (header.compression != kPlain) {
    indices = read_runs(header, file);
    file = ByteReader(indices);
    header.bits = 8;
    header.palette.resize(256);
    row_bytes = header.width;
  }
  for (int64_t y = 0; y < header.height; ++y) {
    const Bytes row = file.take(row_bytes);
    uint8_t* out = image.mutable_data_ptr<uint8_t>() + (header.top_down ? y : header.height - 1 - y) * image.stride(0);
    for (int64_t x = 0; x < header.width; ++x, out += 3) std::ranges::copy(pixel_of_row(header, row, x), out);
  }
  return image;
}

}  // namespace onnxtorch::image
