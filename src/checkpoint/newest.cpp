#include "checkpoint/newest.hpp"

#include <fmt/core.h>

#include <cerrno>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/bytes.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "checkpoint/listing.hpp"
#include "codes/view.hpp"
#include "os/errno_class.hpp"
#include "os/file.hpp"
#include "root/root.hpp"
#include "root/standing.hpp"

namespace cairn::checkpoint {
namespace {

namespace fs = std::filesystem;

/// If every step is damaged, the error describes this many steps, and only names the others.
constexpr std::size_t kDescribed = 8;

using os::shown;

struct Attempt {
  SkippedStep step;      ///< `problem`: the damage if known before the attempt; otherwise empty
  fs::path checkpoint;   ///< path for this step, even if the checkpoint is read from another path
  std::string why_void;  ///< empty: not void, or known to be damaged
  std::optional<comm::AgreedError> error =
      {};  ///< a problem other than damage: the step may be whole, and is not skipped
};

/// The error of a step that cannot be loaded now but is not damaged; nothing for other steps.
std::optional<Error> not_damage(const root::RootEntry& entry) {
  if (entry.is_complete() || !entry.error) return std::nullopt;
  const bool is_newer = entry.condition == root::Condition::kNewer && entry.error->kind() == ErrorKind::kFormat;
  if (!is_newer && os::class_of(*entry.error) == os::ErrnoClass::kOfFile) return std::nullopt;
  return entry.error->with_message(
      fmt::format("'{}' stands before all others to resume from, and cannot be read: {}; name a step to load another",
                  shown(entry.directory), entry.error->what()));
}

/// Collective: the steps of resume_order(), as rank 0 sees them, on all ranks.
std::vector<Attempt> attempts_of(comm::Communicator& communicator, const fs::path& root, root::Counted counted) {
  base::Bytes bytes;
  comm::agree_on_root(communicator, "look for the newest checkpoint", 0, [&] {
    const auto entries = os::exists(root) ? root::list_root(root) : std::vector<root::RootEntry>();
    const auto order = entries.empty() ? std::vector<root::RootEntry>() : root::resume_order(root, entries, counted);
    if (order.empty()) {
      throw Error(ErrorKind::kNotFound,
                  fmt::format("'{}' has no checkpoint to resume from{}", shown(root), root::words_of_parts(entries)),
                  {0, root.native(), -1, Missing::kAnyStep});
    }
    base::ByteWriter out;
    for (const root::RootEntry& entry : order) {
      out.u64(entry.step);
      out.text(entry.directory.native());
      out.text(entry.is_complete() ? "" : entry.problem);
      out.text(entry.is_void && entry.is_complete() ? entry.problem : "");
      const auto error = not_damage(entry);
      out.u64(error ? 1 : 0);
      if (!error) continue;
      out.u64(static_cast<std::uint64_t>(error->kind()));
      out.text(error->what());
      out.u64(static_cast<std::uint64_t>(error->system_error()));
      out.text(error->path());
    }
    bytes = out.take();
  });
  communicator.share(bytes, 0);
  std::vector<Attempt> attempts;
  comm::agree(communicator, "look for the newest checkpoint", [&] {
    for (base::ByteReader in(bytes); !in.done();) {
      Attempt& attempt = attempts.emplace_back();
      attempt.step.step = in.u64();
      attempt.step.directory = in.text();
      attempt.step.problem = in.text();
      attempt.checkpoint = root::checkpoint_directory(root, attempt.step.step);
      attempt.why_void = in.text();
      if (in.u64() == 0) continue;
      const auto kind = static_cast<ErrorKind>(in.u64());
      std::string text = in.text();
      const int system_error = static_cast<int>(in.u64());
      attempt.error = comm::AgreedError(kind, text, {system_error, in.text(), 0});
    }
  });
  return attempts;
}

/// Collective. After an error about a missing file: throws if rank 0 sees a whole checkpoint, which is not skipped.
void refuse_other_views(comm::Communicator& communicator, const fs::path& directory, const comm::AgreedError& error) {
  if (error.system_error() != ENOENT) return;
  std::uint64_t is_whole[] = {0};
  comm::agree_on_root(communicator, "look for what is missing", 0,
                      [&] { is_whole[0] = root::look_at(directory).condition == root::Condition::kWhole ? 1 : 0; });
  communicator.broadcast(std::as_writable_bytes(std::span(is_whole)), 0);
  if (is_whole[0] == 0) return;
  std::optional<comm::AgreedError> other;
  comm::agree(communicator, "say who sees it", [&] {
    const std::string text = fmt::format(
        "{}; rank 0 sees all files of '{}': look whether the file system is mounted there, or try again, because "
        "a client may remember for a minute that a name was not there",
        error.what(), shown(directory));
    other = comm::AgreedError(error.kind(), text, error.details());
  });
  throw comm::AgreedError(*other);
}

std::string warning_of(const SkippedStep& step) {
  return fmt::format("'{}' is passed over for the checkpoint before it: {}", shown(step.directory), step.problem);
}

std::string void_warning(const Attempt& attempt) {
  return fmt::format("'{}' was loaded because nothing else is whole, and is {}", shown(attempt.step.directory),
                     attempt.why_void);
}

/// The error for a root in which every step is damaged: the last error, with a message about all steps.
comm::AgreedError none_is_whole(const fs::path& root, const std::vector<SkippedStep>& skipped, const Error& last) {
  std::string text;
  for (std::size_t i = 0; i < skipped.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? ": " : "; ", base::printable(skipped[i].directory.filename().string()));
    if (i < kDescribed) text += fmt::format(": {}", skipped[i].problem);
  }
  text = fmt::format("none of the checkpoints of '{}' can be loaded{}; 'cairn verify --all' names every fault",
                     shown(root), text);
  return {last.kind(), text, last.details()};
}

}  // namespace

