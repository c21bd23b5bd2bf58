// Expects strings and errors to be the same on all ranks.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <string>

#include "cairn/error.hpp"
#include "expect_error.hpp"

namespace cairn::test {

/// Collective over MPI_COMM_WORLD. Expects the string to equal rank 0's string.
inline void expect_same_everywhere(const std::string& text) {
  int length = static_cast<int>(text.size());
  MPI_Bcast(&length, 1, MPI_INT, 0, MPI_COMM_WORLD);
  std::string first = text;
  first.resize(static_cast<std::size_t>(length));
  MPI_Bcast(first.data(), length, MPI_CHAR, 0, MPI_COMM_WORLD);
  EXPECT_EQ(text, first);
}

/// Collective. Expects `action` to throw the same Error on all ranks, of `kind` and with `part` in its message.
template <class Action>
void expect_error_everywhere(ErrorKind kind, const std::string& part, Action action) {
  const std::string text = message_of_error(kind, action);
  EXPECT_THAT(text, testing::HasSubstr(part));
  expect_same_everywhere(text);
}

}  // namespace cairn::test
