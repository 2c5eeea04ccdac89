#include "base/string_pool.h"

#include <torch/library.h>

#include "base/run_guard.h"

namespace onnxtorch {

StringPool::StringPool(c10::intrusive_ptr<StringPool> base)
    : base_(std::move(base)), first_id_(base_ ? base_->size() : 0) {
  if (!base_) intern("");
}

const int64_t* StringPool::find(std::string_view text) const {
  if (base_) {
    if (const int64_t* id = base_->find(text)) return id;
  }
  const auto found = ids_.find(text);
  return found == ids_.end() ? nullptr : &found->second;
}

int64_t StringPool::intern(std::string_view text) {
  RunWatch().check();  // between the strings of a node, which may take long
  if (const int64_t* id = find(text)) return *id;
  constexpr size_t kAround = 128;  // bytes that a string takes besides its text, in both tables
  count_memory(text.size() + kAround);
  const int64_t id = size();
  strings_.push_back(&ids_.emplace(text, id).first->first);
  return id;
}

const std::string& StringPool::at(int64_t id) const {
  RunWatch().check();
  if (id < first_id_) {
    TORCH_CHECK(base_ && id >= 0, "no string has the id ", id);
    return base_->at(id);
  }
  TORCH_CHECK(id < size(), "no string has the id ", id);
  return *strings_[id - first_id_];
}

int64_t StringPool::size() const { return first_id_ + static_cast<int64_t>(strings_.size()); }

void register_string_pool() {
  static const auto once =
      torch::class_<StringPool>("onnx_torch", "StringPool")
          .def(torch::init([] { return c10::make_intrusive<StringPool>(); }))
          .def("intern",
               [](const c10::intrusive_ptr<StringPool>& self, const std::string& text) { return self->intern(text); })
          .def("at", [](const c10::intrusive_ptr<StringPool>& self, int64_t id) { return self->at(id); })
          .def("size", &StringPool::size);
}

// The class is registered by whoever is first, as static objects of other files may come before this one's.
TORCH_LIBRARY(onnx_torch, /*unused*/) { register_string_pool(); }

}  // namespace onnxtorch
