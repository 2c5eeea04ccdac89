// Strings inside a graph. An ONNX string tensor is an int64 tensor of ids into the pool of its run, so whatever moves
// elements (Reshape, Gather, Where, …) is the same ATen operator for strings as for numbers, and equal ids are equal
// strings.
#pragma once

#include <torch/custom_class.h>

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace onnxtorch {

class StringPool : public torch::CustomClassHolder {
 public:
  // `base` holds the model's own strings and is never written to after the model is prepared; each run adds its
  // strings to a pool of its own on top, which goes with the run. Id 0 is the empty string in every pool.
  explicit StringPool(c10::intrusive_ptr<StringPool> base = {});

  int64_t intern(std::string_view text);
  const std::string& at(int64_t id) const;
  int64_t size() const;

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  const int64_t* find(std::string_view text) const;

  c10::intrusive_ptr<StringPool> base_;
  int64_t first_id_;
  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> ids_;
  std::vector<const std::string*> strings_;  // the keys of ids_; each run makes a pool, so an empty one is cheap
};

// Makes the class known to TorchScript, once; to be called before a schema that names it is defined.
void register_string_pool();

}  // namespace onnxtorch
