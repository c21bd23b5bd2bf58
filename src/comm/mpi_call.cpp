#include "comm/mpi_call.hpp"

#include <fmt/core.h>

#include <array>
#include <atomic>

#include "base/checked.hpp"
#include "base/internal_error.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "comm/mpi.hpp"

namespace cairn::comm {

std::string mpi_error_text(int code) {
  std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) return fmt::format("MPI error {}", code);
  return base::printable(std::string_view(text.data(), static_cast<std::size_t>(length)), MPI_MAX_ERROR_STRING);
}

namespace internal {
namespace {

constexpr std::uint64_t kChunkBytes = 1ULL << 30;
std::atomic<std::uint64_t> chunk_limit{kChunkBytes};

}  // namespace

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  int rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  throw Error(ErrorKind::kIo, fmt::format("{} failed on world rank {}: {}", call, rank, mpi_error_text(code)));
}

int to_count(std::uint64_t value) { return base::narrow<int>(value, "MPI count"); }

std::uint64_t chunk_bytes() { return chunk_limit.load(std::memory_order_relaxed); }

void set_chunk_bytes(std::uint64_t bytes) {
  if (bytes > kChunkBytes) throw base::internal_error(fmt::format("chunk limit of {} bytes is above 1 GiB", bytes));
  chunk_limit.store(bytes == 0 ? kChunkBytes : bytes, std::memory_order_relaxed);
}

void flip_top_bits(std::span<std::uint64_t> values) {
  constexpr std::uint64_t kTopBit = 1ULL << 63;
  for (std::uint64_t& value : values) value ^= kTopBit;
}

bool mpi_is_up() {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized != 0 && finalized == 0;
}

}  // namespace internal
}  // namespace cairn::comm
