// What a save looks for in the state, through the public interface: replicas that differ, also in save_async.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <filesystem>
#include <functional>
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
using testing::HasSubstr;
using testing::IsEmpty;

/// A tensor that every rank holds whole, so large that each writes a part.
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
  refused([&] { static_cast<void>(checkpointer.save_async(2, state.sources())); });  // at once: nothing is begun
  EXPECT_FALSE(has(2));
  state.fill(2);
  SaveTicket ticket = checkpointer.save_async(2, state.sources());
  state.fill(is_last() ? 3.5F : 3.0F);
  EXPECT_THAT(ticket.wait().warnings, IsEmpty()) << "what was written afterwards is not of this save";
  refused([&] { checkpointer.save(3, state.sources()); });
  EXPECT_FALSE(has(3));
  EXPECT_EQ(checkpointer.latest(), 2U);
}

/// The whole state is copied, and compared behind the program.
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

}  // namespace
}  // namespace cairn::test
