// Runs a verification and tells its result.
#include "cli/verify.hpp"

#include <fmt/core.h>

#include "base/log.hpp"
#include "base/text.hpp"
#include "checkpoint/verify.hpp"
#include "cli/arguments.hpp"
#include "cli/output.hpp"
#include "cli/progress.hpp"
#include "cli/table.hpp"

namespace cairn::cli {
namespace {

checkpoint::VerifyResult verify_with_progress(Context& context, const std::filesystem::path& path, bool follow_links) {
  const ProgressLine progress(context.output);
  return checkpoint::verify(context.communicator, path, checkpoint::links_of(follow_links));
}

/// What was read with the page cache in between, if anything.
std::string note_of(const checkpoint::VerifyResult& result) {
  if (result.cached_bytes == 0) return "";
  return fmt::format("{} may have come from the page cache and not from storage: {}",
                     base::format_size(result.cached_bytes), base::printable(result.why_cached, 1000));
}

void print_text(Output& output, const ResolvedPath& target, const checkpoint::VerifyResult& result) {
  const std::string path = base::printable(target.path.string());
  for (const checkpoint::Fault& fault : result.faults) output.line("fault: " + one_line(fault.message));
  if (!result.faults.empty()) {
    output.line(fmt::format("bad: {} in {}", counted(result.faults.size(), "fault"), path));
  } else if (!result.has_checksums) {
    output.line(
        fmt::format("structure good: {} in {} of {}; it has no checksums of Cairn's, so there is nothing to "
                    "verify the bytes against",
                    counted(result.tensors, "tensor"), counted(result.files, "file"), path));
  } else {
    output.line(fmt::format("good: {} in {} of {}, {} in {} {}checked in {:.2f} s ({} GiB/s)",
                            counted(result.tensors, "tensor"), counted(result.files, "file"), path,
                            base::format_size(result.bytes), counted(result.blocks, "block"),
                            result.cached_bytes == 0 ? "read past the page cache and " : "", result.seconds,
                            throughput(result.bytes, result.seconds)));
  }
}

void print_document(Output& output, const ResolvedPath& target, const checkpoint::VerifyResult& result) {
  base::Json document = json_document("verify");
  document["path"] = target.path.string();
  document["good"] = result.faults.empty();
  document["has_checksums"] = result.has_checksums;
  document["files"] = result.files;
  document["tensors"] = result.tensors;
  document["size_bytes"] = result.bytes;
  document["blocks"] = result.blocks;
  document["past_page_cache"] = result.has_checksums && result.cached_bytes == 0;
  document["seconds_max"] = result.seconds;
  document["faults"] = base::Json::array();
  for (const checkpoint::Fault& fault : result.faults) {
    base::Json row = {{"file", fault.file}, {"tensors", fault.tensors}};
    row["block"] = fault.has_block ? base::Json(fault.block) : base::Json(nullptr);
    row["message"] = fault.message;
    document["faults"].push_back(std::move(row));
  }
  std::vector<std::string> notes = target.notes;
  notes.insert(notes.end(), result.warnings.begin(), result.warnings.end());
  if (const std::string note = note_of(result); !note.empty()) notes.push_back(note);
  document["notes"] = notes;
  document["phases"] = phases_json(result.phases);
  print_json(output, document);
}

}  // namespace

int run_verify(Context& context, const VerifyOptions& options) {
  const ResolvedPath target = resolve(context.communicator, options.path);
  const checkpoint::VerifyResult result = verify_with_progress(context, target.path, options.follow_links);
  if (options.json) {
    print_document(context.output, target, result);
  } else {
    for (const std::string& note : target.notes) context.output.line("note: " + one_line(note));
    for (const std::string& warning : result.warnings) base::warn_once(warning);
    if (const std::string note = note_of(result); !note.empty()) context.output.line("note: " + one_line(note));
    print_text(context.output, target, result);
  }
  return result.faults.empty() ? kExitGood : kExitFailed;
}

}  // namespace cairn::cli
