// Helpers for the MPI calls of this layer: they turn return codes into Errors and 64-bit sizes into int counts.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <span>

#include "comm/communicator.hpp"

namespace cairn::comm::internal {

/// Throws Error(kIo) with MPI's own message unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call);

/// Converts a size to an MPI count; throws Error(kInternal) if the value does not fit in an int.
int to_count(std::uint64_t value);

/// Most bytes in one MPI call; larger transfers are split. 1 GiB, so that every count and displacement fits in an int.
std::uint64_t chunk_bytes();

/// For tests: lowers the limit, which must be the same on all ranks, so that small messages are split. 0: 1 GiB.
void set_chunk_bytes(std::uint64_t bytes);

/// MPICH 4.0.2 (Debian 12) compares MPI_UINT64_T as signed numbers. With their top bits flipped, unsigned numbers
/// compared as signed ones (MPI_INT64_T) keep their order on every MPI.
void flip_top_bits(std::span<std::uint64_t> values);

/// Tags of messages inside collectives, and of beats.
constexpr int kCollectiveTag = kMaxTag + 1;
constexpr int kBeatTag = kMaxTag + 2;

/// Whether MPI is between MPI_Init and MPI_Finalize.
bool mpi_is_up();

}  // namespace cairn::comm::internal
