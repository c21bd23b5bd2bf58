#include "root/root_state.hpp"

#include <fmt/core.h>

#include "base/bytes.hpp"
#include "base/digits.hpp"
#include "base/json.hpp"
#include "base/log.hpp"
#include "cairn/error.hpp"
#include "format/limits.hpp"
#include "os/errno_class.hpp"
#include "os/file.hpp"
#include "root/lease_folder.hpp"

namespace cairn::root {
namespace {

constexpr const char* kLatestWritten = "latest_written";
constexpr const char* kRunId = "run_id";

/// Whether the file is missing or damaged. Other errors may be temporary, and the content then still counts.
bool says_nothing(const Error& error) { return os::class_of(error) == os::ErrnoClass::kOfFile; }

std::filesystem::path path_in(const std::filesystem::path& root) { return root / kLeaseDirectory / kRootStateFile; }

/// Null for a missing or damaged file.
base::Json read_if_good(const std::filesystem::path& root) {
  try {
    const auto path = path_in(root);
    base::Json document = base::Json::parse(os::read_text(path, format::limits::kRootStateBytes), path.string());
    if (document.is_object()) return document;
  } catch (const Error& error) {
    if (!says_nothing(error)) throw;
  }
  return {};
}

base::Json read_document(const std::filesystem::path& root) {
  base::Json document = read_if_good(root);
  return document.is_null() ? base::Json::object() : document;
}

void write_document(const std::filesystem::path& root, const base::Json& document) {
  const std::string text = base::python_json(document);
  os::replace_file(path_in(root), base::as_bytes(text));
}

}  // namespace

RootState read_root_state(const std::filesystem::path& root) {
  RootState state;
  const base::Json document = read_document(root);
  const base::Json* latest = document.find(kLatestWritten);
  if (latest != nullptr && latest->is_number_unsigned()) state.latest_written = latest->whole_number();
  const base::Json* run = document.find(kRunId);
  if (run != nullptr && run->is_string()) state.run_id = run->text();
  return state;
}

void note_latest(const std::filesystem::path& root, std::uint64_t step, const std::string& run_id) {
  base::Json document = read_document(root);
  document[kLatestWritten] = step;
  document[kRunId] = run_id;
  write_document(root, document);
}

std::string problem_of_root_state(const std::filesystem::path& root) {
  if (!os::is_name_taken(path_in(root))) return "is missing";
  return read_if_good(root).is_null() ? "is damaged" : "";
}

void remake_root_state(const std::filesystem::path& root, const RootState& state) {
  base::Json document = base::Json::object();
  if (state.latest_written) document[kLatestWritten] = *state.latest_written;
  document[kRunId] = state.run_id;
  write_document(root, document);
}

std::optional<std::uint64_t> read_latest_file(const std::filesystem::path& root) {
  const auto path = root / kLatestFile;
  std::string problem = "it holds no number of a step";
  try {
    std::string text = os::read_text(path, format::limits::kLatestFileBytes);
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
    if (const auto step = base::number_in<std::uint64_t>(text)) return step;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kNotFound) return std::nullopt;
    if (!says_nothing(error)) throw;
    problem = error.what();
  }
  base::log_warning(fmt::format("'{}' is not followed: {}", os::shown(path), problem));
  return std::nullopt;
}

}  // namespace cairn::root
