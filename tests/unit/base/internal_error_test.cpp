// The message of a bug: its text, its place in the sources, its rank.
#include "base/internal_error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

#include "base/checked.hpp"
#include "base/log.hpp"

namespace cairn::base {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(InternalError, NamesPlaceAndRank) {
  set_log_rank(3, 4);
  const Error error = internal_error("two windows overlap");
  EXPECT_EQ(error.kind(), ErrorKind::kInternal);
  EXPECT_THAT(error.what(), StartsWith("two windows overlap (a bug in Cairn, at "));
  EXPECT_THAT(error.what(), HasSubstr("internal_error_test.cpp:" + std::to_string(__LINE__ - 3) + " on rank 3)"));
}

TEST(InternalError, LeavesOutTheFoldersBeforeTheSources) {
  try {
    add(std::numeric_limits<std::uint64_t>::max(), 1, "a size");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("at base/checked.hpp:"));
    EXPECT_THAT(error.what(), Not(HasSubstr("src/")));
  }
}

}  // namespace
}  // namespace cairn::base
