// A model prepared for a device: checks what it is fed, runs it, and says which node failed.
#pragma once

#include <ATen/core/ivalue.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "import/model_reader.h"
#include "runtime/executable.h"
#include "translate/program.h"

namespace onnxtorch {

// A value in storage form with its ONNX type.
struct Fed {
  ValueType type;
  c10::IValue value;
};

class PreparedModel {
 public:
  PreparedModel(std::shared_ptr<const ModelFile> file, const std::string& device);

  const std::vector<InputSpec>& inputs() const { return base_->program().inputs; }
  const std::vector<OutputSpec>& outputs() const { return base_->program().outputs; }
  const std::string graph_text() const;
  const onnx::ModelProto& proto() const { return file_->proto; }

  // A pool for the strings of one run.
  c10::intrusive_ptr<StringPool> new_strings() const { return c10::make_intrusive<StringPool>(base_->program().strings); }

  struct Result {
    std::vector<c10::IValue> values;
    std::vector<ValueType> types;
  };
  Result run(std::map<std::string, Fed> feeds, const c10::intrusive_ptr<StringPool>& strings) const;

 private:
  std::shared_ptr<const Executable> executable_for(const std::set<std::string>& overridden) const;
  void check(const InputSpec& input, const Fed& fed) const;
  [[noreturn]] void explain(const std::exception& failure, const Executable& executable,
                            const std::set<std::string>& overridden, const std::vector<c10::IValue>& inputs,
                            const c10::intrusive_ptr<StringPool>& strings) const;

  std::shared_ptr<const ModelFile> file_;
  c10::Device device_;
  std::shared_ptr<const Executable> base_;
  // Feeding an initializer makes another graph of the model: it was a constant before.
  mutable std::mutex mutex_;
  mutable std::map<std::set<std::string>, std::shared_ptr<const Executable>> overriding_;
};

// "CPU", "cuda:1", … → a device that is there; throws DeviceError.
c10::Device available_device(const std::string& name);

}  // namespace onnxtorch