bool is_inside(std::string_view path, const fs::path& directory) {
  const std::string& name = directory.native();
  if (!path.starts_with(name)) return false;
  return path.size() == name.size() || path[name.size()] == '/' || path[name.size()] == '.';
}

bool is_of_checkpoint(const Error& error, const fs::path& directory) {
  switch (error.kind()) {
    case ErrorKind::kIntegrity:
    case ErrorKind::kFormat: return true;
    case ErrorKind::kNotFound:  // the error about a missing tensor names no file
    case ErrorKind::kIo: return is_inside(error.path(), directory) && os::class_of(error) == os::ErrnoClass::kOfFile;
    default: return false;
  }
}

std::vector<Target> make_targets(comm::Communicator& communicator, const opening::OpenCheckpoint& opened,
                                 const MakingOptions& how, std::uint64_t step, const TargetsOf& make) {
  std::vector<TensorInfo> tensors;
  comm::agree(communicator, "list the tensors", [&] {
    if (!make) throw Error(ErrorKind::kUsage, "load_latest was given an empty function to make its targets");
    tensors =
        list_tensors(opened, codes::loading_view(opened, codes::view_options(how.options)), how.load_options.select);
  });
  std::vector<Target> made;
  try {
    comm::agree(communicator, "make the targets", [&] { made = make(step, tensors); });
  } catch (const comm::AgreedError& error) {
    throw CallerError(error);
  }
  return made;
}

Report load_newest(comm::Communicator& communicator, const fs::path& root,
                   const std::function<Report(std::uint64_t step)>& load, root::Counted counted) {
  std::vector<SkippedStep> skipped;
  std::vector<std::string> warnings;
  std::optional<Error> last;
  for (Attempt& attempt : attempts_of(communicator, root, counted)) {
    SkippedStep& step = attempt.step;
    if (attempt.error) throw *attempt.error;
    if (step.problem.empty()) {
      try {
        Report report = load(step.step);
        comm::agree(communicator, "report", [&] {
          if (!attempt.why_void.empty()) {
            warnings.push_back(void_warning(attempt));
            base::log_warning(warnings.back());
          }
          report.warnings.insert(report.warnings.begin(), warnings.begin(), warnings.end());
          report.skipped = std::move(skipped);
        });
        return report;
      } catch (const comm::AgreedError& error) {  // all ranks are here
        const bool is_callers = dynamic_cast<const CallerError*>(&error) != nullptr;
        if (is_callers || !is_of_checkpoint(error, attempt.checkpoint)) throw;
        refuse_other_views(communicator, step.directory, error);
        last = error;
      }
    }
    comm::agree(communicator, "note what is damaged", [&] {
      if (step.problem.empty()) {
        step.problem = last->what();
      } else {
        last = Error(ErrorKind::kIntegrity, step.problem, {0, step.directory.native()});
      }
      warnings.push_back(warning_of(step));
      skipped.push_back(std::move(step));
      base::log_warning(warnings.back());
    });
  }
  std::optional<comm::AgreedError> none;
  comm::agree(communicator, "say what is damaged", [&] { none = none_is_whole(root, skipped, *last); });
  throw comm::AgreedError(*none);
}

}  // namespace cairn::checkpoint
