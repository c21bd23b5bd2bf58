// Checkpoints of a part of a state: what is saved, who may load it, and that none of them stands for a whole state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "environment.hpp"
#include "expect_error.hpp"
#include "format/manifest.hpp"
#include "same_text.hpp"
#include "sharded_state.hpp"
#include "shared_temp_dir.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kOptimizer = "optimizer";

class Part : public testing::Test {
 protected:
  [[nodiscard]] static Options options() {
    Options options = options_for_small_state("posix");
    options.run_id = "run";
    return options;
  }
  [[nodiscard]] static Options options_of(std::vector<Selection> only, std::optional<BaseCheckpoint> base = {}) {
    Options of_part = options();
    of_part.save_only = std::move(only);
    of_part.base = std::move(base);
    return of_part;
  }
  [[nodiscard]] Checkpointer make(const Options& options) const { return {MPI_COMM_WORLD, root_.path(), options}; }
  Report save(Checkpointer& checkpointer, std::uint64_t step) {
    state_.fill(static_cast<int>(step));
    return checkpointer.save(step, state_.sources());
  }
  /// Saves in a life of its own.
  void live(const Options& options, const std::vector<std::uint64_t>& steps) {
    Checkpointer checkpointer = make(options);
    for (const std::uint64_t step : steps) save(checkpointer, step);
  }
  std::vector<Target> targets_of(const std::function<bool(const Target&)>& wanted) {
    std::vector<Target> targets;
    for (const Target& target : loaded_.targets()) {
      if (wanted(target)) targets.push_back(target);
    }
    return targets;
  }
  /// Collective: the bytes of these targets that are equal to those of `step`, or a failure of the test.
  void expect_loads(Checkpointer& checkpointer, std::uint64_t step, const std::function<bool(const Target&)>& wanted,
                    const LoadOptions& load_options = {}) {
    loaded_.clear();
    state_.clear();
    const std::uint64_t untouched = loaded_.matching_bytes(static_cast<int>(step));
    const Report report = checkpointer.load(step, targets_of(wanted), load_options);
    EXPECT_TRUE(report.missing.empty());
    std::uint64_t mine = 0;
    for (const Target& target : targets_of(wanted)) {
      for (const Box& box : target.boxes) {
        std::uint64_t bits = bits_of(target.dtype);
        for (const std::uint64_t n : box.shape) bits *= n;
        mine += bits / 8;
      }
    }
    EXPECT_GE(loaded_.matching_bytes(static_cast<int>(step)), mine);
    EXPECT_LE(loaded_.matching_bytes(static_cast<int>(step)), mine + untouched);
  }
  /// Collective: the message of the load of the whole state, which must fail because the step is a part.
  std::string refusal(Checkpointer& checkpointer, std::uint64_t step) {
    try {
      (void)checkpointer.load(step, loaded_.targets());
      ADD_FAILURE() << "a part was loaded as a whole state";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kNotFound) << error.what();
      EXPECT_EQ(error.missing(), Missing::kPart) << error.what();
      expect_same_everywhere(error.what());
      return error.what();
    }
    return {};
  }
  [[nodiscard]] fs::path directory(std::uint64_t step) const { return root_ / ("checkpoint-" + std::to_string(step)); }
  [[nodiscard]] format::Manifest manifest(std::uint64_t step) const {
    MPI_Barrier(MPI_COMM_WORLD);
    return format::parse_manifest(read_file(directory(step) / "cairn.json"), "cairn.json");
  }
  [[nodiscard]] static std::vector<std::string> parts_of(Checkpointer& checkpointer) {
    std::vector<std::string> parts;
    for (const StepInfo& step : checkpointer.steps()) {
      EXPECT_TRUE(step.complete);
      parts.push_back(std::to_string(step.step) + (step.is_void ? " void " : " ") + step.part);
    }
    return parts;
  }

  const World world_;
  const SharedTempDir root_;
  RankState state_{small_state(), Cut::kRows, world_.rank, world_.ranks};
  RankState loaded_{small_state(), Cut::kFlat, world_.rank, world_.ranks};
};

bool is_of_optimizer(const Target& target) { return target.section == kOptimizer; }
bool is_whole(const Target&) { return true; }

