// The plans of a program: for sizes that come again.
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/fork_safe.h"
#include "base/shape_key.h"
#include "graph/program.h"
#include "runtime/plan/workspace.h"

namespace onnxtorch {

class Plans {
 public:
  // `most` is how many are kept: those that were used last.
  Plans(const Program& program, size_t most);

  using Results = std::vector<c10::IValue>;

  // Runs the plan for these inputs, or records it where they have come before, and else runs the program `plainly`.
  Results run(std::span<const c10::IValue> inputs, const c10::intrusive_ptr<StringPool>& strings,
              const std::function<Results()>& plainly);

  // The plans there are, the latest first.
  std::vector<std::string> texts();

  // Lets go what runs have left for later ones.
  void clear();

 private:
  struct Sizes {  // and what else tells runs apart
    ShapeKey key;
    bool is_recorded = false;  // or is being recorded
    bool relies_on_branches = true;
    std::shared_ptr<const Plan> plan = {};
    std::vector<std::unique_ptr<Workspace>> free = {};
  };

  std::optional<ShapeKey> key_of(std::span<const c10::IValue> inputs) const;
  std::shared_ptr<Sizes> find(const ShapeKey& key);
  Results record(Sizes& sizes, std::span<const c10::IValue> inputs, const c10::intrusive_ptr<StringPool>& strings,
                 const std::function<Results()>& plainly);
  void drop_oldest_plan();

  const Program& program_;
  const size_t most_;
  ForkSafeMutex mutex_, recording_;          // one run at a time is recorded
  std::list<std::shared_ptr<Sizes>> sizes_;  // the latest first
  size_t plans_ = 0;
  int failures_ = 0;
};

}  // namespace onnxtorch
