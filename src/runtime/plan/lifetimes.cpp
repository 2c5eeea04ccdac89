#include "runtime/plan/lifetimes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace onnxtorch {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kNever = SIZE_MAX;

// The free places of an arena: each begins at an offset and has so many bytes, and the one at the end has no bound.
class Arena {
 public:
  // Takes the smallest free place that is large enough, and gives its offset.
  size_t take(size_t bytes) {
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second >= bytes && (best == free_.end() || it->second < best->second)) best = it;
    }
    if (best == free_.end()) return take_at_end(bytes);
    const auto [offset, size] = *best;
    free_.erase(best);
    if (size > bytes) free_.emplace(offset + bytes, size - bytes);
    return offset;
  }

  void give_back(size_t offset, size_t bytes) {
    auto it = free_.emplace(offset, bytes).first;
    if (const auto next = std::next(it); next != free_.end() && it->first + it->second == next->first) {
      it->second += next->second;
      free_.erase(next);
    }
    if (it == free_.begin()) return;
    const auto before = std::prev(it);
    if (before->first + before->second != it->first) return;
    before->second += it->second;
    free_.erase(it);
  }

  size_t bytes() const { return end_; }

 private:
  size_t take_at_end(size_t bytes) {
    size_t offset = end_;
    if (!free_.empty()) {
      const auto last = std::prev(free_.end());
      if (last->first + last->second == end_) {
        offset = last->first;
        free_.erase(last);
      }
    }
    end_ = offset + bytes;
    return offset;
  }

  std::map<size_t, size_t> free_;
  size_t end_ = 0;
};

template <typename Visit>
void for_each_slot(const Plan& plan, const std::vector<size_t>& numbers, const Visit& visit) {
  for (const size_t number : numbers) {
    if (number == Step::kNone) continue;
    visit(number);
    for_each_slot(plan, plan.slots[number].items, visit);
  }
}

bool gives_into_memory(const Step& step) {
  return std::holds_alternative<Step::CallInto>(step.what) || std::holds_alternative<Step::Planned>(step.what);
}

// Tells whether elements lie in row-major order from the beginning of the memory to its end, with gaps where the
// caller's memory has them.
bool is_whole(const TensorForm& form, const Buffer& buffer) {
  int64_t past_last = 1, least = 1;
  for (size_t d = form.sizes.size(); d-- > 0;) {
    if (form.sizes[d] == 0) return buffer.bytes == 0 && form.offset == 0;
    if (form.sizes[d] == 1) continue;
    if (form.strides[d] < least || (least == 1 && form.strides[d] != 1)) return false;
    past_last += (form.sizes[d] - 1) * form.strides[d];
    least = std::max<int64_t>(form.strides[d] * form.sizes[d], 2);
  }
  return form.offset == 0 && static_cast<size_t>(past_last) * c10::elementSize(form.type) == buffer.bytes;
}

// Gives buffers their kinds. What a step gives into memory that is there lies in the arena, unless it is a result.
void give_kinds(Plan& plan) {
  for (const Step& step : plan.steps) {
    if (!gives_into_memory(step)) continue;
    for_each_slot(plan, step.results, [&](size_t number) {
      const Slot& slot = plan.slots[number];
      if (slot.kind == Slot::Kind::Tensor) plan.buffers[slot.form.buffer].kind = Buffer::Kind::Arena;
    });
  }
  for (size_t i = 0; i < plan.results.size(); ++i) {
    const Slot& slot = plan.slots[plan.results[i]];
    if (slot.kind != Slot::Kind::Tensor) continue;
    Buffer& buffer = plan.buffers[slot.form.buffer];
    const bool is_made = buffer.kind == Buffer::Kind::Made || buffer.kind == Buffer::Kind::Arena;
    if (!is_made || buffer.result || !is_whole(slot.form, buffer)) continue;
    if (buffer.kind == Buffer::Kind::Arena) buffer.kind = Buffer::Kind::Result;
    buffer.result = i;
  }
}

using Buffers = std::set<size_t>;

