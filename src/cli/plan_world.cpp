#include "cli/plan_world.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <span>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "bench/shards_of.hpp"
#include "cairn/error.hpp"
#include "checkpoint/engine_choice.hpp"
#include "checkpoint/window_io.hpp"
#include "planning/layout_steps.hpp"

namespace cairn::cli {
namespace {

constexpr std::size_t kChunkBytes = 1 << 20;

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

namespace {

/// Bytes of a transfer that lie in the extents of its aggregator.
std::uint64_t bytes_of(const plan::Runs& runs, std::span<const plan::Extent> extents) {
  std::uint64_t bytes = 0;
  for (const plan::Extent& extent : extents) {
    if (extent.file == runs.file) bytes += runs.bytes_before(extent.end) - runs.bytes_before(extent.begin);
  }
  return bytes;
}

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

}  // namespace

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

plan::ExtentMap assign_to_all(const plan::HfLayout& files, const plan::FileLayout& layout, int ranks,
                              std::uint64_t block_bytes) {
  return {plan::whole_files(checkpoint::file_sizes(layout.stored)), ranks, block_bytes,
          plan::Assignment{{}, files.section_of_files()}};
}

PlanWorld::PlanWorld(const PlanInput& input)
    : input_(input), ranks_(input.map.layout().world_size()), messages_(ranks_), traffic_(index(ranks_)) {
  exchange_catalog();
  lay_out();
  exchange_claims();
  count_extents();
  for (int rank = 0; rank < ranks_; ++rank) count_transfers(rank, transfers_of(rank));
  check_sums();
}

PlanWorld::Described PlanWorld::describe(int rank) const {
  const std::vector<shard::HeldTensor> held = input_.map.held_by(rank);
  Described described{sources_of(input_, held), {}, {}};
  described.boxes = checkpoint::memory_boxes(std::span<const Source>(described.sources));
  if (number_of_tensor_.empty()) return described;  // there is no catalog yet
  for (const shard::HeldTensor& tensor : held) described.tensor_of_shard.push_back(number_of_tensor_[tensor.tensor]);
  return described;
}

void PlanWorld::exchange_catalog() {
  for (int rank = 0; rank < ranks_; ++rank) {
    const Described described = describe(rank);
    checkpoint::check_shards(std::span<const Source>(described.sources));
    for (const plan::MemoryBox& box : described.boxes) traffic_[index(rank)].held_bytes += box.bytes.size();
    messages_.descriptions.post(rank, checkpoint::describe_to_homes({described.sources}, rank, ranks_));
  }
  std::vector<std::vector<plan::CatalogTensor>> homed;
  for (int rank = 0; rank < ranks_; ++rank) {
    homed.push_back(checkpoint::merge_described(messages_.descriptions.deliver(rank)));
    messages_.samples.push_back(checkpoint::sample_names(homed.back(), rank, ranks_));
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    if (homed[index(rank)].empty()) continue;
    messages_.spread.post(rank, checkpoint::spread_in_order(homed[index(rank)], messages_.samples));
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    messages_.stretches.push_back(checkpoint::pack_stretch(messages_.spread.deliver(rank)));
  }
}

void PlanWorld::lay_out() {
  const Options& options = input_.options;
  files_ = std::make_unique<plan::HfLayout>(
      plan::PackedCatalog(messages_.stretches),
      plan::LayoutOptions{options.files.max_bytes, options.files.align_bytes, options.files.metadata});
  for (int rank = 0; rank < ranks_; ++rank) {
    messages_.header_shares.push_back(checkpoint::header_sizes_of_share(*files_, rank, ranks_));
    messages_.index_shares.push_back(checkpoint::indexes_of_share(*files_, rank, ranks_));
  }
  for (std::size_t i = 0; i < input_.state.tensors.size(); ++i) {
    const auto number = files_->catalog().find(input_.state.sections[i], input_.state.tensors[i].name);
    if (!number) {
      throw Error(ErrorKind::kState, fmt::format("tensor '{}' (section {}) is held by no rank",
                                                 base::printable(input_.state.tensors[i].name),
                                                 base::printable(input_.state.sections[i])));
    }
    number_of_tensor_.push_back(*number);
  }
  layout_ = files_->without_content(checkpoint::join_header_sizes(*files_, messages_.header_shares));
  layout_.stored.tensors.resize(files_->catalog().size());
  for (std::uint32_t file = 0; file < files_->files(); ++file) {
    files_->add_file(layout_, file, files_->header_of(file));
  }
  extents_ = std::make_unique<plan::ExtentMap>(assign_to_all(*files_, layout_, ranks_, options.files.block_bytes));
}

void PlanWorld::exchange_claims() {
  for (int rank = 0; rank < ranks_; ++rank) {
    const Described described = describe(rank);
    messages_.claims.post(rank, checkpoint::claim_boxes(described.boxes, described.tensor_of_shard, rank, ranks_));
  }
  const int homes = static_cast<int>(std::min<std::uint64_t>(index(ranks_), files_->catalog().size()));
  for (int home = 0; home < homes; ++home) {
    messages_.provisions.post(home, checkpoint::settle_claims(files_->catalog(), messages_.claims.deliver(home), home));
  }
}

void PlanWorld::count_extents() {
  for (int rank = 0; rank < ranks_; ++rank) {
    RankTraffic& traffic = traffic_[index(rank)];
    for (const plan::Extent& extent : extents_->of(rank)) {
      ++traffic.extents;
      traffic.extent_bytes += extent.end - extent.begin;
    }
    rounds_ = std::max(rounds_, windows_of(rank, *extents_, input_.options).size());
  }
}

std::uint64_t window_bytes_of(const plan::ExtentMap& extents, const Options& options) {
  return checkpoint::split_budget(options.limits.memory_budget_bytes, options.files.block_bytes)
      .fitted_to(extents)
      .window_bytes;
}

std::vector<plan::Window> windows_of(int rank, const plan::ExtentMap& extents, const Options& options) {
  return plan::cut_windows(extents.of(rank), window_bytes_of(extents, options), options.files.block_bytes);
}

std::vector<plan::Runs> PlanWorld::transfers_of(int rank) const {
  const Described described = describe(rank);
  const auto pieces = checkpoint::collect_pieces(messages_.provisions.deliver(rank), rank);
  return plan::transfers_of_memory(pieces, described.boxes, layout_.stored, *extents_);
}

void PlanWorld::count_transfers(int rank, const std::vector<plan::Runs>& transfers) {
  RankTraffic& mine = traffic_[index(rank)];
  std::vector<plan::Extent> extents;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const int aggregator = transfers[i].file_rank;
    const bool is_next_aggregator = i == 0 || transfers[i - 1].file_rank != aggregator;
    if (is_next_aggregator) extents = extents_->of(aggregator);
    const std::uint64_t bytes = bytes_of(transfers[i], extents);
    RankTraffic& theirs = traffic_[index(aggregator)];
    ++mine.transfers;
    ++theirs.arriving;
    if (aggregator == rank) {
      mine.local_bytes += bytes;
      continue;
    }
    mine.sent_bytes += bytes;
    theirs.received_bytes += bytes;
    if (is_next_aggregator) ++mine.peers;
  }
}

void PlanWorld::check_sums() const {
  std::uint64_t provided = 0;
  std::uint64_t written = 0;
  for (const RankTraffic& traffic : traffic_) {
    provided += traffic.local_bytes + traffic.sent_bytes;
    written += traffic.extent_bytes;
  }
  if (provided == input_.state.bytes && written == extents_->total_bytes()) return;
  throw Error(ErrorKind::kInternal, fmt::format("the plan moves {} of {} bytes and writes {} of {}", provided,
                                                input_.state.bytes, written, extents_->total_bytes()));
}

void PlanWorld::keep_records(const std::vector<int>& ranks) {
  messages_.records.keep_only(ranks);
  for (int rank = 0; rank < ranks_; ++rank) messages_.records.post(rank, records_of(transfers_of(rank), ranks_));
}

}  // namespace cairn::cli
