// The portable formats: PBM (P1, P4), PGM (P2, P5) and PPM (P3, P6), as text and as bytes.
#include <c10/util/Exception.h>

#include <cctype>

#include "kernels/standard/image/byte_reader.h"
#include "kernels/standard/image/image.h"

namespace onnxtorch::image {
namespace {

void skip_blanks_and_comments(ByteReader& file) {
  while (std::isspace(file.peek()) || file.peek() == '#') {
    if (file.byte() != '#') continue;
    while (!file.at_end() && file.byte() != '\n') continue;
  }
}

uint32_t read_number(ByteReader& file) {
  skip_blanks_and_comments(file);
  TORCH_CHECK(std::isdigit(file.peek()), "a number is missing");
  uint32_t number = 0;
  while (std::isdigit(file.peek())) {
    number = number * 10 + (file.byte() - '0');
    TORCH_CHECK(number < (1U << 24), "a number is too large");
  }
  return number;
}

uint8_t read_text_bit(ByteReader& file) {
  skip_blanks_and_comments(file);
  const uint8_t digit = file.byte();
  TORCH_CHECK(digit == '0' || digit == '1', "a bit is neither 0 nor 1");
  return digit == '1' ? 0 : 255;
}

// A reader of the samples of an image in their order, each as 0 ... 255.
class SampleReader {
 public:
  SampleReader(ByteReader& file, char kind, uint32_t max) : file_(file), kind_(kind), max_(max) {}

  void start_row() { bits_left_ = 0; }

  uint8_t next() {
    switch (kind_) {
      case '1':
        return read_text_bit(file_);
      case '4':
        return next_bit() ? 0 : 255;
      case '5':
      case '6':
        return scale_to_byte(max_ < 256 ? file_.byte() : file_.u16_big(), max_);
      default:
        return scale_to_byte(read_number(file_), max_);
    }
  }

 private:
  bool next_bit() {
    if (bits_left_ == 0) {
      bits_ = file_.byte();
      bits_left_ = 8;
    }
    return bits_ >> --bits_left_ & 1;
  }

  ByteReader& file_;
  char kind_;
  uint32_t max_;
  uint8_t bits_ = 0;
  int bits_left_ = 0;
};

}  // namespace

at::Tensor decode_pnm(Bytes bytes) {
  ByteReader file(bytes.subspan(1));
  const char kind = static_cast<char>(file.byte());
  const bool colour = kind == '3' || kind == '6';
  const bool bits = kind == '1' || kind == '4';
  const uint32_t width = read_number(file), height = read_number(file);
  const uint32_t max = bits ? 1 : read_number(file);
  TORCH_CHECK(max > 0 && max < (1U << 16), "the largest value is ", max);
  if (kind >= '4') TORCH_CHECK(std::isspace(file.byte()), "the header does not end with a blank");

  at::Tensor image = new_image(width, height);
  SampleReader samples(file, kind, max);
  uint8_t* out = image.mutable_data_ptr<uint8_t>();
  for (uint32_t y = 0; y < height; ++y) {
    samples.start_row();
    for (uint32_t x = 0; x < width; ++x, out += 3) {
      out[0] = samples.next();
      out[1] = colour ? samples.next() : out[0];
      out[2] = colour ? samples.next() : out[0];
    }
  }
  return image;
}

}  // namespace onnxtorch::image
