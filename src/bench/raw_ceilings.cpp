// Raw storage as a ceiling.
#include <fmt/core.h>

#include "bench/ceilings.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"

namespace cairn::bench {

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
    throw Error(ErrorKind::kInternal,
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
