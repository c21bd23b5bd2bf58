#include "cli/plan_world.hpp"

#include <algorithm>
#include <span>

#include "base/checked.hpp"
#include "bench/shards_of.hpp"
#include "checkpoint/engine_choice.hpp"
#include "plan/transfers.hpp"

namespace cairn::cli {
namespace {

constexpr std::size_t kChunkBytes = 1 << 20;

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

}  // namespace

MessageLog::MessageLog(int ranks)
    : boxes_(static_cast<std::size_t>(ranks)), is_kept_(boxes_.size(), true), volumes_(boxes_.size()) {}

void MessageLog::keep_only(const std::vector<int>& ranks) {
  is_kept_.assign(is_kept_.size(), false);
  for (const int rank : ranks) is_kept_.at(static_cast<std::size_t>(rank)) = true;
}

std::uint32_t MessageLog::number_of(const base::Bytes& content) {
  const std::string_view text(reinterpret_cast<const char*>(content.data()), content.size());
  if (const auto known = number_of_content_.find(text); known != number_of_content_.end()) return known->second;
  if (chunks_.empty() || chunks_.back().capacity() - chunks_.back().size() < content.size()) {
    chunks_.emplace_back().reserve(std::max(kChunkBytes, content.size()));
  }
  base::Bytes& chunk = chunks_.back();  // never grows beyond what it has reserved: views stay good
  const auto begin = chunk.insert(chunk.end(), content.begin(), content.end());
  const auto number = base::narrow<std::uint32_t>(contents_.size(), "number of messages");
  contents_.emplace_back(reinterpret_cast<const char*>(&*begin), content.size());
  number_of_content_.emplace(contents_.back(), number);
  return number;
}

void MessageLog::post(int from, const comm::Messages& outgoing) {
  const auto sender = static_cast<std::size_t>(from);
  for (std::size_t to = 0; to < outgoing.size(); ++to) {
    if (outgoing[to].empty()) continue;
    if (to != sender) {
      volumes_[sender].sent_bytes += outgoing[to].size();
      volumes_[to].received_bytes += outgoing[to].size();
    }
    if (is_kept_[to]) boxes_[to].push_back({static_cast<std::uint32_t>(from), number_of(outgoing[to])});
  }
}

comm::Messages MessageLog::deliver(int to) const {
  comm::Messages messages(boxes_.size());
  for (const Letter& letter : boxes_.at(static_cast<std::size_t>(to))) {
    const std::span<const std::byte> content = base::as_bytes(contents_[letter.content]);
    messages[letter.from].assign(content.begin(), content.end());
  }
  return messages;
}

std::vector<Source> sources_of(const PlanInput& input, std::span<const shard::HeldTensor> held) {
  static const std::byte nowhere{};
  std::vector<Source> sources;
  sources.reserve(held.size());
  for (const shard::HeldTensor& tensor : held) {
    sources.push_back(bench::shard_of<Source>(input.state, tensor));
    sources.back().data = &nowhere;
  }
  return sources;
}

comm::Messages records_of(const std::vector<plan::Runs>& transfers, int ranks) {
  comm::Messages messages(index(ranks));
  for (const plan::Runs& runs : transfers) plan::append_runs(messages[index(runs.file_rank)], runs);
  return messages;
}

std::uint64_t window_bytes_of(const plan::ExtentMap& extents, const Options& options) {
  return checkpoint::split_budget(options.limits.memory_budget_bytes, options.files.block_bytes)
      .fitted_to(extents)
      .window_bytes;
}

std::vector<plan::Window> windows_of(int rank, const plan::ExtentMap& extents, const Options& options) {
  return plan::cut_windows(extents.of(rank), window_bytes_of(extents, options), options.files.block_bytes);
}

}  // namespace cairn::cli
