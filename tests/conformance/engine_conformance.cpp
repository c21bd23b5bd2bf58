#include "engine_conformance.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <optional>

#include "base/bytes.hpp"
#include "os/file.hpp"

namespace cairn::test {
namespace {

/// A rank's windows, one per round, and the number of rounds of all ranks.
struct RankWindows {
  std::vector<plan::Window> windows;
  std::uint64_t rounds;
};

RankWindows windows_of(comm::Communicator& communicator, const plan::ExtentMap& extents, std::uint64_t window_bytes) {
  RankWindows out;
  out.windows = plan::cut_windows(extents.of(communicator.rank()), window_bytes, extents.block_bytes());
  out.rounds = communicator.max(out.windows.size());
  return out;
}

}  // namespace

std::byte expected_byte(std::uint32_t file, std::uint64_t offset) {
  std::uint64_t x = (offset + 1) * 0x9E3779B97F4A7C15ULL + file * 0xBF58476D1CE4E5B9ULL;
  x ^= x >> 29;
  return static_cast<std::byte>(x * 0x94D049BB133111EBULL >> 56);
}

std::string common_error(comm::Communicator& communicator, ErrorKind kind, const std::function<void()>& work) {
  std::string text = "no error";
  try {
    work();
    ADD_FAILURE() << "no error on rank " << communicator.rank();
  } catch (const Error& error) {
    text = error.what();
    EXPECT_EQ(error.kind(), kind) << text;
  }
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  for (const base::Bytes& other : communicator.all_gather(base::as_bytes(text))) {
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(other.data()), other.size()), text);
  }
  return text;
}

void write_files(const EngineCase& c, const std::vector<io::EngineFile>& files, const plan::ExtentMap& extents,
                 std::uint64_t window_bytes) {
  std::deque<base::Bytes> on_their_way;  // declared before the engine, which can use the buffers until its end
  const auto engine = c.make();
  engine->open_for_write(files, extents);
  const auto [windows, rounds] = windows_of(c.communicator, extents, window_bytes);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    base::Bytes buffer;
    std::vector<plan::Extent> parts = round < windows.size() ? windows[round].parts : std::vector<plan::Extent>{};
    for (const plan::Extent& part : parts) {
      for (std::uint64_t i = part.begin; i < part.end; ++i) buffer.push_back(expected_byte(part.file, i));
    }
    std::vector<io::WriteOp> ops;
    std::size_t at = 0;
    for (const plan::Extent& part : parts) {
      ops.push_back({part.file, part.begin, std::span(buffer).subspan(at, part.end - part.begin)});
      at += part.end - part.begin;
    }
    if (c.rounds_ahead == 0) {
      engine->write_round(ops);
      continue;
    }
    on_their_way.push_back(std::move(buffer));
    engine->begin_write(ops);
    engine->wait_rounds(c.rounds_ahead);
    engine->finish_rounds(c.rounds_ahead);
    if (on_their_way.size() > c.rounds_ahead) on_their_way.pop_front();
  }
  engine->finish_rounds(0);
  engine->sync();
  engine->close();
}

std::uint64_t read_and_compare(const EngineCase& c, const std::vector<io::EngineFile>& files,
                               const plan::ExtentMap& extents, std::uint64_t window_bytes) {
  struct Round {
    base::Bytes buffer;
    std::vector<io::ReadOp> ops;
  };
  std::deque<Round> on_their_way;  // declared before the engine, which can use the buffers until its end
  const auto engine = c.make();
  engine->open_for_read(files, extents);
  const auto [windows, rounds] = windows_of(c.communicator, extents, window_bytes);
  std::uint64_t compared = 0;
  std::uint64_t wrong = 0;
  const auto compare_oldest = [&] {
    for (const io::ReadOp& op : on_their_way.front().ops) {
      for (std::size_t i = 0; i < op.data.size(); ++i)
        wrong += op.data[i] != expected_byte(op.file, op.offset + i) ? 1 : 0;
      compared += op.data.size();
    }
    on_their_way.pop_front();
  };
  for (std::uint64_t round = 0; round < rounds; ++round) {
    std::vector<plan::Extent> parts = round < windows.size() ? windows[round].parts : std::vector<plan::Extent>{};
    base::Bytes buffer(round < windows.size() ? windows[round].bytes : 0);
    std::vector<io::ReadOp> ops;
    std::size_t at = 0;
    for (const plan::Extent& part : parts) {
      ops.push_back({part.file, part.begin, std::span(buffer).subspan(at, part.end - part.begin)});
      at += part.end - part.begin;
    }
    on_their_way.push_back({std::move(buffer), std::move(ops)});
    if (c.rounds_ahead == 0) {
      engine->read_round(on_their_way.back().ops);
    } else {
      engine->begin_read(on_their_way.back().ops);
      engine->wait_rounds(c.rounds_ahead);
      engine->finish_rounds(c.rounds_ahead);
    }
    if (on_their_way.size() > c.rounds_ahead) compare_oldest();
  }
  engine->finish_rounds(0);
  while (!on_their_way.empty()) compare_oldest();
  engine->close();
  EXPECT_EQ(wrong, 0U) << "wrong bytes read by the engine on rank " << c.communicator.rank();
  return c.communicator.sum(compared);
}

std::uint64_t compare_by_other_means(const EngineCase& c, const std::vector<io::EngineFile>& files,
                                     const std::vector<plan::FileRange>& ranges) {
  std::uint64_t compared = 0;
  if (c.communicator.rank() == 0) {
    for (const io::EngineFile& file : files) EXPECT_EQ(os::file_size(file.path), file.size_bytes) << file.path;
    for (const plan::FileRange& range : ranges) {
      base::Bytes data(range.end - range.begin);
      os::File(files[range.file].path, os::OpenMode::kRead).read_at(data, range.begin);
      std::uint64_t wrong = 0;
      for (std::size_t i = 0; i < data.size(); ++i)
        wrong += data[i] != expected_byte(range.file, range.begin + i) ? 1 : 0;
      EXPECT_EQ(wrong, 0U) << files[range.file].path << " from byte " << range.begin;
      compared += data.size();
    }
  }
  return c.communicator.sum(compared);
}

}  // namespace cairn::test
