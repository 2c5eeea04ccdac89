// The facts of graph values while translating: whole values where they follow from constants, and shapes (as tensors on
// the meta device) where they follow from fixed input dimensions. No operator has a shape function: whatever enters the
// graph is run once, for real on small known values, else on the meta device. What follows from open dimensions is
// tried with several sizes of them; sizes that come out alike each time are known. As sizes grow with those that they
// follow from, a size that is alike for the smallest and the largest is so for all between. This need not hold for a
// number that was computed: of what follows from a number that came out alike, ranks are known, and no sizes. The same
// goes for a tensor that may shrink as sizes grow, and for what only takes sizes that can be halved several times, as
// in networks that join an image's parts of several scales.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/ir/ir.h>

#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/program.h"

namespace onnxtorch {

class Facts {
 public:
  using Run = std::function<void(torch::jit::Stack&)>;
  using Trials =
      std::vector<std::optional<c10::IValue>>;          // a value, or its shape, for each trial; none where it failed
  using Numbers = std::vector<std::optional<int64_t>>;  // likewise
  using Sizes = std::vector<int64_t>;                   // the sizes of one dimension, one for each trial

  // Gives the sizes with which an open dimension is tried, which may be the first of an input. A fact takes the first
  // three; where those behind them fail, it does without. Where one of the three fails, those behind tell ranks.
  static Sizes trial_sizes(size_t dimension, bool is_first = false);
  static constexpr size_t kNeededTrials = 3;
  static constexpr size_t kMostTurned = 50;  // the number of dimensions whose order another trial turns

  Facts() = default;
  // Makes facts of so many trials, of which the one of this index is needed, too.
  Facts(size_t trials, size_t also_needed) : holds_(trials, true), also_needed_(also_needed) {}

  std::optional<c10::IValue> value(const torch::jit::Value* v) const;
  std::optional<at::Tensor> meta(const torch::jit::Value* v) const;  // on the meta device, where all sizes are known
  std::optional<c10::ScalarType> dtype(const torch::jit::Value* v) const;
  std::optional<c10::SymbolicShape> shape(const torch::jit::Value* v) const;  // of a tensor whose rank is known
  std::optional<size_t> length(const torch::jit::Value* v) const;             // the length of a list

  // Gives a tensor the type that says its dtype and its shape.
  void stamp(torch::jit::Value* v) const;

  void set_value(const torch::jit::Value* v, const c10::IValue& value);
  std::optional<c10::IValue> take_value(const torch::jit::Value* v);      // gives the value, and forgets it
  void move(const torch::jit::Value* from, const torch::jit::Value* to);  // moves what is known
  void forget(const torch::jit::Value* v);
  bool knows(const torch::jit::Value* v) const;  // tells whether there are facts, and none by chance
  // Sets the sizes of each dimension in each of the trials.
  void set_sizes(const torch::jit::Value* v, c10::ScalarType dtype, std::span<const Sizes> sizes);
  // Sets the sizes of an input of the graph likewise. Its open sizes then stand for all numbers that equal them in
  // every trial.
  void set_input_sizes(torch::jit::Value* input, c10::ScalarType dtype, std::span<const Sizes> sizes);

  // Gives the range of these sizes in the trials that all facts have come through.
  SizeRange range(const Sizes& sizes) const;

  // Notes that a value may change after translating: what is read from it on the host stays known, floating tensors
  // made of it do not.
  void set_changing(const torch::jit::Value* v) { changing_.insert(v); }

  // Gives what `run` computes from known inputs; nothing where an input is unknown, or a result too large to keep.
  std::optional<torch::jit::Stack> evaluate(std::span<torch::jit::Value* const> inputs, const Run& run) const;

  // The properties of the operation whose results facts are learnt of.
  struct Kind {
    bool deterministic = false;
    bool reads_sizes = false;  // reads sizes, and computes nothing from them
    bool reads_rank = false;   // reads a rank or a length
    bool may_shrink = false;   // may give a smaller tensor of a larger one
    bool is_cut = false;       // gives a part whose bounds follow from sizes
  };
  // Finds the facts of outputs that `run` computes from inputs, or of a node just inserted, unless there are some.
  void learn(std::span<torch::jit::Value* const> inputs, std::span<torch::jit::Value* const> outputs, Kind kind,
             const Run& run);
  void learn(torch::jit::Node* node);

  // Gives the size of an input that a number, or each of a list of numbers, is in every trial, or the number that was
  // read before from the same index of a list; the value itself where there is none. `inputs` are what it was computed
  // from: what a condition decides that sizes may change is no size.
  torch::jit::Value* shared(torch::jit::Value* v, std::span<torch::jit::Value* const> inputs);

  // Gives the result of comparing two numbers, where they are the same, or one is a size of an input and the other is
  // below the least that it may be, or equals that least where this decides.
  std::optional<bool> comparison(c10::Symbol kind, const torch::jit::Value* a, const torch::jit::Value* b) const;

  // Gives the values that were found out, other than constants.
  const std::unordered_map<const torch::jit::Value*, c10::IValue>& values() const { return values_; }

 private:
  std::optional<c10::IValue> meta_or_value(const torch::jit::Value* v) const;
  std::optional<torch::jit::Stack> inputs_of_trial(std::span<torch::jit::Value* const> inputs, size_t trial) const;
  void learn_by_trials(std::span<torch::jit::Value* const> inputs, std::span<torch::jit::Value* const> outputs,
                       Kind kind, const Run& run);
  // Keeps what the trials found. Where the sizes do not follow from sizes alone, what is alike may be so `by_chance`.
  void keep(std::span<const torch::jit::Value* const> outputs, std::vector<Trials> found, Kind kind, bool by_chance);
  bool may_shrink(const torch::jit::Node* node) const;
  bool is_cut(const torch::jit::Node* node) const;
  std::optional<Numbers> trial_numbers(const torch::jit::Value* v) const;
  std::optional<size_t> open_size(const Numbers& trials) const;
  torch::jit::Value* input_size(const Numbers& trials, torch::jit::Graph& graph);
  torch::jit::Value* shared_list(torch::jit::Value* list);
  std::optional<int64_t> known_int(const torch::jit::Value* v) const;
  torch::jit::Value* shared_item(torch::jit::Value* item);

  bool is_needed(size_t trial) const { return trial < kNeededTrials || trial == also_needed_; }

  std::vector<bool> holds_ = std::vector<bool>(trial_sizes(0).size(), true);  // all facts hold in the trial
  size_t also_needed_ = 0;
  std::unordered_map<const torch::jit::Value*, c10::IValue> values_;
  std::unordered_map<const torch::jit::Value*, c10::IValue> metas_;
  std::unordered_map<const torch::jit::Value*, Trials> open_;  // values that differ between trials, or may in a run
  std::unordered_set<const torch::jit::Value*> by_chance_;     // those of them whose sizes may be alike by chance
  std::unordered_set<const torch::jit::Value*> changing_;
  struct OpenSize {
    torch::jit::Value* input;
    int64_t dim;
    Sizes trials;
    torch::jit::Value* number;  // null until it is needed
  };
  std::vector<OpenSize> open_sizes_;  // the open sizes of the model's inputs
  bool all_turn_ = true;              // of any two of them, the larger one is the smaller one in another trial
};

}  // namespace onnxtorch