TEST_F(Part, IsNeverTheNewest) {
  live(options(), {10});
  live(options_of({{{kOptimizer}, {}}}, BaseCheckpoint{10, "", "run"}), {20});
  Checkpointer checkpointer = make(options());
  EXPECT_EQ(checkpointer.latest(), 10);
  EXPECT_THAT(parts_of(checkpointer), ElementsAre("10 ", "20 sections optimizer; base: step 10 (run)"));
  EXPECT_EQ(read_file(root_ / "latest_checkpointed_iteration.txt"), "10\n");
  EXPECT_EQ(checkpointer.load_latest(loaded_.targets()).step, 10U);
  expect_one_line(refusal(checkpointer, 20), {"checkpoint-20", "only a part of a state (sections optimizer)",
                                              "section 'model'", "load the others from its base, step 10 (run)"});
  expect_loads(checkpointer, 20, is_of_optimizer);
  expect_loads(checkpointer, 10, is_whole);
  for (const TensorInfo& tensor : checkpointer.tensors(20)) EXPECT_EQ(tensor.section, kOptimizer);
  const format::Manifest of_part = manifest(20);
  for (const format::ManifestFile& file : of_part.data_files) EXPECT_EQ(file.section, kOptimizer);
  // A run does not resume from a part that it reads: it goes on from step 10.
  expect_loads(checkpointer, 20, is_of_optimizer);
  save(checkpointer, 30);
  EXPECT_EQ(manifest(30).lineage.back().step, 10U);
  EXPECT_EQ(checkpointer.latest(), 30);
}

TEST_F(Part, HoldsTheNamesThatWereAskedFor) {
  const auto is_wanted = [](const Target& target) {
    return target.name.starts_with("model.layers.3.") ||
           (target.section == "model" && target.name == "model.norm.weight");
  };
  live(options_of({{{}, {"model.layers.3.*"}}, {{"model"}, {"*.norm.*"}}}), {1});
  Checkpointer checkpointer = make(options());
  EXPECT_EQ(checkpointer.tensors(1).size(), 6U);
  expect_loads(checkpointer, 1, is_wanted);
  expect_one_line(refusal(checkpointer, 1),
                  {"names model.layers.3.*, or names *.norm.* of sections model", "the checkpoint that has them"});
}

TEST_F(Part, TakesNoPlaceOfAWholeState) {
  live(options(), {10, 20});
  {
    Checkpointer exporter = make(options_of({{{"model"}, {}}}));
    expect_loads(exporter, 10, is_whole);
    save(exporter, 15);  // with a lineage that ends at step 10
    EXPECT_EQ(exporter.latest(), 20);
    EXPECT_THAT(parts_of(exporter), ElementsAre("10 ", "15 sections model", "20 "));
    expect_error(ErrorKind::kUsage, [&] { save(exporter, 20); }, {"checkpoint-20", "exists already"});
  }
  Checkpointer checkpointer = make(options());
  expect_loads(checkpointer, 20, is_whole);
  EXPECT_EQ(checkpointer.load_latest(loaded_.targets()).step, 20U);
  EXPECT_THAT(parts_of(checkpointer), ElementsAre("10 ", "15 sections model", "20 "));
  expect_error(ErrorKind::kUsage, [&] { save(checkpointer, 15); }, {"checkpoint-15", "exists already"});
}

TEST_F(Part, IsResumedFromWhereAsked) {
  const Options of_part = options_of({{{kOptimizer}, {}}}, BaseCheckpoint{{}, "/models/8b", ""});
  live(of_part, {10, 20, 30});
  LoadOptions parts;
  parts.parts = true;
  {
    Checkpointer checkpointer = make(of_part);
    EXPECT_EQ(checkpointer.latest(), std::nullopt);
    try {
      (void)checkpointer.load_latest(targets_of(is_of_optimizer));
      ADD_FAILURE() << "a part was taken for the newest state";
    } catch (const Error& error) {
      EXPECT_EQ(error.missing(), Missing::kAnyStep);
      expect_one_line(error.what(), {"no checkpoint to resume from", "steps 10, 20, 30 hold only a part"});
    }
    EXPECT_EQ(checkpointer.load_latest(targets_of(is_of_optimizer), parts).step, 30U);
    expect_loads(checkpointer, 20, is_of_optimizer, parts);
    save(checkpointer, 30);  // left behind by the resumption from 20
    EXPECT_EQ(manifest(30).lineage.back().step, 20U);
  }
  live(options(), {25});
  Checkpointer checkpointer = make(options());
  EXPECT_EQ(checkpointer.load_latest(loaded_.targets()).step, 25U);
  EXPECT_EQ(checkpointer.load_latest(loaded_.targets(), parts).step, 25U);  // saved after the parts
}

