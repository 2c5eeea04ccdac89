// Values that have been made for a key, and are kept for the next time.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <utility>

#include "base/fork_safe.h"

namespace onnxtorch {

// The latest values used, by key.
template <typename Key, typename Value>
class Recent {
 public:
  explicit Recent(size_t kept) : kept_(kept) {}

  template <typename Make>
  std::shared_ptr<const Value> get(const Key& key, const Make& make) {
    {
      const std::lock_guard lock(mutex_);
      for (auto it = entries_.begin(); it != entries_.end(); ++it) {
        if (it->first != key) continue;
        if (it != entries_.begin()) entries_.splice(entries_.begin(), entries_, it);
        return it->second;
      }
    }
    const NoFork whole;  // a primitive is made under locks of oneDNN's
    auto made = std::make_shared<const Value>(make());
    const std::lock_guard lock(mutex_);
    entries_.emplace_front(key, made);
    if (entries_.size() > kept_) entries_.pop_back();
    return made;
  }

  void clear() {
    const std::lock_guard lock(mutex_);
    entries_.clear();
  }

 private:
  const size_t kept_;
  ForkSafeMutex mutex_;
  std::list<std::pair<Key, std::shared_ptr<const Value>>> entries_;
};

}  // namespace onnxtorch
