#include "checkpoint/step_before.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/mix.hpp"
#include "base/text.hpp"
#include "comm/agree.hpp"

namespace cairn::checkpoint {
namespace {

/// Number of consecutive blocks of a file that belong to one rank.
constexpr std::uint64_t kRunBlocks = 64;

/// Calls visit(first, end) for the runs of blocks of a file that are in the share.
template <class Visit>
void for_each_run(std::uint64_t file_hash, std::uint64_t blocks, StepBefore::Share share, const Visit& visit) {
  const auto ranks = static_cast<std::uint64_t>(share.ranks);
  const auto rank = static_cast<std::uint64_t>(share.rank);
  for (std::uint64_t run = (rank + ranks - file_hash % ranks) % ranks; run * kRunBlocks < blocks; run += ranks) {
    visit(run * kRunBlocks, std::min((run + 1) * kRunBlocks, blocks));
  }
}

std::uint32_t crc_of(const format::FileBlocks& file, std::uint64_t block) { return file.crcs[block]; }
std::string_view name_of(const format::FileBlocks& file) { return file.name; }
std::uint64_t size_of(const format::FileBlocks& file) { return file.size_bytes; }
std::uint32_t crc_of(const format::BlockRow& row, std::uint64_t block) { return row.crc(block); }
std::string_view name_of(const format::BlockRow& row) { return row.name(); }
std::uint64_t size_of(const format::BlockRow& row) { return row.size_bytes(); }

}  // namespace

StepBefore::StepBefore(std::uint64_t step, const format::BlockTable& table, Share share)
    : step_(step), block_bytes_(table.block_bytes), share_(share) {
  keep_share(table.files);
}

StepBefore::StepBefore(std::uint64_t step, const format::BlockRows& rows, Share share)
    : step_(step), block_bytes_(rows.block_bytes()), share_(share) {
  keep_share(rows.files());
}

template <class Table>
void StepBefore::keep_share(const Table& files) {
  files_.reserve(files.size());
  for (const auto& file : files) {
    const std::uint64_t hash = base::hash_text(name_of(file));
    File& kept = files_[hash];
    kept.size_bytes = size_of(file);
    const std::uint64_t blocks = kept.size_bytes / block_bytes_ + (kept.size_bytes % block_bytes_ == 0 ? 0 : 1);
    for_each_run(hash, blocks, share_, [&](std::uint64_t first, std::uint64_t end) {
      for (std::uint64_t block = first; block < end; ++block) kept.crcs.push_back(crc_of(file, block));
    });
    kept.crcs.shrink_to_fit();
  }
}

StepBefore::Unchanged StepBefore::unchanged_of(const format::FileBlocks& file) const {
  const std::uint64_t hash = base::hash_text(file.name);
  const auto before = files_.find(hash);
  if (before == files_.end() || before->second.size_bytes != file.size_bytes) return {};
  Unchanged unchanged;
  std::size_t at = 0;
  for_each_run(hash, file.crcs.size(), share_, [&](std::uint64_t first, std::uint64_t end) {
    for (std::uint64_t block = first; block < end; ++block) {
      if (before->second.crcs.at(at++) != file.crcs[block]) continue;
      ++unchanged.blocks;
      unchanged.bytes += std::min(block_bytes_, file.size_bytes - block * block_bytes_);
    }
  });
  return unchanged;
}

std::vector<SectionChange> changes_since(comm::Communicator& communicator, const StepBefore& before,
                                         const plan::FileLayout& layout, const format::BlockTable& table) {
  std::vector<SectionChange> changes;
  std::vector<std::uint64_t> unchanged;  // bytes and blocks of each section
  comm::agree(communicator, "compare with the step before", [&] {
    for (std::size_t f = 0; f < layout.files.size(); ++f) {
      const std::string& section = layout.files[f].section;
      if (changes.empty() || changes.back().section != section) {  // a section's files follow each other
        changes.push_back({section, 0, 0, 0, 0});
        unchanged.resize(unchanged.size() + 2);
      }
      const format::FileBlocks& file = table.files[f];
      changes.back().bytes += file.size_bytes;
      changes.back().blocks += file.crcs.size();
      const StepBefore::Unchanged here = before.unchanged_of(file);
      unchanged[unchanged.size() - 2] += here.bytes;
      unchanged.back() += here.blocks;
    }
  });
  communicator.all_reduce(unchanged, comm::ReduceOp::kSum);
  for (std::size_t s = 0; s < changes.size(); ++s) {
    changes[s].unchanged_bytes = unchanged[2 * s];
    changes[s].unchanged_blocks = unchanged[2 * s + 1];
  }
  return changes;
}

std::string stale_words(const std::vector<SectionChange>& changes, const std::vector<std::string>& sections,
                        std::uint64_t step_before) {
  std::vector<std::string> stale;
  for (const SectionChange& change : changes) {
    const bool is_looked_at = std::ranges::find(sections, change.section) != sections.end();
    if (is_looked_at && change.unchanged_blocks == change.blocks) stale.push_back("'" + change.section + "'");
  }
  if (stale.empty()) return {};
  return fmt::format(
      "not a byte of {} {} has changed since step {}: is what is saved what was trained? Options::frozen names what "
      "does not change",
      stale.size() == 1 ? "section" : "sections", base::joined(stale), step_before);
}

}  // namespace cairn::checkpoint