// Gives the buffers that each slot's value may lie in. A value that data decides may be a view of any argument of its
// step.
std::vector<Buffers> buffers_seen(const Plan& plan) {
  std::vector<Buffers> seen(plan.slots.size());
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    if (plan.slots[i].kind == Slot::Kind::Tensor) seen[i].insert(plan.slots[i].form.buffer);
  }
  for (const Step& step : plan.steps) {
    for (const size_t result : step.results) {
      if (result == Step::kNone || plan.slots[result].kind != Slot::Kind::Open || !step.may_give_views) continue;
      for_each_slot(plan, step.arguments,
                    [&](size_t argument) { seen[result].insert(seen[argument].begin(), seen[argument].end()); });
    }
  }
  return seen;
}

// Gives the buffer of an argument where the step may put a result; none where another argument lies there, too.
std::optional<size_t> buffer_below(const Plan& plan, const Step& step, size_t result) {
  const auto* const planned = std::get_if<Step::Planned>(&step.what);
  if (!planned) return {};
  const auto lies_at_beginning = [&](size_t place) { return planned->places[place].offset == 0; };
  for (const auto [to, from] : planned->call->over()) {
    const size_t argument = planned->places[from].buffer;
    if (planned->places[to].buffer != result || !lies_at_beginning(to) || !lies_at_beginning(from)) continue;
    const bool is_alone = std::ranges::count(planned->places, argument, &PlannedPlace::buffer) == 1;
    if (is_alone && plan.buffers[argument].kind == Buffer::Kind::Arena) return argument;
  }
  return {};
}

}  // namespace

void arrange(Plan& plan) {
  give_kinds(plan);
  std::vector<size_t> first(plan.buffers.size(), kNever), last(plan.buffers.size(), kNever);
  std::vector<size_t> last_of_slot(plan.slots.size(), kNever);
  const std::vector<Buffers> seen = buffers_seen(plan);
  const auto use = [&](size_t step, size_t number) {
    last_of_slot[number] = step;
    for (const size_t buffer : seen[number]) {
      if (first[buffer] == kNever) first[buffer] = step;
      last[buffer] = step;
    }
  };
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    for_each_slot(plan, step.results, [&](size_t number) { use(i, number); });
    for_each_slot(plan, step.arguments, [&](size_t number) { use(i, number); });
    const auto* const planned = std::get_if<Step::Planned>(&step.what);
    for (size_t place = 0; planned && place < planned->places.size(); ++place) {
      const size_t buffer = planned->places[place].buffer;
      if (first[buffer] == kNever) first[buffer] = last[buffer] = i;  // memory that this call alone uses
    }
  }
  for_each_slot(plan, plan.results, [&](size_t number) { use(plan.steps.size(), number); });

  std::vector<std::vector<size_t>> begin(plan.steps.size());
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    if (first[i] < plan.steps.size()) begin[first[i]].push_back(i);
    if (last[i] < plan.steps.size() && plan.buffers[i].kind == Buffer::Kind::Made)
      plan.steps[last[i]].last_buffers.push_back(i);
  }
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    if (plan.slots[i].kind == Slot::Kind::Open && last_of_slot[i] < plan.steps.size()) {
      plan.steps[last_of_slot[i]].last_slots.push_back(i);
    }
  }

  Arena arena;
  std::vector<std::vector<size_t>> end(plan.steps.size());
  const auto room = [&](size_t i) {
    return std::max<size_t>(1, (plan.buffers[i].bytes + kAlignment - 1) / kAlignment) * kAlignment;
  };
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    std::set<size_t> taken_over;
    for (const size_t number : begin[i]) {
      Buffer& buffer = plan.buffers[number];
      if (buffer.kind != Buffer::Kind::Arena) continue;
      const auto below = buffer_below(plan, plan.steps[i], number);
      if (below && last[*below] == i && room(*below) == room(number) && taken_over.insert(*below).second) {
        buffer.offset = plan.buffers[*below].offset;
      } else {
        buffer.offset = arena.take(room(number));
      }
      if (last[number] < plan.steps.size()) end[last[number]].push_back(number);
    }
    for (const size_t number : end[i]) {
      if (!taken_over.contains(number)) arena.give_back(plan.buffers[number].offset, room(number));
    }
  }
  plan.arena_bytes = arena.bytes();
}

}  // namespace onnxtorch
