#include "cli/plan_world.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <span>

#include "base/units.hpp"
#include "bench/shards_of.hpp"
#include "cairn/error.hpp"
#include "checkpoint/engine_choice.hpp"
#include "checkpoint/window_io.hpp"
#include "planning/claim_steps.hpp"
#include "planning/layout_steps.hpp"

namespace cairn::cli {
namespace {

/// Bytes of a transfer that lie in the extents of its owner.
std::uint64_t bytes_of(const plan::Transfer& transfer, const format::StoredCheckpoint& stored,
                       std::span<const plan::Extent> extents) {
  const std::uint32_t file = stored.tensors[transfer.tensor].boxes[transfer.stored].file;
  const plan::RunSpace space = plan::run_space(transfer, stored);
  std::uint64_t bytes = 0;
  for (const plan::Extent& extent : extents) {
    if (extent.file == file) bytes += plan::run_bytes(space, extent.begin, extent.end);
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

comm::Mail records_of(const std::vector<plan::Transfer>& transfers, int ranks) {
  comm::Mail mail(index(ranks));
  for (const plan::Transfer& transfer : transfers) plan::append_record(mail[index(transfer.extent_rank)], transfer);
  return mail;
}

plan::ExtentMap deal_to_all(const plan::HfLayout& files, const plan::FileLayout& layout, int ranks,
                            std::uint64_t block_bytes) {
  return {plan::whole_files(checkpoint::file_sizes(layout.stored)), ranks, block_bytes, {{}, files.section_of_files()}};
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
  described.boxes = checkpoint::local_boxes(std::span<const Source>(described.sources));
  if (number_of_tensor_.empty()) return described;  // there is no catalog yet
  for (const shard::HeldTensor& tensor : held) described.tensor_of_shard.push_back(number_of_tensor_[tensor.tensor]);
  return described;
}

void PlanWorld::exchange_catalog() {
  for (int rank = 0; rank < ranks_; ++rank) {
    const Described described = describe(rank);
    checkpoint::check_shards(std::span<const Source>(described.sources));
    for (const checkpoint::LocalBox& box : described.boxes) traffic_[index(rank)].held_bytes += box.bytes;
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
      plan::LayoutOptions{options.max_file_bytes, options.align_bytes, options.file_metadata});
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
  extents_ = std::make_unique<plan::ExtentMap>(deal_to_all(*files_, layout_, ranks_, options.block_bytes));
}

void PlanWorld::exchange_claims() {
  for (int rank = 0; rank < ranks_; ++rank) {
    const Described described = describe(rank);
    messages_.claims.post(rank, checkpoint::claim_boxes({described.boxes, described.tensor_of_shard}, ranks_));
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

std::vector<plan::Window> windows_of(int rank, const plan::ExtentMap& extents, const Options& options) {
  const auto budget = checkpoint::split_budget(options.memory_budget_bytes, options.block_bytes).fitted_to(extents);
  return plan::cut_windows(extents.of(rank), budget.window_bytes, options.block_bytes);
}

std::vector<plan::Transfer> PlanWorld::transfers_of(int rank) const {
  const Described described = describe(rank);
  const auto parts =
      checkpoint::collect_parts(messages_.provisions.deliver(rank), {described.boxes, described.tensor_of_shard});
  return plan::transfers_of_memory(rank, parts, layout_.stored, *extents_);
}

void PlanWorld::count_transfers(int rank, const std::vector<plan::Transfer>& transfers) {
  RankTraffic& mine = traffic_[index(rank)];
  std::vector<plan::Extent> extents;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const int owner = transfers[i].extent_rank;
    const bool is_next_owner = i == 0 || transfers[i - 1].extent_rank != owner;
    if (is_next_owner) extents = extents_->of(owner);
    const std::uint64_t bytes = bytes_of(transfers[i], layout_.stored, extents);
    RankTraffic& theirs = traffic_[index(owner)];
    ++mine.transfers;
    ++theirs.arriving;
    if (owner == rank) {
      mine.local_bytes += bytes;
      continue;
    }
    mine.sent_bytes += bytes;
    theirs.received_bytes += bytes;
    if (is_next_owner) ++mine.peers;
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
