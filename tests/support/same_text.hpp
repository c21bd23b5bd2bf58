// What all ranks shall say alike.
#pragma once

#include <gtest/gtest.h>
#include <mpi.h>

#include <string>

namespace cairn::test {

/// Collective over MPI_COMM_WORLD: every rank has the text of rank 0.
inline void expect_same_everywhere(const std::string& text) {
  int length = static_cast<int>(text.size());
  MPI_Bcast(&length, 1, MPI_INT, 0, MPI_COMM_WORLD);
  std::string first = text;
  first.resize(static_cast<std::size_t>(length));
  MPI_Bcast(first.data(), length, MPI_CHAR, 0, MPI_COMM_WORLD);
  EXPECT_EQ(text, first);
}

}  // namespace cairn::test
