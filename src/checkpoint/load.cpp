#include "checkpoint/load.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "checkpoint/file_reader.hpp"
#include "checkpoint/read_plan.hpp"
#include "codes/decoder.hpp"
#include "comm/agree.hpp"
#include "directory/written_blocks.hpp"
#include "format/blocks.hpp"

namespace cairn::checkpoint {
namespace {

/// Blocks must fit: a reader that has too little for them says so, and it should say so of the whole budget only.
std::uint64_t reading_bytes(std::uint64_t budget_bytes, const OpenCheckpoint& checkpoint) {
  const std::uint64_t block_bytes = checkpoint.blocks ? checkpoint.blocks->block_bytes : format::kDefaultBlockBytes;
  return std::max(budget_bytes / 2, std::min(budget_bytes, smallest_budget(block_bytes)));
}

}  // namespace

TensorReader::TensorReader(comm::Communicator& communicator, const OpenCheckpoint& checkpoint, const View* view,
                           ReadOptions options, EngineChoice engine)
    : communicator_(communicator),
      checkpoint_(checkpoint),
      view_(view != nullptr && view->as_stored ? nullptr : view),
      decoding_bytes_(options.memory_budget_bytes / 2),
      device_(device_share(options.memory_budget_bytes)),
      options_(std::move(options)),
      engine_(std::move(engine)) {
  if (view_ != nullptr) options_.memory_budget_bytes = reading_bytes(options_.memory_budget_bytes, checkpoint);
}

void TensorReader::load(std::span<const plan::MemoryBox> wanted) {
  Call call(communicator_, clock_);
  if (view_ == nullptr) return load_stored(wanted, call);
  std::optional<Decoder> decoder;
  std::span<const plan::MemoryBox> batch;
  comm::agree(communicator_, "plan what to decode",
              [&] { decoder.emplace(checkpoint_, *view_, wanted, decoding_bytes_, device_); });
  do {
    comm::agree(communicator_, "plan what to decode", [&] { batch = decoder->next_batch(); });
    load_stored(batch, call);
    call.begin("decode");
    comm::agree(communicator_, "decode", [&] { call.add_bytes(decoder->finish_batch()); });
    call.stop();
  } while (communicator_.max(decoder->is_done() ? 0 : 1) != 0);  // as many batches as the rank with the most needs
}

Loader::Loader(comm::Communicator& communicator, const OpenCheckpoint& checkpoint, const View* view,
               ReadOptions options, io::WindowStore* windows)
    : TensorReader(communicator, checkpoint, view, options,
                   choose_engine(communicator, {options.engine, options.aggregators_per_node}, checkpoint.directory)),
      windows_(windows != nullptr ? *windows : own_windows_) {}

// A load on one screen, the mirror of Saver::save. The blocks that any rank wants are assigned to ranks, as extents, and
// read once, in windows, several rounds ahead. Round by round each rank compares the blocks of its window with their
// checksums, and gives every rank what it wants of it (scatter). Between two collective calls nothing fails on one rank
// alone: what may fail is agreed on.
void Loader::load_stored(std::span<const plan::MemoryBox> wanted, Call& call) {
  call.begin("plan");
  const ReadPlan plan =
      make_read_plan(communicator_, checkpoint_, wanted, {options_.memory_budget_bytes, engine_, windows_, device_});
  if (!plan.extents) return call.stop();
  std::optional<WrittenBlocks> written;
  comm::agree(communicator_, "plan the load", [&] { written.emplace(checkpoint_); });

  FileReader files(communicator_, {checkpoint_.directory, checkpoint_.stored, *plan.extents, plan.windows, plan.rounds,
                                   *plan.buffers});
  try {
    call.begin("open");
    files.open(engine_.name, options_.hints);
    comm::agree(communicator_, "note hints", [&] { engine_.hints = files.hints(); });
    if (plan.bypass) files.read_bypass(*plan.bypass, *written, {plan.memory, &device_}, call);
    call.begin("read");
    files.read_ahead();
    call.begin("plan");  // while the first windows are read
    io::Exchange exchange = make_exchange(communicator_, checkpoint_, plan);
    for (std::uint64_t round = 0; round < plan.rounds; ++round) {
      call.begin("read");
      const io::WindowBuffer window = files.wait_for_window(round);
      if (window.window != nullptr) call.add_bytes(window.window->bytes);
      call.begin("verify");
      comm::agree(communicator_, "verify", [&] {
        if (window.window != nullptr) call.add_bytes(written->check(*window.window, window.buffer));
      });
      call.begin("scatter");
      call.add_bytes(exchange.scatter(round, plan.memory));
    }
    call.begin("open");
    files.close();
  } catch (const comm::AgreedError&) {  // all ranks are here; one that unwinds alone cannot close what all have open
    files.close_after_error();
    throw;
  }
  call.stop();
}

}  // namespace cairn::checkpoint
