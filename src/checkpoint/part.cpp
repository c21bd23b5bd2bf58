#include "checkpoint/part.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "base/log.hpp"
#include "base/text.hpp"
#include "base/utf8.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "format/limits.hpp"
#include "format/manifest.hpp"
#include "os/file.hpp"
#include "root/root.hpp"
#include "shard/name_pattern.hpp"

namespace cairn::checkpoint {
namespace {

Error usage(const std::string& text) { return {ErrorKind::kUsage, text}; }

void check_text(const std::string& text, const char* name) {
  if (!base::is_utf8(text)) throw usage(fmt::format("Options::base.{} is not UTF-8", name));
  if (text.size() <= format::limits::kRunIdBytes) return;
  throw usage(
      fmt::format("Options::base.{} has {} bytes; give at most {}", name, text.size(), format::limits::kRunIdBytes));
}

/// The selectors of Options::save_only, and the section that is left out.
class Choice {
 public:
  explicit Choice(const Options& options) : without_optimizer_(options.no_save_optim) {
    for (const Selection& selection : options.save_only) selectors_.emplace_back(selection);
    used_.resize(selectors_.size() + 1);
  }

  [[nodiscard]] bool takes(const Source& source) {
    bool is_selected = selectors_.empty();
    for (std::size_t i = 0; i < selectors_.size(); ++i) {
      if (!selectors_[i].selects(source.section, source.name)) continue;
      is_selected = true;
      used_[i] = 1;
    }
    if (!without_optimizer_ || source.section != format::kOptimizerSection) return is_selected;
    used_.back() = 1;
    return false;
  }

  /// By selection, then for the section that is left out: whether it concerns a tensor.
  [[nodiscard]] std::vector<std::uint64_t>& used() { return used_; }

 private:
  bool without_optimizer_;
  std::vector<shard::Selector> selectors_;
  std::vector<std::uint64_t> used_;
};

}  // namespace

std::optional<format::Part> part_of(const Options& options) {
  if (options.save_only.empty() && !options.no_save_optim) return std::nullopt;
  format::Part part;
  part.only = options.save_only;
  if (options.no_save_optim) part.without.emplace_back(format::kOptimizerSection);
  part.base = options.base;
  return part;
}

void check_part(const Options& options) {
  for (const Selection& selection : options.save_only) {
    const shard::Selector selector(selection);
    for (const auto* patterns : {&selection.sections, &selection.names}) {
      for (const std::string& pattern : *patterns) {
        if (!base::is_utf8(pattern)) throw usage("a pattern in Options::save_only is not UTF-8");
      }
    }
    if (!selection.sections.empty() || !selection.names.empty()) continue;
    throw usage("a selection in Options::save_only has no pattern, and selects everything; leave the option out");
  }
  if (!options.base) return;
  if (!part_of(options))
    throw usage("Options::base has no effect on saves of whole states; give save_only or no_save_optim as well");
  const BaseCheckpoint& base = *options.base;
  check_text(base.path, "path");
  check_text(base.identity, "identity");
  if (base.step && !base.path.empty())
    throw usage("Options::base has a step of the root and a path; give the one that has the other tensors");
  if (!base.step && base.path.empty() && base.identity.empty())
    throw usage("Options::base is empty; give its step, path or identity, or leave it unset");
}

PartSources::PartSources(comm::Communicator& communicator, const Options& options, std::span<const Source> given)
    : sources_(given) {
  if (!part_of(options)) return;
  std::vector<std::uint64_t> used;
  comm::agree(communicator, "select what to save", [&] {
    Choice choice(options);
    for (const Source& source : given) {
      if (choice.takes(source)) copies_.push_back(source);
    }
    used = std::move(choice.used());
    sources_ = copies_;
  });
  communicator.all_reduce(used, comm::ReduceOp::kOr);
  const std::uint64_t most = communicator.max(copies_.size());
  comm::agree(communicator, "select what to save", [&] {
    const std::string words = format::words_of_tensors(*part_of(options));
    if (most == 0) {
      throw usage(
          fmt::format("no rank has a tensor of the part that is to be saved ({}); look at Options::save_only", words));
    }
    if (communicator.rank() != 0) return;
    for (std::size_t i = 0; i < options.save_only.size(); ++i) {
      if (used[i] != 0) continue;
      base::warn_once(fmt::format("Options::save_only: no rank has a tensor of {}",
                                  format::words_of_tensors({{options.save_only[i]}, {}})));
    }
    if (options.no_save_optim && used.back() == 0) {
      base::warn_once(
          fmt::format("Options::no_save_optim: no rank has a tensor of section '{}'", format::kOptimizerSection));
    }
  });
}

void check_base(const Options& options, const std::filesystem::path& root, std::uint64_t step) {
  if (!options.base || !options.base->step) return;
  if (*options.base->step == step)
    throw usage(fmt::format("Options::base names step {}, which is the one that is saved", step));
  const std::filesystem::path directory = root::checkpoint_directory(root, *options.base->step);
  if (os::exists(directory / format::kManifestFile)) return;
  const Error error = root::does_not_exist(directory);
  throw error.with_message(fmt::format("Options::base: {}", error.what()));
}

}  // namespace cairn::checkpoint
