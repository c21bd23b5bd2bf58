// Checks of the state by synchronous and asynchronous saves and after a resume, through the public interface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "expect_error.hpp"
#include "moment_state.hpp"
#include "same_text.hpp"
#include "sharded_state.hpp"
#include "shared_temp_dir.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A tensor that every rank holds whole, large enough that each rank writes a part.
class Replicated {
 public:
  explicit Replicated(int ranks) : values_(static_cast<std::size_t>(ranks) * 100'000) {
    source_.name = "w";
    source_.shape = {values_.size()};
    source_.boxes = {{{0}, source_.shape}};
    source_.data = values_.data();
  }
  void fill(float first) {
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = first + static_cast<float>(i);
  }
  [[nodiscard]] std::vector<Source> sources() const { return {source_}; }

 private:
  std::vector<float> values_;
  Source source_;
};

class Checked : public testing::Test {
 protected:
  [[nodiscard]] bool is_last() const { return world_.rank == world_.ranks - 1; }
  Checkpointer make(const Options& options = {}) const { return {MPI_COMM_WORLD, root_.path(), options}; }
  [[nodiscard]] bool has(std::uint64_t step) const {
    return fs::exists(root_.path() / ("checkpoint-" + std::to_string(step)));
  }

  const World world_;
  SharedTempDir root_;
};

TEST_F(Checked, ReplicasInSavesOfBothKinds) {
  Checkpointer checkpointer = make();
  Replicated state(world_.ranks);
  state.fill(1);
  EXPECT_THAT(checkpointer.save(1, state.sources()).warnings, IsEmpty());
  state.fill(is_last() ? 2.5F : 2.0F);
  const auto refused = [&](const std::function<void()>& call) {
    const std::string message = message_of_error(ErrorKind::kState, call);
    EXPECT_THAT(message, HasSubstr("tensor 'w' (section model): its replicas differ"));
    expect_same_everywhere(message);
  };
  refused([&] { checkpointer.save(2, state.sources()); });
  refused([&] { static_cast<void>(checkpointer.save_async(2, state.sources())); });  // the call itself refuses
  EXPECT_FALSE(has(2));
  state.fill(2);
  SaveTicket ticket = checkpointer.save_async(2, state.sources());
  state.fill(is_last() ? 3.5F : 3.0F);
  EXPECT_THAT(ticket.wait().warnings, IsEmpty()) << "what was written afterwards is not of this save";
  refused([&] { checkpointer.save(3, state.sources()); });
  EXPECT_FALSE(has(3));
  EXPECT_EQ(checkpointer.latest(), 2U);
}

/// The snapshot has the whole state, and is compared in the background.
TEST_F(Checked, ReplicasOfMomentsThatAreCodedInTheBackground) {
  Options options;
  options.quantisation.codecs["optimizer"] = "q8";
  options.checks.replicas_differ = ReplicasDiffer::kRefuse;
  Checkpointer checkpointer = make(options);
  MomentRank state(Cut::kReplicated, world_.rank, world_.ranks);
  state.fill(1);
  SaveTicket good = checkpointer.save_async(1, state.sources());
  EXPECT_THAT(good.wait().warnings, IsEmpty());
  if (is_last()) {
    for (std::size_t i = 0; i < state.tensors().size(); ++i) {
      if (state.tensors()[i].name == "aligned/moment2_0") std::ranges::fill(state.memory(i), std::byte{0});
    }
  }
  SaveTicket bad = checkpointer.save_async(2, state.sources());
  const std::string message = message_of_error(ErrorKind::kState, [&] { bad.wait(); });
  EXPECT_THAT(message, HasSubstr("tensor 'aligned/moment2_0' (section optimizer): its replicas differ"));
  expect_same_everywhere(message);
  EXPECT_FALSE(has(2));
}

/// Long runs of a snapshot may bypass the windows; replicas count once.
TEST_F(Checked, ValuesThatAreNotFinite) {
  Options options;
  options.checks.non_finite = NonFinite::kCount;
  options.checks.replicas_differ = ReplicasDiffer::kWarn;
  Checkpointer checkpointer = make(options);
  Replicated state(world_.ranks);
  state.fill(std::numeric_limits<float>::infinity());
  const std::uint64_t values = state.sources()[0].shape[0];
  for (const bool is_async : {false, true}) {
    const Report report =
        is_async ? checkpointer.save_async(2, state.sources()).wait() : checkpointer.save(1, state.sources());
    ASSERT_TRUE(report.non_finite);
    EXPECT_EQ(report.non_finite->infinities, values);
    EXPECT_EQ(report.non_finite->nans, 0U);
    ASSERT_EQ(report.non_finite->first.size(), 1U);
    EXPECT_EQ(report.non_finite->first[0].name, "w");
  }
}

