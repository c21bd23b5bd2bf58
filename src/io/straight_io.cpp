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

/// The walk's next bytes.
FileSpan<std::byte> next_piece(StraightRuns::Walk& walk, std::uint64_t most_bytes,
                               std::span<const plan::MemoryBox> memory) {
  const std::uint32_t local = walk.local();
  const plan::Run run = walk.next(most_bytes);
  const std::span<std::byte> box = local < memory.size() ? memory[local].bytes : std::span<std::byte>();
  if (run.memory_offset > box.size() || run.length_bytes > box.size() - run.memory_offset) {
    throw Error(ErrorKind::kInternal, "straight run: bytes " + std::to_string(run.memory_offset) + " to " +
                                          std::to_string(run.memory_offset + run.length_bytes) + " of memory box " +
                                          std::to_string(local) + ", which has " + std::to_string(box.size()));
  }
  if (memory[local].memory != Memory::kHost) {
    throw Error(ErrorKind::kInternal, "straight run: memory box " + std::to_string(local) + " is not in host memory");
  }
  return {walk.file(), run.file_offset, box.subspan(run.memory_offset, run.length_bytes)};
}

struct Writing {
  StraightRuns::Walk walk;
  os::File file;
};

/// Requires: the lock of the file.
void write_turn(Writing& writing, std::span<const plan::MemoryBox> memory, const PieceSeen& seen) {
  for (std::uint64_t left = kTurnBytes; left != 0 && !writing.walk.done();) {
    const FileSpan<std::byte> piece = next_piece(writing.walk, std::min(left, kPieceBytes), memory);
    seen(piece.file, piece.offset, piece.data);
    writing.file.write_at(piece.data, piece.offset);
    left -= piece.data.size();
  }
}

}  // namespace

void write_straight(comm::Communicator& communicator, std::span<const EngineFile> files, const StraightRuns& runs,
                    std::span<const plan::MemoryBox> memory, const PieceSeen& seen) {
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
                   std::span<const plan::MemoryBox> memory, const PieceSeen& seen) {
  comm::agree(communicator, "read data files", [&] {
    for (StraightRuns::Walk& walk : runs.walks()) {
      os::File file(files[walk.file()].path, os::OpenMode::kRead);
      while (!walk.done()) {
        const FileSpan<std::byte> piece = next_piece(walk, kPieceBytes, memory);
        file.read_at(piece.data, piece.offset);
        seen(piece.file, piece.offset, piece.data);
      }
      file.close();
    }
  });
}

}  // namespace cairn::io
