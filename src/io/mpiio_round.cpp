// MPI-IO: a round of writes or reads in pieces of at most 1 GiB.
//
// A rank's pieces of each file are numbered. Piece p of every file comes before piece p + 1 of any file; for each p a
// rank goes through its files by turn. So (p, turn, file) is one total order for all ranks, without deadlock
// (rounds.hpp has the argument). The ranks of a file make one call per p, with or without bytes.
#include <mpi.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <type_traits>

#include "base/checked.hpp"
#include "base/internal_error.hpp"
#include "base/text.hpp"
#include "comm/agree.hpp"
#include "comm/mpi.hpp"
#include "io/mpiio_engine.hpp"
#include "io/rounds.hpp"
#include "os/fault.hpp"
#include "os/system_calls.hpp"

namespace cairn::io {
namespace {

/// ROMIO before 3.3 and Linux drop the bytes of one call beyond 2 GiB, and counts in MPI are int.
constexpr std::uint64_t kPieceBytes = 1ULL << 30;

template <class Op>
constexpr bool kIsWrite = std::is_same_v<Op, WriteOp>;

int transfer(MPI_File file, std::uint64_t offset, std::span<const std::byte> data, bool collective,
             MPI_Status* status) {
  const auto at = base::narrow<MPI_Offset>(offset, "file offset");
  const int count = base::narrow<int>(data.size(), "MPI count");
  return collective ? MPI_File_write_at_all(file, at, data.data(), count, MPI_BYTE, status)
                    : MPI_File_write_at(file, at, data.data(), count, MPI_BYTE, status);
}

int transfer(MPI_File file, std::uint64_t offset, std::span<std::byte> data, bool collective, MPI_Status* status) {
  const auto at = base::narrow<MPI_Offset>(offset, "file offset");
  const int count = base::narrow<int>(data.size(), "MPI count");
  return collective ? MPI_File_read_at_all(file, at, data.data(), count, MPI_BYTE, status)
                    : MPI_File_read_at(file, at, data.data(), count, MPI_BYTE, status);
}

/// MPI-IO drops errno; the free space is the best remaining sign of ENOSPC.
std::string space_left(const EngineFile& file) {
  try {
    const os::FileSystemInfo info = os::file_system_of(file.path);
    return "; the file system (" + info.type + ") has " + base::format_size(info.free_bytes) + " free";
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

void MpiioEngine::write_round(std::span<const WriteOp> ops) { run_round(ops, "write data files"); }

void MpiioEngine::read_round(std::span<const ReadOp> ops) {
  finish_rounds(0);
  run_round(ops, "read data files");
}

/// The thread makes only independent calls, which do not wait for other ranks.
void MpiioEngine::begin_read(std::span<const ReadOp> ops) {
  if (!reader_) return read_round(ops);
  try {
    reader_->begin([this, round = std::vector<ReadOp>(ops.begin(), ops.end())] {
      Failure failure;
      for (const ReadOp& piece : cut_pieces(std::span<const ReadOp>(round))) {
        move_piece(*member_of(piece.file), piece, Call::kIndependent, failure);
        failure.rethrow();
      }
    });
  } catch (...) {
    not_begun_.note_current();
  }
}

void MpiioEngine::wait_rounds(std::size_t unfinished) {
  if (reader_) reader_->wait(unfinished);
}

void MpiioEngine::finish_rounds(std::size_t unfinished) {
  if (!reader_) return;
  reader_->wait(unfinished);
  guarded([&] {
    comm::agree(communicator_, "read data files", [&] {
      not_begun_.rethrow();
      reader_->rethrow();
    });
  });
}

/// Cuts operations into pieces of at most 1 GiB. Throws for operations that this rank must not do.
template <class Op>
std::vector<Op> MpiioEngine::cut_pieces(std::span<const Op> ops) {
  check_round(ops, std::span<const EngineFile>(files_));
  std::vector<Op> pieces;
  for (const Op& op : ops) {
    if (member_of(op.file) == nullptr)
      throw base::internal_error("I/O round: file number " + std::to_string(op.file) + " is not this rank's");
    for (std::uint64_t at = 0; at < op.data.size(); at += kPieceBytes) {
      pieces.push_back({op.file, op.offset + at, op.data.subspan(at, std::min(kPieceBytes, op.data.size() - at))});
    }
  }
  return pieces;
}

template <class Op>
void MpiioEngine::run_round(std::span<const Op> ops, std::string_view step) {
  Failure failure;
  std::vector<Op> pieces;
  try {
    pieces = cut_pieces(ops);
  } catch (...) {
    failure.note_current();
  }
  const auto of_file = [&](std::uint32_t file) -> std::span<const Op> {
    const auto begin = std::find_if(pieces.begin(), pieces.end(), [&](const Op& piece) { return piece.file >= file; });
    const auto end = std::find_if(begin, pieces.end(), [&](const Op& piece) { return piece.file > file; });
    return {begin, end};
  };
  std::uint64_t turns = 0;
  for (const Member& member : members_) turns = std::max<std::uint64_t>(turns, of_file(member.turn.file).size());
  // One reduction over all ranks instead of one per file. The result is at most 1 if no window has several parts in one
  // file, or a part of more than 1 GiB.
  turns = communicator_.max(turns);
  for (std::uint64_t p = 0; p < turns; ++p) {
    for (Member& member : members_) {
      const auto mine = of_file(member.turn.file);
      const Op none{member.turn.file, 0, {}};
      move_piece(member, p < mine.size() ? mine[p] : none, call_, failure);
    }
  }
  guarded([&] { comm::agree(communicator_, step, [&] { failure.rethrow(); }); });
}

template <class Op>
void MpiioEngine::move_piece(Member& member, const Op& piece, Call call, Failure& failure) {
  std::uint64_t expected = piece.data.size();
  const bool collective = call == Call::kCollective;
  if (expected == 0 && !collective) return;
  const EngineFile& file = files_[member.turn.file];
  const char* verb = kIsWrite<Op> ? "write" : "read";
  const auto fail = [&](const std::string& why, int system_error = 0) {
    failure.note(Error(ErrorKind::kIo,
                       std::string("cannot ") + verb + " " + describe(file, piece.offset, expected) + ": " + why +
                           (kIsWrite<Op> ? space_left(file) : ""),
                       {system_error, file.path.native()}));
  };

  auto data = piece.data;
  const auto fault = expected > 0 ? os::check_fault(verb, file.path) : std::nullopt;
  if (fault && fault->lies) {
    expected = os::half_of(expected);
    data = data.first(expected);
  } else if (fault && fault->short_bytes) {
    data = data.first(std::min(expected, *fault->short_bytes));
  } else if (fault && fault->error != EINTR) {
    fail(std::strerror(fault->error), fault->error);
    data = {};  // the other ranks of the file are in the call, so this rank must also make it
  }
  if (collective && rounds_wait_) meet(member);
  MPI_Status status;
  std::memset(&status, 0, sizeof status);
  const std::int64_t begin_ns = os::begin_record();
  if (const int code = transfer(member.handle.get(), piece.offset, data, collective, &status); code != MPI_SUCCESS) {
    return fail(comm::mpi_error_text(code));
  }
  MPI_Count moved = 0;  // the status of an empty call is undefined
  if (!data.empty() && MPI_Get_elements_x(&status, MPI_BYTE, &moved) != MPI_SUCCESS) moved = -1;
  if (moved != static_cast<MPI_Count>(expected)) {
    fail("MPI reported success, but moved " + std::to_string(moved) + " of " + std::to_string(expected) + " bytes");
  }
  if (!data.empty()) os::record(verb, file.path, begin_ns);
  if constexpr (kIsWrite<Op>) member.own.start_writeback(piece.offset, expected);
}

}  // namespace cairn::io
