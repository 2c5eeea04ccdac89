// A reader of a file in memory, which throws c10::Error where the file ends too early.
#pragma once

#include <c10/util/Exception.h>

#include "kernels/standard/image/image.h"

namespace onnxtorch::image {

class ByteReader {
 public:
  explicit ByteReader(Bytes bytes) : bytes_(bytes) {}

  size_t position() const { return position_; }
  bool at_end() const { return position_ == bytes_.size(); }

  void seek(size_t position) {
    TORCH_CHECK(position <= bytes_.size(), "the file is truncated");
    position_ = position;
  }

  Bytes take(size_t count) {
    TORCH_CHECK(count <= bytes_.size() - position_, "the file is truncated");
    position_ += count;
    return bytes_.subspan(position_ - count, count);
  }

  uint8_t byte() { return take(1)[0]; }
  uint8_t peek() const { return at_end() ? 0 : bytes_[position_]; }
  uint32_t u16_big() {
    const Bytes b = take(2);
    return b[0] << 8 | b[1];
  }
  uint32_t u16_little() {
    const Bytes b = take(2);
    return b[1] << 8 | b[0];
  }
  uint32_t u32_little() {
    const uint32_t low = u16_little();
    return u16_little() << 16 | low;
  }

 private:
  Bytes bytes_;
  size_t position_ = 0;
};

}  // namespace onnxtorch::image
