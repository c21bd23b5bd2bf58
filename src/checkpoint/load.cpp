#include "checkpoint/load.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "base/internal_error.hpp"
#include "cairn/error.hpp"
#include "checkpoint/file_reader.hpp"
#include "checkpoint/read_plan.hpp"
#include "codes/decoder.hpp"
#include "comm/agree.hpp"
#include "format/blocks.hpp"
#include "opening/written_blocks.hpp"

namespace cairn::checkpoint {
namespace {

/// Half of the budget, or smallest_budget() if that is more, but at most the whole budget: an error about a budget that
/// is too small then names the whole budget.
std::uint64_t reading_bytes(std::uint64_t budget_bytes, const opening::OpenCheckpoint& checkpoint) {
  const std::uint64_t block_bytes = checkpoint.blocks ? checkpoint.blocks->block_bytes() : format::kDefaultBlockBytes;
  return std::max(budget_bytes / 2, std::min(budget_bytes, smallest_budget(block_bytes)));
}

}  // namespace

ReadOptions read_options(const Options& options) {
  return {options.engine.name, options.limits.memory_budget_bytes, options.engine.hints,
          options.engine.aggregators_per_node, opening::allowed_by(options)};
}

TensorReader::TensorReader(comm::Communicator& communicator, const opening::OpenCheckpoint& checkpoint,
                           const codes::View* view, ReadOptions options, EngineChoice engine)
    : communicator_(communicator),
      checkpoint_(checkpoint),
      view_(view != nullptr && view->as_stored ? nullptr : view),
      decoding_bytes_(options.decoding_bytes.value_or(options.memory_budget_bytes / 2)),
      device_(device_share(options.memory_budget_bytes)),
      options_(std::move(options)),
      engine_(std::move(engine)) {
  if (view_ == nullptr || options_.decoding_bytes) return;
  options_.memory_budget_bytes = reading_bytes(options_.memory_budget_bytes, checkpoint);
}

codes::Decoder TensorReader::decoder_of(std::span<const plan::MemoryBox> wanted, codes::Decoder::Purpose purpose) {
  return {checkpoint_, *view_, wanted, decoding_bytes_, device_, purpose};
}

/// Rank-local. A planner serves one of the caller's batches and cannot go back; otherwise a new planner is made.
std::vector<plan::MemoryBox> TensorReader::stored_boxes(std::uint64_t stored_batch) {
  const auto after = std::upper_bound(first_.begin(), first_.end(), stored_batch);
  const auto batch = static_cast<std::uint64_t>(after - first_.begin()) - 1;
  if (!planner_ || planner_->batch != batch || planner_->next > stored_batch) {
    planner_.emplace(
        Planner{batch, first_[batch], decoder_of(wanted_.boxes(batch), codes::Decoder::Purpose::kPlanning)});
  }
  for (; planner_->next < stored_batch; ++planner_->next) static_cast<void>(planner_->decoder.next_batch());
  ++planner_->next;
  const std::span<const plan::MemoryBox> boxes = planner_->decoder.next_batch();
  return {boxes.begin(), boxes.end()};
}

void TensorReader::begin(Wanted wanted) {
  if (view_ == nullptr) return begin_stored(std::move(wanted));
  Call call(communicator_, clock_);
  call.begin("plan");
  comm::agree(communicator_, "plan what to decode", [&] {
    wanted_ = std::move(wanted);
    next_ = 0;
    planner_.reset();
    first_.assign(wanted_.batches + 1, 0);
    for (std::uint64_t batch = 0; batch < wanted_.batches; ++batch) {
      codes::Decoder decoder = decoder_of(wanted_.boxes(batch), codes::Decoder::Purpose::kPlanning);
      for (; !decoder.is_done(); ++first_[batch + 1]) static_cast<void>(decoder.next_batch());
    }
  });
  communicator_.all_reduce(first_, comm::ReduceOp::kMax);  // the number of stored batches on the rank that has the most
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
  begin_stored({first_.back(), [this](std::uint64_t stored_batch) { return stored_boxes(stored_batch); }});
  call.stop();
}

void TensorReader::load_next(std::span<const plan::MemoryBox> wanted) {
  Call call(communicator_, clock_);
  if (view_ == nullptr) return load_stored(wanted, call);
  std::optional<codes::Decoder> decoder;
  std::span<const plan::MemoryBox> stored;
  comm::agree(communicator_, "plan what to decode",
              [&] { decoder.emplace(decoder_of(wanted, codes::Decoder::Purpose::kDecoding)); });
  const std::uint64_t batch = next_++;
  for (std::uint64_t number = first_.at(batch); number < first_.at(batch + 1); ++number) {
    comm::agree(communicator_, "plan what to decode", [&] { stored = decoder->next_batch(); });
    load_stored(stored, call);
    planner_.reset();
    call.begin("decode");
    try {
      comm::agree(communicator_, "decode", [&] { call.add_bytes(decoder->finish_batch()); });
    } catch (const comm::AgreedError&) {
      close_after_error();
      throw;
    }
    call.stop();
  }
}

void TensorReader::load(std::span<const plan::MemoryBox> wanted) {
  begin({1, [wanted](std::uint64_t) { return Boxes(wanted); }});
  load_next(wanted);
}

Loader::Loader(comm::Communicator& communicator, const opening::OpenCheckpoint& checkpoint, const codes::View* view,
               ReadOptions options, io::WindowStore* windows)
    : TensorReader(communicator, checkpoint, view, options,
                   choose_engine(communicator, {options.engine, options.aggregators_per_node}, checkpoint.directory)),
      windows_(windows != nullptr ? *windows : own_windows_) {}

namespace {

/// Memory for bytes of a batch that come with the windows of the previous batch. For each box, it reaches to the last
/// of these bytes, but is only touched where bytes arrive.
class EarlyBytes {
 public:
  EarlyBytes() = default;
  explicit EarlyBytes(std::span<const plan::Runs> early) {
    for (const plan::Runs& runs : early) {
      if (runs.local >= sizes_.size()) sizes_.resize(runs.local + std::size_t{1}, 0);
      sizes_[runs.local] = std::max(sizes_[runs.local], runs.memory_end());
    }
    for (const std::uint64_t bytes : sizes_) memory_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
  }

