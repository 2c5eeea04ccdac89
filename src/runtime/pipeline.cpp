#include "runtime/pipeline.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <iostream>

#include "base/interruption.h"
#include "base/prepare_guard.h"
#include "passes/device/place.h"
#include "passes/device/placement.h"
#include "passes/general/precision.h"
#include "runtime/dumped.h"
#include "runtime/text_of.h"

namespace onnxtorch {
namespace {

void dump(const char* when, const char* pass, const Program& program) {
  std::cerr << "# " << when << " " << pass << "\n" << program.graph->toString() << std::flush;
}

void run(const Pass& pass, Program& program) {
  check_interruption();
  const bool dumped = is_dumped(pass.name);
  if (dumped) dump("before", pass.name, program);
  try {
    pass.run(program);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {  // torch's, of sizes that do not fit
    throw Error("the model cannot be optimized by the pass \"" + std::string(pass.name) + "\": " + text_of(error));
  }
  drop_unused(program);
  if (dumped) dump("after", pass.name, program);
}

}  // namespace

void check_options(const Options& options, c10::Device device) {
  precision_of(options.precision);
  const std::vector<Pass> known = optional_passes_for(device);
  const auto unknown = std::ranges::find_if(options.disabled_passes, [&](const std::string& name) {
    return std::ranges::none_of(known, [&](const Pass& pass) { return pass.name == name; });
  });
  if (unknown == options.disabled_passes.end()) return;
  std::string there;
  for (const Pass& pass : known) there.append(there.empty() ? "" : ", ").append(pass.name);
  throw InputError("there is no pass \"" + *unknown + "\" to disable; there are " + there);
}

bool keeps_scripts(const Options& options, c10::Device device) { return options.optimize && device.is_cpu(); }

Program optimized(Program program, c10::Device device, const Options& options, const Watcher& watcher) {
  const bool plain = !options.optimize || program.needs_autograd;
  program = placed(std::move(program), device);
  program.target = {device, precision_of(options.precision), options.tf32};
  if (watcher) watcher("place", program);
  for (const Pass& pass : passes_for(device)) {
    const bool wanted =
        pass.is_needed ? pass.is_needed(program) : !plain && !options.disabled_passes.contains(pass.name);
    if (!wanted) continue;
    check_preparation();
    run(pass, program);
    if (watcher) watcher(pass.name, program);
  }
  if (!device.is_cpu()) check_kernels(program, device);
  return program;
}

}  // namespace onnxtorch
