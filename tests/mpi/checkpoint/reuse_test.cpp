// Files of frozen tensors that saves of several processes share, in the background and with other engines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <filesystem>
#include <string>

#include "cairn/checkpoint.hpp"
#include "sharded_state.hpp"
#include "shared_temp_dir.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;

/// Saves of the small state, of which all but the optimizer is frozen and has the content of version 1.
class Sharing : public testing::Test {
 protected:
  static Options options(const std::string& engine) {
    Options options = options_for_small_state(engine);
    options.frozen = {{{"model"}, {}}, {{"master_weights"}, {}}};
    options.reuse = Reuse::kHardLink;
    return options;
  }
  [[nodiscard]] Checkpointer make(const Options& options) const { return {MPI_COMM_WORLD, root_.path(), options}; }
  std::vector<Source> sources(int version) {
    frozen_.fill(1);
    trained_.fill(version);
    std::vector<Source> sources;
    for (const Source& source : frozen_.sources()) {
      if (source.section != "optimizer") sources.push_back(source);
    }
    for (const Source& source : trained_.sources()) {
      if (source.section == "optimizer") sources.push_back(source);
    }
    return sources;
  }
  void expect_loads(Checkpointer& checkpointer, std::uint64_t step) {
    RankState loaded(small_state(), Cut::kMixed, world_.rank, world_.ranks);
    checkpointer.load(step, loaded.targets());
    std::vector<Target> all = loaded.targets();
    std::uint64_t optimizer = 0;
    std::uint64_t others = 0;
    for (const Target& target : all) {
      for (const Box& box : target.boxes) {
        std::uint64_t bits = bits_of(target.dtype);
        for (const std::uint64_t n : box.shape) bits *= n;
        (target.section == "optimizer" ? optimizer : others) += bits / 8;
      }
    }
    EXPECT_GE(loaded.matching_bytes(1), others);
    EXPECT_GE(loaded.matching_bytes(static_cast<int>(step)), optimizer);
  }

  const World world_;
  const SharedTempDir root_;
  RankState frozen_{small_state(), Cut::kRows, world_.rank, world_.ranks};
  RankState trained_{small_state(), Cut::kRows, world_.rank, world_.ranks};
};

TEST_F(Sharing, InTheBackground) {
  for (const char* const engine : {"posix", "direct"}) {
    Checkpointer checkpointer = make(options(engine));
    const std::uint64_t first = engine[0] == 'p' ? 10 : 20;
    EXPECT_EQ(checkpointer.save_async(first, sources(static_cast<int>(first))).wait().reused_bytes == 0, first == 10);
    SaveTicket ticket = checkpointer.save_async(first + 1, sources(static_cast<int>(first) + 1));
    frozen_.fill(9);
    trained_.fill(9);
    const Report report = ticket.wait();
    EXPECT_EQ(report.reused_from, first);
    EXPECT_GT(report.reused_files, 2U);
    EXPECT_EQ(checkpointer.save(first + 2, sources(static_cast<int>(first) + 2)).reused_bytes, report.reused_bytes);
    for (std::uint64_t step = first; step < first + 3; ++step) expect_loads(checkpointer, step);
  }
}

TEST_F(Sharing, NotWhereTheSnapshotHasNoRoom) {
  Options small = options("posix");
  small.async.max_snapshot_bytes = 30'000;
  Checkpointer checkpointer = make(small);
  checkpointer.save_async(1, sources(1)).wait();
  const Report report = checkpointer.save_async(2, sources(2)).wait();
  EXPECT_TRUE(report.reused_bytes == 0 || report.reused_from == 1U);
  EXPECT_EQ(checkpointer.save(3, sources(3)).reused_from, 2U);
  for (const std::uint64_t step : {1, 2, 3}) expect_loads(checkpointer, step);
}

TEST_F(Sharing, NotThroughMpiIo) {
  Checkpointer checkpointer = make(options("mpiio"));
  checkpointer.save(1, sources(1));
  EXPECT_EQ(checkpointer.save(2, sources(2)).reused_bytes, 0U);
  for (const std::uint64_t step : {1, 2}) expect_loads(checkpointer, step);
}

}  // namespace
}  // namespace cairn::test
