#include "checkpoint/stage_reader.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/units.hpp"
#include "cairn/error.hpp"
#include "checkpoint/progress.hpp"
#include "checkpoint/watched_call.hpp"
#include "codes/box_pieces.hpp"
#include "comm/agree.hpp"
#include "directory/open_stage.hpp"
#include "plan/runs.hpp"
#include "shard/box_math.hpp"

namespace cairn::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxPieceBytes = 1ULL << 30;  // HDF5 1.10 loses what a call has beyond 2 GiB in places
constexpr std::uint64_t kMinPieceBytes = 64 << 10;

}  // namespace

StageReader::StageReader(comm::Communicator& communicator, const OpenCheckpoint& checkpoint, ReadOptions options)
    : communicator_(communicator),
      checkpoint_(checkpoint),
      piece_bytes_(std::clamp(options.memory_budget_bytes / 2, kMinPieceBytes, kMaxPieceBytes)) {}

void StageReader::load(std::span<const WantedBox> wanted) {
  const WatchedCall watched(communicator_, clock_);
  clock_.begin("read");
  comm::agree(communicator_, "read the staging file", [&] {
    std::uint64_t total = 0;
    for (const WantedBox& want : wanted) {
      const format::StoredTensor& tensor = checkpoint_.stored.tensors.at(want.tensor);
      check_wanted(want, {tensor.name, tensor.dtype, tensor.shape});
      total += want.memory.size();
    }
    if (total == 0) return;
    if (!file_) {
      file_ = std::make_unique<hdf5::StageFile>(stage_path(checkpoint_), checkpoint_.stored.files.at(0).size_bytes);
    }
    std::uint64_t done = 0;
    for (const WantedBox& want : wanted) {
      report_progress("reading", done, total);
      if (bits_of(checkpoint_.stored.tensors[want.tensor].dtype) < 8) {
        read_packed(want);
      } else {
        read(want);
      }
      done += want.memory.size();
    }
  });
  clock_.stop();
}

void StageReader::read(const WantedBox& want) {
  const format::StoredTensor& tensor = checkpoint_.stored.tensors[want.tensor];
  const std::uint64_t element_bytes = bits_of(tensor.dtype) / 8;
  std::uint64_t at = 0;
  for_each_piece(want.box, std::max<std::uint64_t>(piece_bytes_ / element_bytes, 1), [&](const Box& piece) {
    clock_.begin("read");  // a sign of life
    const std::uint64_t bytes = shard::elements_of(piece) * element_bytes;
    file_->read_box(tensor, piece, want.memory.subspan(at, bytes));
    clock_.add_bytes(bytes);
    at += bytes;
  });
}

/// Packed bytes are a row in the file: the runs of the box are what is read.
void StageReader::read_packed(const WantedBox& want) {
  const format::StoredTensor& tensor = checkpoint_.stored.tensors[want.tensor];
  const plan::RunSpace space{tensor.dtype, shard::whole(tensor.shape), 0, want.box, want.box};
  plan::for_each_run(space, 0, std::numeric_limits<std::uint64_t>::max(), [&](const plan::Run& run) {
    for (std::uint64_t done = 0; done < run.length_bytes;) {
      const std::uint64_t bytes = std::min(run.length_bytes - done, piece_bytes_);
      file_->read_packed(tensor, run.file_offset + done, want.memory.subspan(run.memory_offset + done, bytes));
      clock_.add_bytes(bytes);
      done += bytes;
    }
  });
}

}  // namespace cairn::checkpoint
