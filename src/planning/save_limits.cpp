#include "planning/save_limits.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>

#include "base/json.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "format/blocks.hpp"
#include "format/hf_index.hpp"
#include "format/limits.hpp"
#include "interop/file_names.hpp"
#include "interop/sharding_info.hpp"

namespace cairn::planning {
namespace {

namespace limits = format::limits;

Error usage(const std::string& text) { return {ErrorKind::kUsage, text}; }

void check_utf8(std::string_view text, std::string_view what) {
  if (!base::is_utf8(text)) throw usage(fmt::format("{} '{}' is not UTF-8", what, base::printable(text)));
}

/// Whether every system accepts the name as a file name, in a checkpoint's directory and in cairn.json.
bool names_a_file(const std::string& name) {
  if (!base::is_utf8(name) || name.find('/') != std::string::npos) return false;
  try {
    format::check_relative_path(name, "a file");
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::string section_problem(std::string_view section) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  if (section.empty() || section.size() > limits::kSectionBytes || !std::ranges::all_of(section, is_allowed)) {
    return fmt::format("a section is 1 to {} letters, digits, '_' or '-': it names files", limits::kSectionBytes);
  }
  const std::string file = std::string(section) + ".safetensors";
  if (interop::parse_data_name(file).numbered || interop::file_kind(file) == interop::FileKind::kPart) {
    return fmt::format("its file {} would look like one part of a set; use a section without such numbers", file);
  }
  return {};
}

void check_file_options(const FileOptions& files) {
  if (files.block_bytes == 0 || files.block_bytes > limits::kBlockBytes) {
    throw usage(fmt::format("Options::files.block_bytes is {}; give 1 to {}, since a reader holds a block in memory",
                            files.block_bytes, limits::kBlockBytes));
  }
  if (files.align_bytes < 8 || files.align_bytes > limits::kAlignBytes || !std::has_single_bit(files.align_bytes)) {
    throw usage(fmt::format("Options::files.align_bytes is {}; give a power of two from 8 to {}", files.align_bytes,
                            limits::kAlignBytes));
  }
  check_texts(files.metadata, "Options::files.metadata");
  for (const auto& [key, value] : files.metadata) {
    if (!key.starts_with("cairn.") && key != interop::kDcpShardingInfoKey) continue;
    throw usage(fmt::format("Options::files.metadata: the key '{}' says how a file holds its tensors; take another one",
                            base::printable(key)));
  }
}

void check_texts(const std::map<std::string, std::string>& texts, const char* what) {
  for (const auto& [key, value] : texts) {
    check_utf8(key, fmt::format("{}: key", what));
    check_utf8(value, fmt::format("{}: the value of '{}',", what, base::printable(key)));
  }
}

void check_run_id(const std::string& run_id) {
  check_utf8(run_id, "Options::run_id");
  if (run_id.size() <= limits::kRunIdBytes) return;
  throw usage(fmt::format("Options::run_id has {} bytes; give at most {}", run_id.size(), limits::kRunIdBytes));
}

void check_carried_name(const std::string& name) {
  const auto refuse = [&](const std::string& why) {
    return usage(fmt::format("'{}' cannot be carried along: {}", base::printable(name), why));
  };
  if (name.size() > limits::kFileNameBytes) {
    throw refuse(fmt::format("the name has {} bytes, and files have at most {}", name.size(), limits::kFileNameBytes));
  }
  if (!base::is_utf8(name)) throw refuse("the name is not UTF-8");
  if (name.find('/') != std::string::npos) throw refuse("the name has a folder");
  if (!names_a_file(name)) {
    throw refuse(
        "it is empty, '.' or '..', or has a backslash, a drive letter or a NUL, so that it names no file "
        "everywhere");
  }
  if (interop::is_cairn_file(base::lower(name))) throw refuse("the name is Cairn's own");
  const interop::FileKind kind = interop::file_kind(name);
  if (interop::is_data_name(name) || interop::set_of_index(name) || kind == interop::FileKind::kPickle) {
    throw refuse("a reader would take it for tensors of this checkpoint");
  }
  if (kind == interop::FileKind::kMark) {
    throw refuse("it says that another system's save has ended, and a reader would look for those of the other ranks");
  }
}

void check_taken_names(const plan::Catalog& catalog, std::span<const std::string> carried) {
  for (const std::string& name : carried) check_carried_name(name);
  for (const plan::CatalogTensor& tensor : catalog.tensors) {
    if (names_a_file(tensor.section)) continue;
    throw usage(fmt::format(
        "section '{}' cannot be taken over, since it names files: it is not UTF-8, is empty, '.' or '..', or "
        "has a slash, a backslash, a drive letter or a NUL; rename its files in the source",
        base::printable(tensor.section)));
  }
}

void check_block_table(std::span<const plan::DataFile> files, std::uint64_t block_bytes) {
  format::BlockTableSize size(block_bytes);
  for (const plan::DataFile& file : files) size.add(file.name.size(), file.size_bytes);
  if (size.bytes() <= limits::kBlockTableBytes) return;
  throw usage(
      fmt::format("the checksums of blocks of {} bytes would take {} bytes, above the limit of {}; make "
                  "Options::files.block_bytes larger",
                  block_bytes, size.bytes(), limits::kBlockTableBytes));
}

void check_index(std::string_view name, std::uint64_t bytes) {
  if (bytes <= limits::kIndexBytes) return;
  throw usage(
      fmt::format("{} would have {} bytes, above the limit of {}; give the tensors shorter names, or spread them "
                  "over several sections",
                  base::printable(name), bytes, limits::kIndexBytes));
}

void check_manifest(format::Manifest manifest, std::span<const plan::DataFile> files,
                    std::span<const std::string> carried, const char* of_user) {
  check_run_id(manifest.run_id);
  check_utf8(manifest.layout, "Extras::layout");
  check_texts(manifest.user_metadata, of_user);
  for (const auto& [name, value] : manifest.metrics) check_utf8(name, "a name in Extras::metrics");
  for (const plan::DataFile& file : files) manifest.data_files.push_back({file.name, file.section, file.size_bytes, 0});
  constexpr std::uint64_t kLongestSize = std::numeric_limits<std::uint64_t>::max();
  for (const std::string& name : carried) manifest.carried_files.push_back({name, "", kLongestSize, 0});
  const std::uint64_t bytes = format::encode_manifest(manifest).size();
  if (bytes <= limits::kManifestBytes) return;
  std::uint64_t user_bytes = 0;
  for (const auto& [key, value] : manifest.user_metadata) user_bytes += key.size() + value.size();
  throw usage(
      fmt::format("cairn.json would have {} bytes, above the limit of {}: {} has {} of them, "
                  "Extras::layout {}, and {} are listed; carry large texts as files (Extras::carry_texts)",
                  bytes, limits::kManifestBytes, of_user, user_bytes, manifest.layout.size(),
                  base::counted(files.size() + carried.size(), "file")));
}

}  // namespace cairn::planning
