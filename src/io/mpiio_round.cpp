// MPI-IO: a round of writes or reads in pieces of at most 1 GiB.
//
// The pieces of a round are numbered; piece p of every file comes before piece p + 1 of any, and inside a piece a rank
// goes through its files by turn. (piece, turn, file) is one total order for all ranks, hence no deadlock (file_turns.hpp
// has the argument). Members of a file call once per piece whether they have bytes or not.
#include <mpi.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/checked.hpp"
#include "base/units.hpp"
#include "comm/agree.hpp"
#include "io/mpiio_engine.hpp"
#include "io/round_check.hpp"
#include "os/fault.hpp"

namespace cairn::io {
namespace {

/// ROMIO before 3.3 and Linux lose what exceeds 2 GiB in one call; counts are int.
constexpr std::uint64_t kPieceBytes = 1ULL << 30;

template <class Op>
constexpr bool kIsWrite = std::is_same_v<Op, WriteOp>;

/// The bytes of a piece; empty when the operation is shorter, or absent.
template <class Op>
auto piece_of(const Op* op, std::uint64_t piece) -> decltype(op->data) {
  if (op == nullptr || op->data.size() / kPieceBytes < piece) return {};
  return op->data.subspan(piece * kPieceBytes, std::min(kPieceBytes, op->data.size() - piece * kPieceBytes));
}

int call(MPI_File file, std::uint64_t offset, std::span<const std::byte> data, bool collective, MPI_Status* status) {
  const auto at = base::narrow<MPI_Offset>(offset, "file offset");
  const int count = base::narrow<int>(data.size(), "MPI count");
  return collective ? MPI_File_write_at_all(file, at, data.data(), count, MPI_BYTE, status)
                    : MPI_File_write_at(file, at, data.data(), count, MPI_BYTE, status);
}

int call(MPI_File file, std::uint64_t offset, std::span<std::byte> data, bool collective, MPI_Status* status) {
  const auto at = base::narrow<MPI_Offset>(offset, "file offset");
  const int count = base::narrow<int>(data.size(), "MPI count");
  return collective ? MPI_File_read_at_all(file, at, data.data(), count, MPI_BYTE, status)
                    : MPI_File_read_at(file, at, data.data(), count, MPI_BYTE, status);
}

/// MPI-IO drops errno; the free space is the best hint at ENOSPC that is left.
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
void MpiioEngine::read_round(std::span<const ReadOp> ops) { run_round(ops, "read data files"); }

template <class Op>
void MpiioEngine::run_round(std::span<const Op> ops, const std::string& step) {
  Failure failure;
  std::uint64_t pieces = 0;
  try {
    check_round(ops, std::span<const EngineFile>(files_));
    for (const Op& op : ops) {
      const bool known = std::any_of(members_.begin(), members_.end(), [&](const Member& m) { return m.turn.file == op.file; });
      if (!known) throw Error(ErrorKind::kInternal, "I/O round: file " + std::to_string(op.file) + " is not this rank's");
      pieces = std::max(pieces, base::ceil_div(op.data.size(), kPieceBytes));
    }
  } catch (const Error& error) {
    failure.note(error);
    ops = {};
  }
  // Over all ranks rather than file by file: one reduction, and it is 1 for windows of up to 1 GiB.
  pieces = communicator_.max(pieces);
  for (std::uint64_t piece = 0; piece < pieces; ++piece) {
    for (Member& member : members_) {
      const auto at = std::lower_bound(ops.begin(), ops.end(), member.turn.file,
                                       [](const Op& op, std::uint32_t file) { return op.file < file; });
      const bool found = at != ops.end() && at->file == member.turn.file;
      move_piece(member, found ? &*at : nullptr, piece, failure);
    }
  }
  try {
    comm::agree(communicator_, step, [&] { failure.rethrow(); });
  } catch (const Error&) {
    close_all();  // as guarded() does
    throw;
  }
}

template <class Op>
void MpiioEngine::move_piece(Member& member, const Op* op, std::uint64_t piece, Failure& failure) {
  auto data = piece_of(op, piece);
  const std::uint64_t expected = data.size();
  if (expected == 0 && !collective_) return;
  const EngineFile& file = files_[member.turn.file];
  const std::uint64_t offset = expected > 0 ? op->offset + piece * kPieceBytes : 0;
  const char* verb = kIsWrite<Op> ? "write" : "read";
  const std::string what = std::string("cannot ") + verb + " ";

  if (expected > 0) {
    if (const auto fault = os::check_fault(verb, file.path)) {
      if (fault->short_bytes) {
        data = data.first(std::min(expected, *fault->short_bytes));
      } else {
        failure.note(Error(ErrorKind::kIo, what + describe(file, offset, expected) + ": " + std::strerror(fault->error)));
        data = {};
      }
    }
  }
  MPI_Status status;
  std::memset(&status, 0, sizeof status);
  const int code = call(member.handle.get(), offset, data, collective_, &status);
  if (code != MPI_SUCCESS) {
    failure.note(Error(ErrorKind::kIo, what + describe(file, offset, expected) + ": " + mpi_error_text(code) +
                                           (kIsWrite<Op> ? space_left(file) : "")));
    return;
  }
  if (expected == 0) return;
  MPI_Count moved = 0;
  if (data.size() > 0 && MPI_Get_elements_x(&status, MPI_BYTE, &moved) != MPI_SUCCESS) moved = -1;
  if (moved == static_cast<MPI_Count>(expected)) return;
  failure.note(Error(ErrorKind::kIo, what + describe(file, offset, expected) + ": MPI moved " + std::to_string(moved) +
                                         " bytes and reported no error" + (kIsWrite<Op> ? space_left(file) : "")));
}

}  // namespace cairn::io
