#include "runtime/pipeline.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <iostream>

#include "base/interruption.h"
#include "base/prepare_guard.h"
#include "base/text_of.h"
#include "passes/device/place.h"
#include "passes/device/placement.h"
#include "passes/general/linear_of_bits.h"
#include "passes/general/passes.h"
#include "passes/general/precision.h"
#include "runtime/dumped.h"
#include "translate/aten_operators.h"
#include "translate/translate.h"

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
  } catch (const std::exception& error) {  // one of torch's, where sizes do not fit
    throw Error("the model cannot be optimized by the pass \"" + std::string(pass.name) + "\": " + text_of(error));
  }
  drop_unused(program);
  if (dumped) dump("after", pass.name, program);
}

void check_limits(const Limits& limits) {
  const auto check = [](double limit, const char* name) {
    if (!(limit > 0)) throw InputError("the " + std::string(name) + " of limits must be more than 0");
  };
  check(limits.seconds, "seconds");
  check(limits.memory, "memory");
  check(limits.max_iterations, "max_iterations");
  check(limits.prepare_seconds, "prepare_seconds");
  check(limits.nodes, "nodes");
  check(limits.constant_bytes, "constant_bytes");
}

}  // namespace

void check_options(const Options& options, c10::Device device) {
  constexpr int kMostThreads = 1024;  // OpenMP ends a process that cannot start as many as were asked for
  if (options.threads < 0 || options.threads > kMostThreads) {
    throw InputError("threads must be from 0 to " + std::to_string(kMostThreads) + ", not " +
                     std::to_string(options.threads));
  }
  if (options.plans < 0) throw InputError("plans must be 0 or more, not " + std::to_string(options.plans));
  check_limits(options.limits);
  if (options.links != "follow" && options.links != "refuse") {
    throw InputError("links must be \"follow\" or \"refuse\", not \"" + options.links + "\"");
  }
  allows_any_aten(options.allow_aten);
  precision_of(options.precision);
  if (options.disabled_passes.empty()) return;
  const std::vector<Pass> known = optional_passes_for(device);
  const auto unknown = std::ranges::find_if(options.disabled_passes, [&](const std::string& name) {
    return std::ranges::none_of(known, [&](const Pass& pass) { return pass.name == name; });
  });
  if (unknown == options.disabled_passes.end()) return;
  std::string there;
  for (const Pass& pass : known) there.append(there.empty() ? "" : ", ").append(pass.name);
  throw InputError("there is no pass \"" + *unknown + "\" to disable; there are " + there);
}

TranslateOptions translate_options(const Options& options) {
  TranslateOptions result;
  result.variant.last_only = options.last_only;
  result.shapes = options.shapes;
  result.any_aten = allows_any_aten(options.allow_aten);
  result.external = {.refuses_links = options.links == "refuse", .maps = options.map_external};
  result.limits = options.limits;
  return result;
}

KeptScripts kept_scripts(const Options& options, c10::Device device) {
  if (!options.optimize) return nullptr;
  if (device.is_cpu()) return [](c10::Symbol) { return true; };
  return [](c10::Symbol script) { return is_by_index(script) || has_few_bits(script); };
}

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
