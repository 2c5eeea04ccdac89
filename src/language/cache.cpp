#include "language/cache.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <bit>

namespace onnxtorch {
namespace {

constexpr int64_t kLeastRoom = 64;  // tokens
constexpr int64_t kPadding = 64;    // a padded past has a multiple of so many rows

int64_t padded(int64_t length) { return (length + kPadding - 1) / kPadding * kPadding; }

// Tells whether rows can lie behind rows, in memory that a run can write to, or that serves steps of one size: those of
// a GPU are recorded.
bool can_grow(const CacheEntry& entry, const at::Tensor& rows, int64_t length, PastForm form) {
  return !entry.of_encoder && entry.sequence_axis >= 0 && rows.size(entry.sequence_axis) == length &&
         (rows.is_cpu() || form != PastForm::Exact);
}

}  // namespace

const CacheEntry* Cache::entry(const std::string& name) const {
  const auto found = std::ranges::find(*entries_, name, &CacheEntry::name);
  return found == entries_->end() ? nullptr : &*found;
}

int64_t Cache::room_for(int64_t length) const {
  const auto doubled = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(length)));
  return max_length_.value_or(std::max(kLeastRoom, doubled));
}

int64_t Cache::front() const { return form_ == PastForm::Padded ? kPadding - 1 : 0; }

at::Tensor Cache::rows(const std::string& name) const {
  if (const auto held = held_.find(name); held != held_.end()) return held->second;
  if (!room_) return {};
  const auto found = room_->buffers.find(name);
  return found == room_->buffers.end() ? at::Tensor()
                                       : found->second.narrow(entry(name)->sequence_axis, front(), length_);
}

// Puts what is known into memory of its own, for so many tokens at least: all sequences, or these, in this order.
void Cache::move_to_room(int64_t least, const at::Tensor& sequences) {
  auto room = std::make_shared<CacheRoom>();
  room->size = room_for(least);
  room->used = length_;
  for (const CacheEntry& entry : *entries_) {
    const bool is_new = !room_ && held_.contains(entry.name);
    const bool was_there = room_ && room_->buffers.contains(entry.name) && !held_.contains(entry.name);
    if (!is_new && !was_there) continue;
    at::Tensor known = rows(entry.name);
    if (!can_grow(entry, known, length_, form_)) continue;
    if (sequences.defined()) known = known.index_select(entry.batch_axis, sequences.to(known.device()));
    std::vector<int64_t> sizes = known.sizes().vec();
    sizes[static_cast<size_t>(entry.sequence_axis)] = front() + room->size;
    at::Tensor& buffer = room->buffers[entry.name] = at::empty(sizes, known.options());
    buffer.narrow(entry.sequence_axis, 0, front()).zero_();
    buffer.narrow(entry.sequence_axis, front(), length_).copy_(known);
  }
  for (const auto& [name, buffer] : room->buffers) held_.erase(name);
  room_ = std::move(room);
}

// Makes sure of room for the step. Another cache may have gone on in the same memory, which then is left to it.
void Cache::begin_step(int64_t count) {
  if (!room_) return;
  const int64_t longer = length_ + count;
  int64_t used = length_;
  if (longer <= room_->size && room_->used.compare_exchange_strong(used, longer)) return;
  move_to_room(longer, {});
  room_->used = longer;
}

int64_t Cache::past_rows() const {
  if (!room_ || form_ == PastForm::Exact) return length_;
  return form_ == PastForm::Whole ? room_->size : padded(length_);
}

at::Tensor Cache::past(const std::string& name) const { return held_.contains(name) ? rows(name) : target(name, 0); }

at::Tensor Cache::target(const std::string& name, int64_t count) const {
  if (!room_ || held_.contains(name)) return {};
  const auto found = room_->buffers.find(name);
  if (found == room_->buffers.end() || form_ == PastForm::Whole) {
    return found == room_->buffers.end() ? at::Tensor() : found->second;
  }
  const int64_t past = past_rows();
  return found->second.narrow(entry(name)->sequence_axis, front() + length_ - past, past + count);
}

