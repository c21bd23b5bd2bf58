// How calls begin: on which communicators, with which limit, and that all ranks are in the same one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "cairn/log.hpp"
#include "cairn/staging.hpp"
#include "expect_error.hpp"
#include "sharded_state.hpp"
#include "shared_temp_dir.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

Options options_of_limit(double seconds) {
  Options options = options_for_small_state();
  options.waiting.limit_s = seconds;
  return options;
}

/// The lines of warnings and errors of this rank, while it lives.
class Heard {
 public:
  Heard() {
    set_log_sink([this](LogLevel level, std::string_view line) {
      const std::lock_guard lock(mutex_);
      if (level >= LogLevel::kWarning) lines_ += std::string(line) + "; ";
    });
  }
  ~Heard() { set_log_sink({}); }
  Heard(const Heard&) = delete;
  Heard& operator=(const Heard&) = delete;
  std::string lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::string lines_;
};

TEST(Limits, HoweverLongTheEndIsWaitedFor) {
  const SharedTempDir root;
  for (const double seconds : {1e10, 1e30, 1e300}) {
    Heard heard;
    {
      Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options_of_limit(seconds));
      EXPECT_EQ(checkpointer.latest(), std::nullopt);
    }
    EXPECT_EQ(heard.lines(), "") << seconds;
  }
}

TEST(Given, NoCommunicatorAtAll) {
  const SharedTempDir root;
  const Options options = options_of_limit(20);
  const auto refused = [](const std::function<void()>& call) {
    expect_error(ErrorKind::kUsage, call, {"the communicator is MPI_COMM_NULL", "give one of the ranks"});
  };
  refused([&] { Checkpointer(MPI_COMM_NULL, root.path(), options); });
  refused([&] { stage(MPI_COMM_NULL, root / "staged", {}, options); });
  refused([&] { load_from(MPI_COMM_NULL, root.path(), {}, options); });
}

TEST(Given, AnIntercommunicator) {
  const World world;
  const SharedTempDir root;
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm between = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, world.rank % 2, world.rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - world.rank % 2, 1, &between);
  expect_error(ErrorKind::kUsage, [&] { Checkpointer(between, root.path(), options_of_limit(20)); },
               {"is an intercommunicator", "MPI_Intercomm_merge"});
  MPI_Comm_free(&between);
  MPI_Comm_free(&half);
}

void end_all(MPI_Comm* /*communicator*/, int* code, ...) { ADD_FAILURE() << "MPI error " << *code; }

/// The program's own handler stays, and is not asked.
TEST(Given, ItsErrorHandlerStays) {
  const SharedTempDir root;
  MPI_Comm given = MPI_COMM_NULL;
  MPI_Errhandler own = MPI_ERRHANDLER_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &given);
  MPI_Comm_create_errhandler(end_all, &own);
  MPI_Comm_set_errhandler(given, own);
  { const Checkpointer checkpointer(given, root.path(), options_of_limit(20)); }
  MPI_Errhandler after = MPI_ERRHANDLER_NULL;
  MPI_Comm_get_errhandler(given, &after);
  EXPECT_EQ(after, own);
  MPI_Errhandler_free(&after);
  MPI_Errhandler_free(&own);
  MPI_Comm_free(&given);
}

}  // namespace
}  // namespace cairn::test
