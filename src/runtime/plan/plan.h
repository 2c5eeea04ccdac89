// A plan: what a run of certain sizes does, as a list of calls with everything decided that sizes decide. Views are
// addresses that are known before, and intermediate values have places in one arena.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/planned_call.h"

namespace onnxtorch {

// The memory that one tensor lies in, or several that are views of one another.
struct Buffer {
  enum class Kind : uint8_t {
    Constant,  // the memory of a tensor that is the same in each run
    Input,     // the caller's
    Arena,     // a place in the arena
    Made,      // the step that gives it allocates it
    Result,    // allocated when the run begins
  };
  Kind kind = Kind::Made;
  size_t bytes = 0;
  size_t input = 0;                   // its index among the inputs
  std::optional<size_t> result = {};  // the index of the result that is given away with the memory
  size_t offset = 0;                  // its place in the arena
  at::Tensor constant = {};
};

struct TensorForm {
  size_t buffer = 0;
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;  // in elements
  c10::ScalarType type = c10::kFloat;
  bool is_number = false;  // whether ATen has made it of a number, which has no say over the type of a result
};

// A value of the run.
struct Slot {
  enum class Kind : uint8_t {
    Constant,
    Tensor,   // a tensor of a form that sizes decide
    Several,  // a list or a tuple of other slots
    Open,     // any value that a step gives
  };
  Kind kind;
  c10::IValue constant = {};
  TensorForm form = {};
  std::vector<size_t> items = {};
  c10::TypePtr type = {};  // the type of the list or the tuple
  // The rank and the type of an open slot's tensor, where the plan relies on them.
  std::optional<int64_t> dims = {};
  c10::ScalarType element = c10::kFloat;
};

// Gives a copy of a list, as whoever has the list may write to it, and any other value as it is.
inline c10::IValue apart(const c10::IValue& value) {
  return value.isList() ? c10::IValue(value.toList().copy()) : value;
}

// Makes a list or a tuple of the items.
c10::IValue joined(const c10::Type& type, std::vector<c10::IValue> items);

// The place where a planned call finds a tensor.
struct PlannedPlace {
  size_t buffer;
  size_t offset;  // in bytes
};

struct Step {
  // An operator's call. A tensor, or the tensors of a list, take the place of the slot's; an open slot takes any value.
  struct Call {
    mutable torch::jit::Operation operation;  // its call is declared as one that changes it
  };
  // A call whose results are among its arguments, as the last ones.
  struct CallInto {
    c10::OperatorHandle operation;
  };
  // A node whose course the elements of tensors decide: TorchScript's interpreter runs it.
  struct Interpret {
    std::shared_ptr<const torch::jit::Code> code;
  };
  struct Planned {
    std::shared_ptr<const PlannedCall> call;
    std::vector<PlannedPlace> places;
  };

  std::variant<Call, CallInto, Interpret, Planned> what;
  std::vector<size_t> arguments;  // slots
  std::vector<size_t> results;    // slots; kNone for what is a view of something that has been there before
  bool may_give_views = true;     // whether open slots may be views of its arguments
  std::vector<size_t> last_buffers = {}, last_slots = {};  // those that no later step needs
  const char* name = "";

  static constexpr size_t kNone = SIZE_MAX;
};

struct Plan {
  std::vector<Buffer> buffers;
  std::vector<Slot> slots;
  std::vector<Step> steps;
  std::vector<size_t> results;   // slots
  size_t strings = Step::kNone;  // the slot of the run's pool of strings
  size_t arena_bytes = 0;
};

// Gives the steps as text, one a line, with how each is called and the forms of its tensors.
std::string text_of(const Plan& plan);

}  // namespace onnxtorch
