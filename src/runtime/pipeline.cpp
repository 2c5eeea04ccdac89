#include "runtime/pipeline.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string_view>

#include "kernels/interruption.h"
#include "lower/cpu.h"
#include "lower/cuda.h"
#include "lower/place.h"
#include "lower/placement.h"
#include "lower/precision.h"
#include "runtime/text_of.h"
#include "translate/prepare_guard.h"

namespace onnxtorch {
namespace {

// The passes that ONNX_TORCH_DUMP names, separated by commas; "all" is each.
bool is_dumped(const std::string& pass) {
  const char* const wanted = std::getenv("ONNX_TORCH_DUMP");
  if (!wanted) return false;
  std::istringstream names{wanted};
  for (std::string name; std::getline(names, name, ',');) {
    if (name == pass || name == "all") return true;
  }
  return false;
}

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

// Those that come first. Some of a device's need a graph in which the constants are not computed yet.
std::vector<Pass> early_passes(c10::Device device) {
  const auto general = passes();
  std::vector<Pass> all(general.begin(), general.end());
  if (!device.is_cpu()) return all;
  const auto first = first_cpu_passes(), early = early_cpu_passes(), middle = middle_cpu_passes();
  const auto constants =
      all.insert(std::ranges::find(all, std::string_view("constants"), &Pass::name), early.begin(), early.end()) +
      std::ssize(early);
  all.insert(constants + 1, middle.begin(), middle.end());
  all.insert(all.begin(), first.begin(), first.end());
  return all;
}

std::span<const Pass> device_passes(c10::Device device) { return device.is_cpu() ? cpu_passes() : cuda_passes(); }

}  // namespace

std::vector<Pass> passes_for(c10::Device device) {
  std::vector<Pass> all = early_passes(device);
  const auto lowering = device_passes(device);
  all.insert(all.end(), lowering.begin(), lowering.end());
  return all;
}

void check_options(const Options& options, c10::Device device) {
  precision_of(options.precision);
  const std::vector<Pass> known = passes_for(device);
  const auto unknown = std::ranges::find_if(options.disabled_passes, [&](const std::string& name) {
    return std::ranges::none_of(known, [&](const Pass& pass) { return pass.name == name; });
  });
  if (unknown == options.disabled_passes.end()) return;
  std::string there;
  for (const Pass& pass : known) there.append(there.empty() ? "" : ", ").append(pass.name);
  throw InputError("there is no pass \"" + *unknown + "\" to disable; there are " + there);
}

Program optimized(Program program, c10::Device device, const Options& options, const Watcher& watcher) {
  const bool plain = !options.optimize || program.needs_autograd;
  program = placed(std::move(program), device);
  program.tf32 = options.tf32;
  if (watcher) watcher("place", program);
  const auto run_all = [&](std::span<const Pass> passes) {
    for (const Pass& pass : passes) {
      if (options.disabled_passes.contains(pass.name)) continue;
      check_preparation();
      run(pass, program);
      if (watcher) watcher(pass.name, program);
    }
  };
  if (!plain) run_all(early_passes(device));
  if (const c10::ScalarType type = precision_of(options.precision); type != c10::kFloat) {
    lower_precision(program, type, device);
    if (watcher) watcher("precision", program);
  }
  if (!plain) run_all(device_passes(device));
  if (!device.is_cpu()) check_kernels(program, device);
  return program;
}

}  // namespace onnxtorch