// Takes a present. One that a run cannot write in place is the next step's past as it comes.
void Cache::take(const std::string& name, const at::Tensor& present, int64_t count) {
  const CacheEntry* const known = entry(name);
  if (!known || (known->of_encoder && held_.contains(name))) return;
  const at::Tensor wanted = target(name, count);
  if (wanted.defined() && present.is_alias_of(wanted)) return;
  const bool is_padded = wanted.defined() && form_ != PastForm::Exact && present.sizes() == wanted.sizes();
  if (is_padded) {
    wanted.copy_(present);
  } else {
    held_[name] = present;
  }
}

void Cache::end_step(int64_t count) {
  length_ += count;
  if (!room_) move_to_room(length_, {});
}

bool Cache::can_rewind() const {
  return std::ranges::all_of(*entries_, [&](const CacheEntry& e) {
    const auto held = held_.find(e.name);
    return e.of_encoder ||
           (e.sequence_axis >= 0 && (held == held_.end() || held->second.size(e.sequence_axis) == length_));
  });
}

void Cache::rewind(int64_t length) {
  length_ = length;
  if (room_ && room_.use_count() == 1) room_->used = length;
  for (auto& [name, tensor] : held_) {
    const CacheEntry& of = *entry(name);
    if (!of.of_encoder) tensor = tensor.narrow(of.sequence_axis, 0, length).contiguous();
  }
}

bool Cache::can_join() const {
  return std::ranges::all_of(*entries_, [&](const CacheEntry& e) {
    const at::Tensor known = rows(e.name);
    return !e.of_encoder && known.defined() && (e.sequence_axis < 0 || known.size(e.sequence_axis) == length_);
  });
}

Cache Cache::joined(const std::vector<CachePart>& parts, int64_t length) {
  const Cache& first = *parts.front().cache;
  Cache result(first.entries_, first.form_, {});
  result.length_ = length;
  result.room_ = std::make_shared<CacheRoom>();
  result.room_->size = result.room_for(length);
  result.room_->used = length;
  int64_t batch = 0;
  for (const CachePart& part : parts) batch += static_cast<int64_t>(part.sequences.size());
  for (const CacheEntry& entry : *first.entries_) {
    const at::Tensor like = first.rows(entry.name);
    const bool has_room = can_grow(entry, like, first.length_, first.form_);
    const int64_t front = has_room ? result.front() : 0;
    std::vector<int64_t> sizes = like.sizes().vec();
    sizes[static_cast<size_t>(entry.batch_axis)] = batch;
    if (entry.sequence_axis >= 0) {
      sizes[static_cast<size_t>(entry.sequence_axis)] = has_room ? front + result.room_->size : length;
    }
    at::Tensor& all = (has_room ? result.room_->buffers : result.held_)[entry.name] = at::empty(sizes, like.options());
    if (entry.sequence_axis >= 0) all.narrow(entry.sequence_axis, 0, front + length).zero_();
    int64_t row = 0;
    for (const CachePart& part : parts) {
      const at::Tensor known = part.cache->rows(entry.name);
      for (const int64_t sequence : part.sequences) {
        at::Tensor to = all.narrow(entry.batch_axis, row++, 1);
        at::Tensor from = known.narrow(entry.batch_axis, sequence, 1);
        if (entry.sequence_axis >= 0) {
          const int64_t count = part.cache->length_ - part.padding;
          const bool is_whole = first.form_ == PastForm::Whole;
          to = to.narrow(entry.sequence_axis, front + (is_whole ? 0 : length - count), count);
          from = from.narrow(entry.sequence_axis, is_whole ? 0 : part.padding, count);
        }
        to.copy_(from);
      }
    }
  }
  return result;
}

void Cache::reorder(const at::Tensor& sequences) {
  for (auto& [name, tensor] : held_) {
    tensor = tensor.index_select(entry(name)->batch_axis, sequences.to(tensor.device()));
  }
  if (room_) move_to_room(room_->size, sequences);
}

}  // namespace onnxtorch
