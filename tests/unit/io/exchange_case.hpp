// A random checkpoint, random shards of it in the memory of some ranks, and the expected result of an exchange,
// computed element by element without the run arithmetic of the exchange.
//
// Everything follows from one generator, so all ranks of a test have the same case.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "comm/communicator.hpp"
#include "format/stored_checkpoint.hpp"
#include "plan/extents.hpp"
#include "plan/pieces.hpp"

namespace cairn::test {

struct ExchangeShape {
  int ranks = 1;
  int aggregators = 1;  ///< ranks that own extents
  std::uint64_t block_bytes = 64;
  std::uint64_t window_bytes = 256;
  std::uint64_t buffer_bytes = 1ULL << 20;
  std::uint64_t tensor_bytes = 4096;  ///< approximate size of the larger tensors
  bool share_memory = true;           ///< ranks of a node share memory; otherwise all bytes travel in messages
  bool on_device = false;             ///< whether some of each rank's memory boxes are on a device
  bool replicas = false;  ///< shards overlap, as in a load; otherwise each element has one holder, as in a save
};

struct ExchangeCase {
  ExchangeShape shape;
  format::StoredCheckpoint stored;
  std::vector<base::Bytes> files;                    ///< content of stored.files
  std::vector<std::vector<plan::MemoryBox>> memory;  ///< by rank; without bytes
  std::vector<std::vector<plan::Piece>> pieces;      ///< by rank; piece i belongs to memory box i
};

ExchangeCase make_exchange_case(std::mt19937_64& random, const ExchangeShape& shape);

/// Collective: gathers all parts and compares every window with the files. Returns the bytes compared on this rank;
/// bytes of the files that no tensor covers must stay untouched.
std::uint64_t check_gather(comm::Communicator& communicator, const ExchangeCase& c);

/// Collective: scatters the files and compares all memory. Returns the bytes compared on this rank.
std::uint64_t check_scatter(comm::Communicator& communicator, const ExchangeCase& c);

/// Collective: both functions gather and scatter random cases of `shape`, with and without shared memory. They return
/// the number of bytes that this rank compared. check_short_runs() has windows, blocks and buffers of many sizes;
/// check_long_runs() has runs that are long enough for separate messages.
std::uint64_t check_short_runs(comm::Communicator& communicator, ExchangeShape shape, std::uint64_t seed, int repeats);
std::uint64_t check_long_runs(comm::Communicator& communicator, ExchangeShape shape, std::uint64_t seed);

}  // namespace cairn::test
