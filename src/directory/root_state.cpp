#include "directory/root_state.hpp"

#include <charconv>
#include <string>

#include "base/bytes.hpp"
#include "base/json.hpp"
#include "directory/lease_folder.hpp"
#include "directory/root.hpp"
#include "os/file.hpp"

namespace cairn::checkpoint {
namespace {

constexpr const char* kLatestWritten = "latest_written";
constexpr std::uint64_t kMaxStateBytes = 1 << 20;
constexpr std::uint64_t kMaxLatestBytes = 64;

base::Json read_document(const std::filesystem::path& root) noexcept {
  try {
    const auto path = root / kLeaseDirectory / kRootStateFile;
    base::Json document = base::Json::parse(os::read_text(path, kMaxStateBytes), path.string());
    if (document.is_object()) return document;
  } catch (const std::exception&) {
    // Missing or damaged: as if it said nothing.
  }
  return base::Json::object();
}

}  // namespace

RootState read_root_state(const std::filesystem::path& root) noexcept {
  RootState state;
  const base::Json document = read_document(root);
  const base::Json* latest = document.find(kLatestWritten);
  if (latest != nullptr && latest->is_number_unsigned()) state.latest_written = latest->whole_number();
  return state;
}

void note_latest(const std::filesystem::path& root, std::uint64_t step) {
  base::Json document = read_document(root);
  document[kLatestWritten] = step;
  const std::string text = base::python_json(document);
  os::replace_file(root / kLeaseDirectory / kRootStateFile, base::as_bytes(text));
}

std::optional<std::uint64_t> read_latest_file(const std::filesystem::path& root) noexcept {
  try {
    std::string text = os::read_text(root / kLatestFile, kMaxLatestBytes);
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
    std::uint64_t step = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), step);
    if (!text.empty() && status == std::errc() && end == text.data() + text.size()) return step;
  } catch (const std::exception&) {
    // Missing, or not a file: it names nothing.
  }
  return std::nullopt;
}

}  // namespace cairn::checkpoint