TEST_F(Part, LeavesOutTheOptimizer) {
  Options without = options();
  without.no_save_optim = true;
  live(without, {5});
  Checkpointer checkpointer = make(options());
  EXPECT_EQ(checkpointer.latest(), std::nullopt);
  EXPECT_THAT(parts_of(checkpointer), ElementsAre("5 all without section optimizer"));
  expect_one_line(refusal(checkpointer, 5), {"all without section optimizer", "section 'optimizer'"});
  // All other targets are loaded; those of the optimizer stay.
  LoadOptions without_optimizer;
  without_optimizer.list_not_loaded = true;
  without_optimizer.no_load_optim = true;
  const Report report = checkpointer.load(5, loaded_.targets(), without_optimizer);
  EXPECT_TRUE(report.missing.empty());
  EXPECT_TRUE(report.not_loaded.empty());
  expect_loads(checkpointer, 5, [](const Target& target) { return !is_of_optimizer(target); });
  without_optimizer.parts = true;
  EXPECT_EQ(checkpointer.load_latest(loaded_.targets(), without_optimizer).step, 5U);
  try {
    (void)checkpointer.load(5, targets_of(is_of_optimizer), without_optimizer);
    ADD_FAILURE() << "nothing was left to load";
  } catch (const Error& error) {
    EXPECT_EQ(error.missing(), Missing::kSelected) << error.what();
  }
  live(options(), {6});
  Checkpointer other = make(options());
  loaded_.fill(7);
  const Report whole = other.load(6, loaded_.targets(), without_optimizer);
  EXPECT_EQ(whole.step, 6U);
  EXPECT_LT(loaded_.matching_bytes(6), loaded_.bytes());
}

TEST_F(Part, IsSavedInTheBackground) {
  live(options(), {1});
  Checkpointer checkpointer = make(options_of({{{"master_weights"}, {}}}, BaseCheckpoint{1, "", ""}));
  state_.fill(2);
  checkpointer.prepare_async(state_.sources());
  SaveTicket ticket = checkpointer.save_async(2, state_.sources());
  state_.fill(9);
  ticket.wait();
  EXPECT_EQ(checkpointer.latest(), 1);
  expect_loads(checkpointer, 2, [](const Target& target) { return target.section == "master_weights"; });
  expect_one_line(refusal(checkpointer, 2), {"sections master_weights"});
}

TEST_F(Part, IsPrunedApart) {
  live(options(), {10, 20, 30});
  Options of_part = options_of({{{kOptimizer}, {}}}, BaseCheckpoint{10, "", ""});
  live(of_part, {31, 32, 33});
  of_part.base.reset();
  of_part.retention.keep_last = 2;
  live(of_part, {34});
  Checkpointer checkpointer = make(options());
  // Step 10 was the base of 33 when the save of 34 pruned.
  EXPECT_THAT(parts_of(checkpointer),
              ElementsAre("10 ", "20 ", "30 ", "33 sections optimizer; base: step 10", "34 sections optimizer"));
  of_part.retention.keep_last = 1;
  live(of_part, {35});
  EXPECT_THAT(parts_of(checkpointer), ElementsAre("10 ", "30 ", "35 sections optimizer"));
  live(of_part, {36});
  EXPECT_THAT(parts_of(checkpointer), ElementsAre("30 ", "36 sections optimizer"));
}

TEST_F(Part, IsRefusedWithoutSense) {
  const auto expect_refused = [&](const Options& options, std::string_view says) {
    expect_error(ErrorKind::kUsage, [&] { live(options, {1}); }, {says});
  };
  expect_refused(options_of({{}}), "selects everything");
  expect_refused(options_of({}, BaseCheckpoint{1, "", ""}), "no effect on saves of whole states");
  expect_refused(options_of({{{kOptimizer}, {}}}, BaseCheckpoint{}), "is empty");
  expect_refused(options_of({{{kOptimizer}, {}}}, BaseCheckpoint{1, "/a", ""}), "a step of the root and a path");
  expect_refused(options_of({{{kOptimizer}, {}}}, BaseCheckpoint{1, "", ""}), "the one that is saved");
  expect_refused(options_of({{{"nowhere"}, {}}}), "no rank has a tensor of the part that is to be saved");
  expect_error(ErrorKind::kNotFound,
               [&] {
                 live(options_of({{{kOptimizer}, {}}}, BaseCheckpoint{3, "", ""}), {1});
               },
               {"Options::base: ", "checkpoint-3"});
  EXPECT_THAT(make(options()).steps(), IsEmpty());
}

}  // namespace
}  // namespace cairn::test
