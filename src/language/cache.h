// The cache of a decoder: what it remembers of the tokens that it has read. This is the one place that knows where the
// memory of it comes from.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "onnx_torch/language_model.h"

namespace onnxtorch {

// The rows that a step takes as the past. Where their number stays the same from step to step, steps go by one plan.
enum class PastForm : uint8_t {
  Exact,   // the rows of the tokens that have been read
  Padded,  // besides, zeros in front of them, as those of padding at the left, so that there are a multiple of 64
  Whole,   // the whole buffer, of which the model knows how many are there
};

// Memory for more tokens than have been read. Caches that have read the same tokens share it; only one of them goes on
// in it.
struct CacheRoom {
  std::map<std::string, at::Tensor> buffers;  // by the entries' names
  int64_t size = 0;                           // tokens that there is room for
  std::atomic<int64_t> used = 0;              // tokens that some cache has read, or is about to read
};

struct CachePart;

// The memory of what a decoder has read. A copy shares memory, and goes on by itself. Rows that a cache has are never
// written to again.
class Cache {
 public:
  // Makes a cache whose `entries` have a past each. There is room for `max_length` tokens from the first step on; by
  // default it is doubled where more come.
  Cache(std::shared_ptr<const std::vector<CacheEntry>> entries, PastForm form, std::optional<int64_t> max_length)
      : entries_(std::move(entries)), form_(form), max_length_(max_length) {}

  // A step that reads `count` tokens: it takes pasts, undefined where no step has given them, writes presents to
  // targets, undefined where there is no memory for them yet, and gives presents back.
  void begin_step(int64_t count);
  int64_t past_rows() const;  // of the caches that grow
  at::Tensor past(const std::string& name) const;
  at::Tensor target(const std::string& name, int64_t count) const;
  void take(const std::string& name, const at::Tensor& present, int64_t count);
  void end_step(int64_t count);

  PastForm form() const { return form_; }
  // Tells whether the past of fewer tokens is a part of that of more.
  bool can_rewind() const;
  void set_max_length(int64_t max_length) { max_length_ = max_length; }
  void rewind(int64_t length);
  void reorder(const at::Tensor& rows);

  // Makes a cache of all sequences of the parts, of which the longest have read `length` tokens. What shorter ones lack
  // stands in front of them, as padding at the left, or behind them where the past is the whole buffer.
  static Cache joined(const std::vector<CachePart>& parts, int64_t length);
  bool can_join() const;

 private:
  const CacheEntry* entry(const std::string& name) const;
  at::Tensor rows(const std::string& name) const;  // of the tokens that have been read
  int64_t front() const;                           // rows of zeros at the beginning of a buffer
  int64_t room_for(int64_t length) const;
  void move_to_room(int64_t least, const at::Tensor& sequences);

  std::shared_ptr<const std::vector<CacheEntry>> entries_;
  PastForm form_;
  std::optional<int64_t> max_length_;
  std::map<std::string, at::Tensor> held_;  // what lies in no room, as each step gives it anew
  std::shared_ptr<CacheRoom> room_;         // undefined before the first step
  int64_t length_ = 0;                      // of what has been read
};

// Some sequences of a cache, without so many tokens at their beginning, which are padding.
struct CachePart {
  const Cache* cache;
  std::vector<int64_t> sequences;
  int64_t padding;
};

}  // namespace onnxtorch
