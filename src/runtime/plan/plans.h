// The plans of a program, for sizes that come again.
#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
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
  // Keeps `most` plans at most: those that were used last.
  Plans(const Program& program, size_t most);

  using Results = std::vector<c10::IValue>;

  // Runs the plan for these inputs, or records it where they have come before, and else runs the program `plainly`.
  Results run(std::span<const c10::IValue> inputs, const c10::intrusive_ptr<StringPool>& strings,
              const Targets& targets, const std::function<Results()>& plainly);

  // Gives the plans there are as text, the latest first.
  std::vector<std::string> texts();

  // Lets go what runs have left for later ones.
  void clear();

 private:
  struct Sizes {  // the sizes of the inputs, and what else tells runs apart
    ShapeKey key;
    bool is_recorded = false;  // whether it is, or is being recorded
    // The number of plain runs before one is recorded, and that number once the plan has been dropped for others: with
    // more sizes in turn than plans are kept, recording would take longer than plans save.
    int plain = 0, plain_after = 16;
    bool relies_on_branches = true;
    std::shared_ptr<const Plan> plan = {};
    std::vector<std::unique_ptr<Workspace>> free = {};
  };

  std::optional<ShapeKey> key_of(std::span<const c10::IValue> inputs) const;
  std::shared_ptr<Sizes> find(const ShapeKey& key);
  Results record(Sizes& sizes, std::span<const c10::IValue> inputs, const c10::intrusive_ptr<StringPool>& strings,
                 const Targets& targets, const std::function<Results()>& plainly);
  int64_t count() const;
  void drop_oldest_plan();

  const Program& program_;
  const size_t most_;
  std::atomic<bool> is_recording_ = false;  // one run at a time is recorded
  ForkSafeMutex mutex_;
  std::list<std::shared_ptr<Sizes>> sizes_;  // the latest first
  int failures_ = 0;
};

}  // namespace onnxtorch
