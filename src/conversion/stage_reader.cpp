#include "conversion/stage_reader.hpp"

#include <algorithm>
#include <utility>

#include "checkpoint/load.hpp"
#include "checkpoint/progress.hpp"
#include "codes/decode_pieces.hpp"
#include "comm/agree.hpp"
#include "io/copy_runs.hpp"
#include "opening/carried.hpp"
#include "plan/runs.hpp"
#include "shard/box_math.hpp"

namespace cairn::conversion {
namespace {

constexpr std::uint64_t kMaxPieceBytes = 1ULL << 30;  // in some cases HDF5 1.10 loses bytes beyond 2 GiB of a call
constexpr std::uint64_t kMinPieceBytes = 64 << 10;
constexpr std::uint64_t kMaxScatteredBytes = 4 << 20;  // about the size of a cache

}  // namespace

StageReader::StageReader(comm::Communicator& communicator, const opening::OpenCheckpoint& checkpoint,
                         const codes::View* view, checkpoint::ReadOptions options)
    : checkpoint::TensorReader(communicator, checkpoint, view, std::move(options),
                               {"hdf5", "staging files are read through HDF5", 0}),
      piece_bytes_(std::clamp(options_.memory_budget_bytes / 2, kMinPieceBytes, kMaxPieceBytes)) {}

void StageReader::load_stored(std::span<const plan::MemoryBox> wanted, checkpoint::Call& call) {
  call.begin("read");
  comm::agree(communicator_, "read the staging file", [&] {
    std::uint64_t total = 0;
    for (const plan::MemoryBox& want : wanted) {
      const format::StoredTensor& tensor = checkpoint_.stored.tensors.at(want.tensor);
      codes::check_wanted(want, tensor.name, tensor.dtype, tensor.shape);
      total += want.bytes.size();  // includes gaps; used only for progress
    }
    if (total == 0) return;
    if (!file_) {
      file_ = std::make_unique<hdf5::StageFile>(opening::stage_path(checkpoint_),
                                                checkpoint_.stored.files.at(0).size_bytes);
    }
    std::uint64_t done = 0;
    for (const plan::MemoryBox& want : wanted) {
      checkpoint::report_progress("reading", done, total);
      if (bits_of(checkpoint_.stored.tensors[want.tensor].dtype) < 8) {
        read_packed(want, call);
      } else {
        read(want, call);
      }
      done += want.bytes.size();
    }
    device_.finish();
    checkpoint::report_progress("reading", total, total);
  });
  call.stop();
}

std::uint64_t StageReader::piece_bytes(const plan::MemoryBox& want) const {
  if (!want.strides.empty()) return std::min(piece_bytes_, kMaxScatteredBytes);
  return plan::is_on_device(want) ? std::min(piece_bytes_, device_.slot_bytes()) : piece_bytes_;
}

/// Calls read(host memory) for a range of the box's bytes, and copies them to the device if the box is there.
template <class Read>
void StageReader::fill(const plan::MemoryBox& want, std::uint64_t offset, std::uint64_t bytes, const Read& read) {
  const std::span<std::byte> place = want.bytes.subspan(offset, bytes);
  if (!plan::is_on_device(want)) return read(place);
  read(device_.room(bytes));
  device_.put({place.data(), bytes});
}

void StageReader::read(const plan::MemoryBox& want, checkpoint::Call& call) {
  const format::StoredTensor& tensor = checkpoint_.stored.tensors[want.tensor];
  const std::uint64_t element_bytes = bits_of(tensor.dtype) / 8;
  std::uint64_t at = 0;
  codes::for_each_piece(want.box, std::max<std::uint64_t>(piece_bytes(want) / element_bytes, 1), [&](const Box& piece) {
    call.begin("read");  // shows that this rank makes progress
    const std::uint64_t bytes = shard::elements_of(piece) * element_bytes;
    if (want.strides.empty()) {
      fill(want, at, bytes, [&](std::span<std::byte> memory) { file_->read_box(tensor, piece, memory); });
    } else {
      with_gaps_.resize(bytes);
      file_->read_box(tensor, piece, with_gaps_);
      scatter(with_gaps_, piece, want);
    }
    call.add_bytes(bytes);
    at += bytes;
  });
}

/// Copies the elements of a piece, which lie end to end in `read`, to their places in the box.
void StageReader::scatter(std::span<const std::byte> read, const Box& piece, const plan::MemoryBox& want) {
  const plan::Runs runs = plan::runs_of(checkpoint_.stored.tensors[want.tensor].dtype, {0, 0, piece}, want, piece);
  for (plan::RunCursor cursor(runs, 0, runs.bytes); !cursor.done();) {
    const plan::RunBatch batch = cursor.next();
    const io::Strided<std::byte*> to{want.bytes.data() + batch.memory_offset, batch.memory_stride};
    const io::Strided<const std::byte*> from{read.data() + batch.file_offset, batch.file_stride};
    if (plan::is_on_device(want)) {
      device_.to_device(to, from, batch.length_bytes, batch.count);
    } else {
      io::copy_runs(to, from, batch.length_bytes, batch.count);
    }
  }
}

/// Reads a box of sub-byte elements, without strides, run by run: the file has the tensor's packed bytes as one row.
void StageReader::read_packed(const plan::MemoryBox& want, checkpoint::Call& call) {
  const format::StoredTensor& tensor = checkpoint_.stored.tensors[want.tensor];
  const plan::Runs runs = plan::runs_of(tensor.dtype, {0, 0, shard::whole(tensor.shape)}, want.box, want.box);
  plan::for_each_run(runs, [&](const plan::Run& run) {
    for (std::uint64_t done = 0; done < run.length_bytes;) {
      const std::uint64_t bytes = std::min(run.length_bytes - done, piece_bytes(want));
      fill(want, run.memory_offset + done, bytes,
           [&](std::span<std::byte> memory) { file_->read_packed(tensor, run.file_offset + done, memory); });
      call.add_bytes(bytes);
      done += bytes;
    }
  });
}

std::unique_ptr<checkpoint::TensorReader> make_reader(comm::Communicator& communicator,
                                                      const opening::OpenCheckpoint& checkpoint,
                                                      const codes::View& view, checkpoint::ReadOptions options) {
  if (opening::is_stage(checkpoint))
    return std::make_unique<StageReader>(communicator, checkpoint, &view, std::move(options));
  return std::make_unique<checkpoint::Loader>(communicator, checkpoint, &view, std::move(options));
}

}  // namespace cairn::conversion