  [[nodiscard]] bool empty() const { return sizes_.empty(); }
  void append_to(std::vector<plan::MemoryBox>& boxes) const {
    for (std::size_t i = 0; i < sizes_.size(); ++i) boxes.push_back({0, {}, {memory_[i].get(), sizes_[i]}});
  }
  /// Copies the bytes that have arrived to their boxes. `extents`: extents of the previous batch.
  void copy_to(std::span<const plan::MemoryBox> boxes, std::span<const plan::Runs> early,
               const plan::ExtentMap& extents) const {
    for (const plan::Runs& runs : early) {
      if (runs.local >= boxes.size() || boxes[runs.local].bytes.size() < runs.memory_end()) {
        throw base::internal_error("memory box " + std::to_string(runs.local) + " is not as it was planned");
      }
      std::byte* const to = boxes[runs.local].bytes.data();
      const std::byte* const from = memory_[runs.local].get();
      for_each_extent_of(runs, extents, [&](std::uint64_t begin, std::uint64_t end) {
        plan::for_each_run(runs, begin, end, [&](const plan::Run& run) {
          std::memcpy(to + run.memory_offset, from + run.memory_offset, run.length_bytes);
        });
      });
    }
  }

 private:
  std::vector<std::uint64_t> sizes_;  ///< by box
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

}  // namespace

namespace {

std::uint64_t bypass_bytes_of(const ReadPlan& plan) {
  std::uint64_t bytes = 0;
  for (const auto& bypass : plan.bypass) {
    if (!bypass) continue;
    for (const plan::FileRange& range : bypass->ranges) bytes += range.end - range.begin;
  }
  return bytes;
}

}  // namespace

/// The member `files` refers to the members before it.
struct Loader::Reading {
  Reading(comm::Communicator& communicator, const opening::OpenCheckpoint& checkpoint, ReadPlan planned)
      : plan(std::move(planned)),
        written(checkpoint),
        files(communicator, {checkpoint, plan::ExtentMaps(plan.extents), plan.rounds.windows, plan.rounds.count(),
                             *plan.buffers, bypass_bytes_of(plan)}) {}
  ReadPlan plan;
  opening::WrittenBlocks written;
  FileReader files;
  std::optional<io::Exchange> exchange;
  std::vector<std::vector<plan::Runs>> early;  ///< as in ReadTransfers
  EarlyBytes arriving;                         ///< early bytes of the next batch
};

Loader::~Loader() = default;

void Loader::close_after_error() noexcept {
  if (reading_) reading_->files.close_after_error();
}

void Loader::begin_stored(Wanted wanted) {
  stored_ = std::move(wanted);
  next_stored_ = 0;
  planned_end_ = 0;
  reading_.reset();
}

// The load of a batch, the mirror of Saver::save(): begin_reading() plans and opens, read_batch() has the loop. The
// blocks that any rank wants are assigned to ranks, as extents, and read in windows, several rounds ahead. Round by
// round each rank compares the blocks of its window with their checksums, and sends the bytes of its window to the
// ranks that want them (scatter). Between two collective calls nothing fails on one rank alone: the ranks agree on
// anything that may fail.
void Loader::load_stored(std::span<const plan::MemoryBox> wanted, Call& call) {
  try {
    if (next_stored_ == planned_end_) begin_reading(call);
    const std::uint64_t batch = next_stored_++;
    if (reading_) {
      read_batch(batch, wanted, call);
      if (next_stored_ == planned_end_) {
        call.begin("open");
        reading_->files.close();
        reading_.reset();
      }
    }
  } catch (const comm::AgreedError&) {  // all ranks come here; a rank that unwinds alone must not close shared files
    close_after_error();
    throw;
  }
  call.stop();
}

/// Collective: plans the next batches, opens the files, and begins to read.
/// If no rank wants a byte of these batches, only plans.
void Loader::begin_reading(Call& call) {
  call.begin("plan");
  ReadPlan planned = make_read_plan(communicator_, checkpoint_, stored_, next_stored_,
                                    {options_.memory_budget_bytes, engine_, windows_, device_});
  planned_end_ = planned.end;
  if (!planned.buffers) return;
  comm::agree(communicator_, "plan the load",
              [&] { reading_ = std::make_unique<Reading>(communicator_, checkpoint_, std::move(planned)); });
  call.begin("open");
  reading_->files.open(engine_.name, options_.hints);
  comm::agree(communicator_, "note hints", [&] { engine_.hints = reading_->files.hints(); });
  call.begin("read");
  reading_->files.read_ahead();
  call.begin("plan");  // while the first windows are read
  const ReadPlan& plan = reading_->plan;
  ReadTransfers transfers = make_transfers(communicator_, checkpoint_, stored_, plan);
  reading_->early = std::move(transfers.early);
  reading_->exchange.emplace(communicator_, checkpoint_.stored.files, plan::ExtentMaps(plan.extents),
                             plan.budget.window_bytes, *plan.buffers, std::move(transfers.of_windows),
                             io::ExchangeOptions{plan.budget.exchange_bytes, plan.device});
}

/// Collective.
void Loader::read_batch(std::uint64_t batch, std::span<const plan::MemoryBox> wanted, Call& call) {
  Reading& reading = *reading_;
  const ReadPlan& plan = reading.plan;
  const std::size_t number = batch - plan.first;
  std::vector<plan::MemoryBox> both;  // this batch's boxes, and memory for early bytes of the next batch
  std::span<const plan::MemoryBox> memory = wanted;
  comm::agree(communicator_, "make room for the next batch", [&] {
    if (number != 0) reading.arriving.copy_to(wanted, reading.early[number], plan.extents[number - 1]);
    reading.arriving = number + 1 == reading.early.size() ? EarlyBytes() : EarlyBytes(reading.early[number + 1]);
    if (reading.arriving.empty()) return;
    both.assign(wanted.begin(), wanted.end());
    reading.arriving.append_to(both);
    memory = both;
  });
  if (plan.bypass[number]) reading.files.read_bypass(*plan.bypass[number], reading.written, {wanted, &device_}, call);
  for (std::uint64_t round = plan.rounds.first[number]; round < plan.rounds.first[number + 1]; ++round) {
    call.begin("read");
    const io::WindowBuffer window = reading.files.wait_for_window(round);
    if (window.window != nullptr) call.add_bytes(window.window->bytes);
    call.begin("verify");
    comm::agree(communicator_, "verify", [&] {
      if (window.window != nullptr) call.add_bytes(reading.written.check(*window.window, window.buffer));
    });
    call.begin("scatter");
    call.add_bytes(reading.exchange->scatter(round, memory));
  }
}

}  // namespace cairn::checkpoint
