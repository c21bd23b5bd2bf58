// Tensors that a rank gives twice: every call that is given shards throws kUsage on all ranks, and writes nothing.
// Several shards of one tensor are legal as long as no element is given twice.
#include <gtest/gtest.h>
#include <mpi.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "cairn/staging.hpp"
#include "expect_error.hpp"
#include "hdf5/library.hpp"
#include "same_text.hpp"
#include "shared_temp_dir.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

using Values = std::vector<float>;

Shard shard_of(const std::string& name, std::uint64_t elements, const std::vector<Box>& boxes) {
  return {"model", name, DType::kF32, {elements}, boxes};
}

Source source_of(const std::string& name, std::uint64_t elements, const std::vector<Box>& boxes, const Values& data) {
  return {shard_of(name, elements, boxes), data.data()};
}

Target target_of(const std::string& name, std::uint64_t elements, const std::vector<Box>& boxes, Values& data) {
  return {shard_of(name, elements, boxes), data.data()};
}

class Names : public testing::Test {
 protected:
  /// Expects every call that saves `state` to throw kUsage, with `parts` in the message, and to write nothing.
  void expect_refused(const std::vector<Source>& state, std::initializer_list<std::string_view> parts) {
    Checkpointer checkpointer(MPI_COMM_WORLD, root_.path());
    const std::vector<std::function<void()>> calls = {
        [&] { checkpointer.save(1, state); },
        [&] { static_cast<void>(checkpointer.save_async(1, state).wait()); },
        [&] { checkpointer.prepare_async(state); },
    };
    for (const auto& call : calls) {
      const std::string message = message_of_error(ErrorKind::kUsage, call);
      expect_one_line(message, parts);
      expect_same_everywhere(message);
    }
    EXPECT_TRUE(checkpointer.steps().empty());
    if (!hdf5::is_available()) return;
    expect_error(
        ErrorKind::kUsage, [&] { stage(MPI_COMM_WORLD, root_ / "state.h5", state); }, parts);
    EXPECT_FALSE(std::filesystem::exists(root_ / "state.h5"));
  }
  /// Expects every call that loads `targets` to throw kUsage, with `parts` in the message.
  void expect_unloadable(Checkpointer& checkpointer, const std::vector<Target>& targets,
                         std::initializer_list<std::string_view> parts) {
    const std::vector<std::function<void()>> calls = {
        [&] { checkpointer.load(1, targets); },
        [&] { checkpointer.load_latest(targets); },
        [&] { load_from(MPI_COMM_WORLD, root_ / "checkpoint-1", targets); },
    };
    for (const auto& call : calls) {
      const std::string message = message_of_error(ErrorKind::kUsage, call);
      expect_one_line(message, parts);
      expect_same_everywhere(message);
    }
  }

  const World world_;
  SharedTempDir root_;
  const bool is_last_ = world_.rank == world_.ranks - 1;
};

TEST_F(Names, ASourceThatIsGivenTwiceIsNamed) {
  const Values a(4, 1.5F);
  const Values b(4, 7.0F);
  const Box whole{{0}, {4}};
  std::vector<Source> state = {source_of("v", 4, {whole}, a), source_of("w", 4, {whole}, a)};
  if (is_last_) state.push_back(source_of("w", 4, {whole}, b));
  expect_refused(state, {"tensor 'w'", "given twice", "[0:4] and [0:4]"});
  if (is_last_) state.back() = source_of("w", 4, {{{2}, {1}}}, b);
  expect_refused(state, {"tensor 'w'", "given twice", "[2:3]"});
  if (is_last_) state.back() = source_of("w", 3, {{{0}, {3}}}, b);
  expect_refused(state, {"tensor 'w'", "F32 [4] and as F32 [3]"});
  if (is_last_) state.back() = source_of("", 4, {whole}, b);
  expect_refused(state, {"the name is empty"});
  if (is_last_) state.back() = source_of("x", 4, {{{0}, {2}}, {{0}, {2}}}, b);
  expect_refused(state, {"tensor 'x'", "common elements", "[0:2] and [0:2]"});
  if (is_last_) state.back() = {{"model", "scalar", DType::kF32, {}, {{{}, {}}, {{}, {}}}}, b.data()};
  expect_refused(state, {"tensor 'scalar'", "common elements"});
}

TEST_F(Names, OnlyOneTypeCountsWhereTheSaveHasCodes) {
  Options options;
  options.quantisation.codecs["optimizer"] = "q8";
  Checkpointer checkpointer(MPI_COMM_WORLD, root_.path(), options);
  const Values a(64, 1.0F);
  std::vector<Source> state = {source_of("w.exp_avg", 64, {{{0}, {64}}}, a),
                               source_of("w.exp_avg_sq", 64, {{{0}, {64}}}, a)};
  for (Source& source : state) source.section = "optimizer";
  if (is_last_) state.push_back(state[1]);
  const auto expect = [&](const std::function<void()>& call) {
    expect_error(ErrorKind::kUsage, call, {"w.exp_avg_sq", "given twice"});
  };
  expect([&] { checkpointer.save(1, state); });
  expect([&] { checkpointer.prepare_async(state); });
  expect([&] { static_cast<void>(checkpointer.save_async(1, state)); });
  EXPECT_FALSE(checkpointer.latest().has_value());
}

TEST_F(Names, ShardsOfOneTensorAreSavedAndLoadedWhereTheyAreDisjoint) {
  const Values low = {1, 2};
  const Values high = {4, 3};  // two boxes, in descending order
  const std::vector<Source> state = {source_of("w", 4, {{{0}, {2}}}, low),
                                     source_of("w", 4, {{{3}, {1}}, {{2}, {1}}}, high), source_of("w", 4, {}, low)};
  Checkpointer checkpointer(MPI_COMM_WORLD, root_.path());
  checkpointer.save(1, state);
  Values first(3);
  Values second(1);
  checkpointer.load(
      1, std::vector<Target>{target_of("w", 4, {{{1}, {3}}}, first), target_of("w", 4, {{{0}, {1}}}, second)});
  EXPECT_EQ(first, (Values{2, 3, 4}));
  EXPECT_EQ(second, (Values{1}));
  Values ghosts(5);  // boxes of one target may overlap
  checkpointer.load(1, std::vector<Target>{target_of("w", 4, {{{0}, {3}}, {{1}, {2}}}, ghosts)});
  EXPECT_EQ(ghosts, (Values{1, 2, 3, 2, 3}));
}

TEST_F(Names, ATargetThatIsGivenTwiceIsNamed) {
  const Values values = {1, 2, 3, 4};
  Checkpointer checkpointer(MPI_COMM_WORLD, root_.path());
  checkpointer.save(1, std::vector<Source>{source_of("w", 4, {{{0}, {4}}}, values)});
  Values a(4, -1.0F);
  Values b(4, -1.0F);
  std::vector<Target> targets = {target_of("w", 4, {{{0}, {4}}}, a)};
  if (is_last_) targets.push_back(target_of("w", 4, {{{3}, {1}}}, b));
  expect_unloadable(checkpointer, targets, {"tensor 'w'", "given twice", "[0:4] and [3:4]"});
  if (is_last_) targets.back() = target_of("", 4, {{{3}, {1}}}, b);
  expect_unloadable(checkpointer, targets, {"the name is empty"});
  EXPECT_EQ(a, Values(4, -1.0F));
  EXPECT_EQ(b, Values(4, -1.0F));
}

}  // namespace
}  // namespace cairn::test