/// The snapshot is written in the background; the ticket has the result.
TEST_F(Checked, ValuesThatAreNotFiniteInTheBackground) {
  Options options;
  options.checks.non_finite = NonFinite::kWarn;
  Replicated state(world_.ranks);
  state.fill(std::numeric_limits<float>::infinity());
  EXPECT_THAT(make(options).save_async(1, state.sources()).wait().warnings,
              ElementsAre(HasSubstr("values are not finite: 'w' (section model)")));
  options.checks.non_finite = NonFinite::kRefuse;
  Checkpointer checkpointer = make(options);
  SaveTicket refused = checkpointer.save_async(2, state.sources());
  state.fill(1);
  expect_error_everywhere(ErrorKind::kState, "values are not finite: 'w' (section model)", [&] { refused.wait(); });
  EXPECT_FALSE(has(2));
  EXPECT_EQ(checkpointer.latest(), 1U);
  const Report report = checkpointer.save_async(2, state.sources()).wait();
  EXPECT_THAT(report.earlier_failure, HasSubstr("values are not finite"));
  EXPECT_TRUE(has(2));
}

/// A save is compared with the last synchronous or asynchronous save, or with a later load.
TEST_F(Checked, StaleSectionsAfterSavesAndLoads) {
  Replicated state(world_.ranks);
  const auto is_stale = [](const Report& report, std::uint64_t since) {
    EXPECT_EQ(report.unchanged_since, since);
    return report.warnings.size() == 1 && report.warnings[0].find("section 'model'") != std::string::npos;
  };
  {
    Checkpointer checkpointer = make();
    state.fill(1);
    EXPECT_THAT(checkpointer.save(1, state.sources()).warnings, IsEmpty());
    EXPECT_TRUE(is_stale(checkpointer.save_async(2, state.sources()).wait(), 1)) << "kept from synchronous saves";
    EXPECT_TRUE(is_stale(checkpointer.save_async(3, state.sources()).wait(), 2));
    state.fill(2);
    EXPECT_FALSE(is_stale(checkpointer.save(4, state.sources()), 3));
  }
  Checkpointer resumed = make();
  std::vector<float> memory(state.sources()[0].shape[0]);
  Target target;
  static_cast<Shard&>(target) = state.sources()[0];
  target.data = memory.data();
  EXPECT_EQ(resumed.load_latest(std::vector<Target>{target}).step, 4U);
  EXPECT_TRUE(is_stale(resumed.save_async(5, state.sources()).wait(), 4)) << "nothing was trained since the load";
  state.fill(3);
  EXPECT_FALSE(is_stale(resumed.save_async(6, state.sources()).wait(), 5));
  resumed.load(5, std::vector<Target>{target});
  EXPECT_FALSE(is_stale(resumed.save(7, state.sources()), 5)) << "compared with what was loaded, not with step 6";
}

TEST_F(Checked, StaleSectionsAreRefusedInTheBackground) {
  Options options;
  options.checks.stale = StaleSections::kRefuse;
  Checkpointer checkpointer = make(options);
  Replicated state(world_.ranks);
  state.fill(1);
  checkpointer.save_async(1, state.sources()).wait();
  SaveTicket refused = checkpointer.save_async(2, state.sources());
  expect_error_everywhere(ErrorKind::kState, "section 'model' has changed since step 1", [&] { refused.wait(); });
  EXPECT_FALSE(has(2));
  state.fill(2);
  const Report report = checkpointer.save_async(3, state.sources()).wait();
  EXPECT_THAT(report.earlier_failure, HasSubstr("has changed since step 1"));
  EXPECT_EQ(report.unchanged_since, 1U) << "a refused step is not the one before";
  EXPECT_EQ(checkpointer.latest(), 3U);
}

}  // namespace
}  // namespace cairn::test
