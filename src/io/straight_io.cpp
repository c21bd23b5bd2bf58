#include "io/straight_io.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "comm/wait.hpp"
#include "os/file.hpp"

namespace cairn::io {
namespace {

/// Stays in the cache between its checksum and its copy.
constexpr std::uint64_t kPieceBytes = 512ULL << 10;
/// What a rank writes before it lets others into the file: waking one up costs as much as copying some 100 KiB.
constexpr std::uint64_t kTurnBytes = 4ULL << 20;

template <class Byte>
std::span<Byte> bytes_of(const StraightPiece& piece, std::span<const std::span<Byte>> memory) {
  const std::uint64_t size = piece.local < memory.size() ? memory[piece.local].size() : 0;
  if (piece.memory_offset > size || piece.bytes > size - piece.memory_offset) {
    throw Error(ErrorKind::kInternal, "straight run: bytes " + std::to_string(piece.memory_offset) + " to " +
                                          std::to_string(piece.memory_offset + piece.bytes) + " of memory box " +
                                          std::to_string(piece.local) + ", which has " + std::to_string(size));
  }
  return memory[piece.local].subspan(piece.memory_offset, piece.bytes);
}

struct Writing {
  StraightRuns::Walk walk;
  os::File file;
};

/// Requires: the lock of the file.
void write_turn(Writing& writing, std::span<const std::span<const std::byte>> memory, const PieceSeen& seen) {
  for (std::uint64_t left = kTurnBytes; left != 0 && !writing.walk.done();) {
    const StraightPiece piece = writing.walk.next(std::min(left, kPieceBytes));
    const std::span<const std::byte> data = bytes_of(piece, memory);
    seen(piece.file, piece.file_offset, data);
    writing.file.write_at(data, piece.file_offset);
    left -= piece.bytes;
  }
}

}  // namespace

void write_straight(comm::Communicator& communicator, std::span<const EngineFile> files, const StraightRuns& runs,
                    std::span<const std::span<const std::byte>> memory, const PieceSeen& seen) {
  const auto liveness = communicator.liveness();
  comm::agree(communicator, "write data files", [&] {
    std::vector<Writing> all;
    for (const StraightRuns::Walk& walk : runs.walks()) {
      all.push_back({walk, os::File(files[walk.file()].path, os::OpenMode::kWrite)});
    }
    // Ranks begin in different files.
    std::size_t at = all.empty() ? 0 : static_cast<std::size_t>(communicator.rank()) % all.size();
    const auto is_left = [](const Writing& writing) { return !writing.walk.done(); };
    while (std::any_of(all.begin(), all.end(), is_left)) {
      os::FileLock lock;
      for (std::size_t tried = 0; tried < all.size() && !lock; ++tried) {
        if (tried != 0) at = (at + 1) % all.size();
        if (is_left(all[at])) lock = all[at].file.try_lock();
      }
      if (!lock) {
        at = static_cast<std::size_t>(std::find_if(all.begin(), all.end(), is_left) - all.begin());
        // Who has it may have been stopped: this wait ends as all do.
        comm::Wait wait(liveness.get(), "the lock of a file");
        lock = all[at].file.lock([&] {
          wait.pause();
          return true;
        });
      }
      write_turn(all[at], memory, seen);
    }
    for (Writing& writing : all) {
      writing.file.sync();
      writing.file.close();
    }
  });
}

void read_straight(comm::Communicator& communicator, std::span<const EngineFile> files, const StraightRuns& runs,
                   std::span<const std::span<std::byte>> memory, const PieceSeen& seen) {
  comm::agree(communicator, "read data files", [&] {
    for (StraightRuns::Walk& walk : runs.walks()) {
      os::File file(files[walk.file()].path, os::OpenMode::kRead);
      while (!walk.done()) {
        const StraightPiece piece = walk.next(kPieceBytes);
        const std::span<std::byte> data = bytes_of(piece, memory);
        file.read_at(data, piece.file_offset);
        seen(piece.file, piece.file_offset, data);
      }
      file.close();
    }
  });
}

}  // namespace cairn::io
