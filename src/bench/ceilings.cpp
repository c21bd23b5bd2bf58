// Memory copies, checksums, messages and raw storage as ceilings.
#include "bench/ceilings.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "base/internal_error.hpp"
#include "bench/machine.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "format/crc32c.hpp"

namespace cairn::bench {

// Memory copies, checksums and messages as ceilings.

namespace {

constexpr std::uint64_t kMemoryBytes = 64ULL << 20;   // memory of a rank: larger than a core's caches
constexpr std::uint64_t kMessageBytes = 16ULL << 20;  // bytes from a rank to a partner in one turn
constexpr int kPasses = 4;
constexpr int kMostPartners = 8;  // partners of a rank, spread over all ranks: limits the memory of large runs
constexpr int kExchangeTag = 4503;

void randomise(base::AlignedBuffer& buffer, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (std::uint64_t at = 0; at + 8 <= buffer.size(); at += 8) {
    const std::uint64_t word = random();
    std::memcpy(buffer.span().data() + at, &word, 8);
  }
}

base::AlignedBuffer random_memory(std::uint64_t bytes, int rank) {
  base::AlignedBuffer buffer(bytes);
  randomise(buffer, static_cast<std::uint64_t>(rank) + 1);
  return buffer;
}

base::AlignedBuffer touched_memory(std::uint64_t bytes) {
  base::AlignedBuffer buffer(bytes);
  std::memset(buffer.span().data(), 0, bytes);
  return buffer;
}

struct Measured {
  double seconds = 0;
  double busy_share = 0;
};

Measured measure(const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  const ProcessorTicks before = processor_ticks();
  const auto start = Clock::now();
  work();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return {seconds, busy_share(before, processor_ticks())};
}

Rate reduce(comm::Communicator& group, std::uint64_t bytes, const Measured& mine) {
  double largest[] = {mine.seconds, mine.busy_share};
  double fastest[] = {mine.seconds};
  group.all_reduce(largest, comm::ReduceOp::kMax);
  group.all_reduce(fastest, comm::ReduceOp::kMin);
  return {bytes, largest[0], fastest[0], largest[1]};
}

void check(comm::Communicator& group, const char* what, const std::function<bool()>& is_right) {
  comm::agree(group, what, [&] {
    if (!is_right()) throw Error(ErrorKind::kIntegrity, fmt::format("{}: the result is wrong", what));
  });
}

void exchange_once(comm::Communicator& group, std::span<const std::byte> mine, base::AlignedBuffer& theirs, int step) {
  const int ranks = group.size();
  const int to = (group.rank() + step) % ranks;
  const int from = (group.rank() - step + ranks) % ranks;
  const auto receive = group.receive(theirs.span(), from, kExchangeTag);
  const auto send = group.send(mine, to, kExchangeTag);
  receive->wait();
  send->wait();
}

}  // namespace

Rate timed(comm::Communicator& group, std::uint64_t bytes, const char* step, const std::function<void()>& work) {
  Measured mine;
  group.barrier();
  comm::agree(group, step, [&] { mine = measure(work); });
  return reduce(group, bytes, mine);
}

Rate timed_together(comm::Communicator& group, std::uint64_t bytes, const std::function<void()>& work) {
  group.barrier();
  return reduce(group, bytes, measure(work));
}

Rate memcpy_ceiling(comm::Communicator& group) {
  base::AlignedBuffer from;
  base::AlignedBuffer to;
  comm::agree(group, "prepare memory copies", [&] {
    from = random_memory(kMemoryBytes, group.rank());
    to = touched_memory(kMemoryBytes);
  });
  const std::uint64_t bytes = kMemoryBytes * kPasses * static_cast<std::uint64_t>(group.size());
  const Rate rate = timed(group, bytes, "memcpy", [&] {
    for (int pass = 0; pass < kPasses; ++pass) std::memcpy(to.span().data(), from.span().data(), kMemoryBytes);
  });
  check(group, "memcpy ceiling", [&] { return std::memcmp(to.span().data(), from.span().data(), kMemoryBytes) == 0; });
  return rate;
}

Rate crc_ceiling(comm::Communicator& group) {
  base::AlignedBuffer data;
  comm::agree(group, "prepare checksums", [&] { data = random_memory(kMemoryBytes, group.rank()); });
  std::uint32_t crc = 0;
  const std::uint64_t bytes = kMemoryBytes * kPasses * static_cast<std::uint64_t>(group.size());
  const Rate rate = timed(group, bytes, "checksum", [&] {
    for (int pass = 0; pass < kPasses; ++pass) crc = format::crc32c(data.span());
  });
  check(group, "checksum ceiling", [&] {
    const auto half = data.span().first(kMemoryBytes / 2);
    const auto rest = data.span().subspan(kMemoryBytes / 2);
    return format::combine_crc32c(format::crc32c(half), format::crc32c(rest), rest.size()) == crc;
  });
  return rate;
}

Rate exchange_ceiling(comm::Communicator& group) {
  const int ranks = group.size();
  if (ranks == 1) return {};
  const int partners = std::min(ranks - 1, kMostPartners);
  const auto step_of = [&](int turn) { return 1 + turn * (ranks - 1) / partners; };
  base::AlignedBuffer mine;
  std::vector<base::AlignedBuffer> theirs(static_cast<std::size_t>(partners));
  comm::agree(group, "prepare messages", [&] {
    mine = random_memory(kMessageBytes, group.rank());
    for (auto& buffer : theirs) buffer = touched_memory(kMessageBytes);
  });
  const auto pass = [&] {
    for (int turn = 0; turn < partners; ++turn) {
      exchange_once(group, mine.span(), theirs[static_cast<std::size_t>(turn)], step_of(turn));
    }
  };
  pass();  // the first messages set up the connections
  const std::uint64_t messages = static_cast<std::uint64_t>(ranks) * static_cast<std::uint64_t>(partners);
  const Rate rate = timed_together(group, kMessageBytes * messages * kPasses, [&] {
    for (int i = 0; i < kPasses; ++i) pass();
  });
  check(group, "exchange ceiling", [&] {
    base::AlignedBuffer expected(kMessageBytes);
    for (int turn = 0; turn < partners; ++turn) {
      randomise(expected, static_cast<std::uint64_t>((group.rank() - step_of(turn) + ranks) % ranks) + 1);
      const auto& found = theirs[static_cast<std::size_t>(turn)];
      if (std::memcmp(expected.span().data(), found.span().data(), kMessageBytes) != 0) return false;
    }
    return true;
  });
  return rate;
}

// Raw storage as a ceiling.

void RawStorage::prepare(std::uint64_t total_bytes, int writers) {
  layout_ = RawLayout(total_bytes, writers);
  ++seed_;
}

std::vector<std::filesystem::path> RawStorage::files() const {
  std::vector<std::filesystem::path> paths;
  for (int file = 0; file < layout_.files(); ++file) {
    paths.push_back(raw_path(directory_, static_cast<std::uint32_t>(file)));
  }
  return paths;
}

Rate RawStorage::write(comm::Communicator& writers, RawWay way) {
  if (writers.size() != layout_.files()) {
    throw base::internal_error(
        fmt::format("raw files for {} ranks are written by {}", layout_.files(), writers.size()));
  }
  const RawPattern pattern(seed_, options_.request_bytes);
  const auto file = static_cast<std::uint32_t>(writers.rank());
  std::optional<RawWriter> writer;
  comm::agree(writers, "prepare raw files", [&] {
    writer.emplace(raw_path(directory_, file), file, layout_.file_bytes(writers.rank()), options_, pattern, memory_,
                   way);
  });
  return timed(writers, layout_.total_bytes(), "raw write", [&] { writer->write(); });
}

Rate RawStorage::read(comm::Communicator& readers, RawWay way) {
  std::optional<RawReader> reader;
  comm::agree(readers, "prepare raw reads", [&] {
    reader.emplace(directory_, layout_.pieces_of(readers.rank(), readers.size()), options_, memory_, way);
  });
  const Rate rate = timed(readers, layout_.total_bytes(), "raw read", [&] { reader->read(); });
  comm::agree(readers, "check raw data", [&] {
    const RawPattern pattern(seed_, options_.request_bytes);
    if (const auto fault = reader->fault(pattern)) throw Error(ErrorKind::kIntegrity, "raw file " + *fault);
  });
  return rate;
}

}  // namespace cairn::bench
