// The rule of huggingface_hub, step for step and quirks included: what is too large takes the next number at once, before
// the file that is still open, and tied tensors come last in the file that holds the first of them.
#include "format/hf_split.hpp"

#include <fmt/core.h>

#include <unordered_map>
#include <utility>

#include "base/text.hpp"
#include "cairn/error.hpp"

namespace cairn::format {
namespace {

constexpr std::size_t kNoFile = static_cast<std::size_t>(-1);

/// Items that share memory with an earlier one, in the order in which their first items appear.
struct Tied {
  std::size_t first;
  std::vector<std::size_t> rest;
};

}  // namespace

std::vector<std::vector<std::size_t>> split_hf(std::span<const SplitItem> items, std::uint64_t max_bytes) {
  std::vector<std::vector<std::size_t>> files;
  std::vector<std::size_t> open;
  std::uint64_t open_bytes = 0;
  std::vector<Tied> tied;
  std::unordered_map<std::int64_t, std::size_t> tied_of_storage;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const SplitItem& item = items[i];
    if (item.storage >= 0) {
      const auto [known, fresh] = tied_of_storage.try_emplace(item.storage, tied.size());
      if (!fresh) {
        tied[known->second].rest.push_back(i);
        continue;
      }
      tied.push_back({i, {}});
    }
    if (item.bytes > max_bytes) {
      files.push_back({i});
      continue;
    }
    if (item.bytes > max_bytes - open_bytes) {
      files.push_back(std::exchange(open, {}));
      open_bytes = 0;
    }
    open.push_back(i);
    open_bytes += item.bytes;
  }
  if (!open.empty()) files.push_back(std::move(open));

  std::vector<std::size_t> file_of(items.size(), kNoFile);
  for (std::size_t f = 0; f < files.size(); ++f) {
    for (const std::size_t i : files[f]) file_of[i] = f;
  }
  for (const Tied& group : tied) {
    auto& file = files[file_of[group.first]];
    file.insert(file.end(), group.rest.begin(), group.rest.end());
  }
  return files;
}

std::string hf_file_name(std::string_view stem, std::size_t index, std::size_t count) {
  if (index >= count) {
    throw Error(ErrorKind::kInternal,
                fmt::format("file {} of {} of '{}' does not exist", index, count, base::printable(stem)));
  }
  if (count == 1) return fmt::format("{}.safetensors", stem);
  return fmt::format("{}-{:05d}-of-{:05d}.safetensors", stem, index + 1, count);
}

}  // namespace cairn::format
