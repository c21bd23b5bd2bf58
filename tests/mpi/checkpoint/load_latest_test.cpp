// load_latest loads the newest intact checkpoint, whatever was done to newer ones, and never anything else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "cairn/log.hpp"
#include "checkpoint/newest.hpp"
#include "expect_error.hpp"
#include "faults.hpp"
#include "random.hpp"
#include "same_text.hpp"
#include "sharded_state.hpp"
#include "shared_temp_dir.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

std::string read_all(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_all(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
}

void flip(const fs::path& path, std::uint64_t bit) {
  std::string text = read_all(path);
  text.at(bit / 8) = static_cast<char>(text.at(bit / 8) ^ 1 << bit % 8);
  write_all(path, text);
}

/// Flips the last bit of the data, which is read after most targets have been loaded.
void flip_last(const fs::path& path) { flip(path, fs::file_size(path) * 8 - 1); }

fs::path data_file(const fs::path& checkpoint) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    if (entry.path().filename().string().starts_with("optimizer-")) files.push_back(entry.path());
  }
  return *std::ranges::max_element(files);
}

/// A root, and a state; save_steps() saves step n as version n.
class LoadLatest : public testing::Test {
 protected:
  Checkpointer make(const Options& options = options_for_small_state("posix")) const {
    return {MPI_COMM_WORLD, root_.path(), options};
  }
  void save(Checkpointer& checkpointer, std::uint64_t step, int version) {
    state_.fill(version);
    const Report report = checkpointer.save(step, state_.sources());
    EXPECT_EQ(report.step, step);
    EXPECT_TRUE(report.skipped.empty());
  }
  void save_steps(const std::vector<std::uint64_t>& steps) {
    Checkpointer checkpointer = make();
    for (const std::uint64_t step : steps) save(checkpointer, step, static_cast<int>(step));
  }
  [[nodiscard]] fs::path directory(std::uint64_t step) const { return root_ / ("checkpoint-" + std::to_string(step)); }
  /// Collective: `work` on rank 0, before any other rank continues.
  void on_rank_0(const std::function<void()>& work) const {
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_.rank == 0) work();
    MPI_Barrier(MPI_COMM_WORLD);
  }
  void damage(std::uint64_t step) const {
    on_rank_0([&] { flip_last(data_file(directory(step))); });
  }
  /// Collective: "20" for the loaded step, " without 30 40" for the steps passed over. Expects all bytes of `version`.
  std::string load(Checkpointer& checkpointer, int version) {
    loaded_.clear();
    const Report report = checkpointer.load_latest(loaded_.targets());
    EXPECT_EQ(loaded_.matching_bytes(version), loaded_.bytes());
    EXPECT_EQ(report.directory, directory(report.step));
    std::string text = std::to_string(report.step) + (report.skipped.empty() ? "" : " without");
    EXPECT_GE(report.warnings.size(), report.skipped.size());
    for (std::size_t i = 0; i < std::min(report.warnings.size(), report.skipped.size()); ++i) {
      const SkippedStep& step = report.skipped[i];
      text += ' ' + std::to_string(step.step);
      EXPECT_EQ(step.directory, directory(step.step));
      EXPECT_FALSE(step.problem.empty());
      expect_one_line(report.warnings[i], {step.directory.filename().string(), step.problem});
      expect_same_everywhere(report.warnings[i]);
    }
    expect_same_everywhere(text);
    return text;
  }

  const World world_;
  SharedTempDir root_;
  RankState state_{small_state(), Cut::kRows, world_.rank, world_.ranks};
  RankState loaded_{small_state(), Cut::kMixed, world_.rank, world_.ranks};
};

TEST_F(LoadLatest, IsALoadOfTheNewest) {
  Options options = options_for_small_state("posix");
  options.lease.seconds = 9;  // the other saver waits a sixth of this for a sign of life
  Checkpointer checkpointer = make(options);
  const std::string text = message_of_error(ErrorKind::kNotFound, [&] { checkpointer.load_latest(loaded_.targets()); });
  EXPECT_THAT(text, HasSubstr("no checkpoint to resume from"));
  expect_same_everywhere(text);
  save(checkpointer, 10, 1);
  EXPECT_EQ(load(checkpointer, 1), "10");
  save(checkpointer, 20, 2);
  EXPECT_EQ(load(checkpointer, 2), "20");
  save(checkpointer, 30, 3);
  Checkpointer other = make(options);  // while the first saver is alive
  EXPECT_EQ(load(other, 3), "30");
  damage(30);
  EXPECT_EQ(load(other, 2), "20 without 30");
  EXPECT_EQ(other.latest(), 30U);
  expect_error(ErrorKind::kState, [&] { other.save(40, state_.sources()); }, {});
  save(checkpointer, 40, 4);  // this saver has not gone back to step 20
  EXPECT_EQ(load(other, 4), "40");
}

TEST_F(LoadLatest, WhatWasPassedOverIsVoidWithTheNextSave) {
  save_steps({10, 20, 30});
  damage(30);
  Checkpointer checkpointer = make();
  EXPECT_EQ(load(checkpointer, 20), "20 without 30");
  save(checkpointer, 25, 25);  // a lower step than the damaged one
  EXPECT_EQ(checkpointer.latest(), 25U);
  EXPECT_EQ(load(checkpointer, 25), "25");
  const std::vector<StepInfo> steps = checkpointer.steps();
  ASSERT_EQ(steps.size(), 4U);
  EXPECT_TRUE(steps[3].is_void);
  EXPECT_FALSE(steps[1].is_void);
  // The same object loads and saves again; the damaged step is replaced without Options::overwrite.
  save(checkpointer, 28, 28);
  damage(28);
  EXPECT_EQ(load(checkpointer, 25), "25 without 28");
  save(checkpointer, 30, 31);
  save(checkpointer, 28, 29);
  damage(28);
  EXPECT_EQ(load(checkpointer, 31), "30 without 28");
}

/// Otherwise a job that is restarted repeatedly would fail at that step every time.
TEST_F(LoadLatest, ADamagedManifestThatWasPassedOverMakesRoomForItsStep) {
  save_steps({10, 20});
  for (const bool is_gone : {false, true}) {
    on_rank_0([&] {
      is_gone ? (void)fs::remove(directory(20) / "cairn.json") : fs::resize_file(directory(20) / "cairn.json", 100);
    });
    {
      Checkpointer other = make();  // has loaded another step
      other.load(10, loaded_.targets());
      expect_error(ErrorKind::kUsage, [&] { other.save(20, state_.sources()); },
                   {"exists, and is damaged", "checkpoint-20"});
    }
    Checkpointer checkpointer = make();
    EXPECT_EQ(load(checkpointer, 10), "10 without 20");
    save(checkpointer, 20, 20);
    EXPECT_EQ(load(checkpointer, 20), "20");
    on_rank_0([&] {
      int aside = 0;
      for (const auto& entry : fs::directory_iterator(root_.path())) {
        if (!entry.path().filename().string().starts_with("checkpoint-20.damaged-")) continue;
        ++aside;
        EXPECT_TRUE(fs::exists(data_file(entry.path()))) << "nothing of it is deleted";
      }
      EXPECT_EQ(aside, is_gone ? 2 : 1);
    });
  }
}

/// Without cairn.json, checksums would not be compared.
TEST_F(LoadLatest, ACheckpointThatHasLostItsManifestIsNotRead) {
  save_steps({10});
  on_rank_0([&] { fs::remove(directory(10) / "cairn.json"); });
  Checkpointer checkpointer = make();
  expect_error(ErrorKind::kIntegrity, [&] { checkpointer.load(10, loaded_.targets()); },
               {"cairn.json is missing, and cairn.blocks is there", "move cairn.blocks away"});
  expect_error(ErrorKind::kIntegrity, [&] { (void)checkpointer.latest(); }, {"checkpoint-10"});
  on_rank_0([&] { fs::remove(directory(10) / "cairn.blocks"); });
  Options options = options_for_small_state("posix");
  options.limits = {};  // without a block table blocks have the default size
  EXPECT_NO_THROW(make(options).load(10, loaded_.targets()));
}

TEST_F(LoadLatest, TheFirstSaveOfALifeSaysWhatItAbandons) {
  save_steps({10, 20, 30});
  const auto said_by = [&](Checkpointer& checkpointer, std::uint64_t step) {
    state_.fill(1);
    std::string text;
    for (const std::string& line : checkpointer.save(step, state_.sources()).warnings) text += line + "; ";
    return text;
  };
  {
    Checkpointer back = make();
    back.load(10, loaded_.targets());
    const std::string text = said_by(back, 15);
    const bool is_told = world_.rank == 0;
    EXPECT_EQ(text.find("steps 20, 30 of ") != text.npos, is_told) << text;
    EXPECT_EQ(text.find("are abandoned from now on: this run went back to step 10") != text.npos, is_told) << text;
    EXPECT_THAT(said_by(back, 20), testing::Not(HasSubstr("abandoned from now on")));
  }
  {
    Checkpointer anew = make();
    const std::string text = said_by(anew, 5);
    EXPECT_EQ(text.find("has step 20, and this program has loaded nothing from it") != text.npos, world_.rank == 0)
        << text;
  }
  Checkpointer on = make();
  on.load(20, loaded_.targets());
  EXPECT_THAT(said_by(on, 40), testing::Not(HasSubstr("has loaded nothing")));
}

TEST_F(LoadLatest, WhatCannotBeFollowedIsSaid) {
  save_steps({10, 20});
  std::string said;
  set_log_sink([&](LogLevel, std::string_view line) { said += std::string(line) + "; "; });
  on_rank_0([&] { write_all(root_ / "latest_checkpointed_iteration.txt", "999"); });
  Checkpointer checkpointer = make();
  EXPECT_EQ(checkpointer.latest(), 20U);
  on_rank_0([&] { fs::copy(directory(10), directory(30)); });
  checkpointer.load(30, loaded_.targets());
  set_log_sink({});
  if (world_.rank != 0) return;
  EXPECT_THAT(said, HasSubstr("names step 999, and is not followed: there is no such checkpoint"));
  EXPECT_THAT(said, HasSubstr("checkpoint-30' is step 10 by its cairn.json, and was copied or renamed since"));
}

TEST_F(LoadLatest, GoesBackAsFarAsItMust) {
  save_steps({10, 20, 30, 40});
  on_rank_0([&] {
    fs::remove(directory(40) / "cairn.json");
    fs::resize_file(data_file(directory(30)), 5000);
  });
  damage(20);
  Checkpointer checkpointer = make();
  EXPECT_EQ(load(checkpointer, 10), "10 without 40 30 20");
  on_rank_0([&] { write_all(root_ / "latest_checkpointed_iteration.txt", "30"); });
  EXPECT_EQ(load(checkpointer, 10), "10 without 30 20");
  on_rank_0([&] { write_all(root_ / "latest_checkpointed_iteration.txt", "10"); });
  EXPECT_EQ(load(checkpointer, 10), "10");
  on_rank_0([&] { fs::resize_file(directory(10) / "cairn.blocks", 100); });
  try {
    checkpointer.load_latest(loaded_.targets());
    ADD_FAILURE() << "a damaged checkpoint was loaded";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("none of the checkpoints of"), HasSubstr("checkpoint-10")));
  }
  on_rank_0([&] { write_all(root_ / "latest_checkpointed_iteration.txt", "40"); });
  try {
    checkpointer.load_latest(loaded_.targets());
    ADD_FAILURE() << "a damaged checkpoint was loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIntegrity);  // the last error
    EXPECT_THAT(error.path(), HasSubstr("checkpoint-10"));
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("none of the checkpoints of"), HasSubstr("checkpoint-40: cairn.json is missing"),
                      HasSubstr("has 5000 bytes"), HasSubstr("checkpoint-20")));
    expect_same_everywhere(error.what());
  }
}

/// Usage errors and lack of resources do not justify resuming from an older step.
TEST_F(LoadLatest, OtherErrorsAreThrownAtOnce) {
  save_steps({1, 2});
  Checkpointer checkpointer = make();
  const std::string last = std::to_string(world_.ranks - 1);
  const bool is_last = world_.rank == world_.ranks - 1;
  const auto refused = [&](ErrorKind kind, const std::string& part, const std::vector<Target>& targets,
                           const LoadOptions& options = {}) {
    const std::string text = message_of_error(kind, [&] { checkpointer.load_latest(targets, options); });
    EXPECT_THAT(text, AllOf(HasSubstr(part), testing::Not(HasSubstr("none of"))));
    expect_same_everywhere(text);
  };
  auto targets = loaded_.targets();
  if (is_last) targets[1].name = "no.such.tensor";
  refused(ErrorKind::kNotFound, "no.such.tensor", targets);
  targets = loaded_.targets();
  if (is_last) targets[0].dtype = DType::kU16;
  refused(ErrorKind::kState, targets[0].name, targets);
  LoadOptions none;
  none.select.names = {"none*"};
  refused(ErrorKind::kNotFound, "selects no target", loaded_.targets(), none);
  {
    const Faults faults("memory.load:times=1:rank=" + last);
    refused(ErrorKind::kInternal, "out of memory", loaded_.targets());
  }
  for (const char* file : {"cairn.json", "cairn.blocks"}) {  // read by the listing and by the opening
    const Faults faults(std::string("open:path=checkpoint-2/") + file + ":errno=EMFILE:rank=0");
    refused(ErrorKind::kIo, "Too many open files", loaded_.targets());
  }
  const Faults faults("read:path=checkpoint-2/optimizer-:errno=EIO:rank=0");
  EXPECT_EQ(load(checkpointer, 1), "1 without 2");
}

/// A checkpoint that is unreadable at the moment, or readable only by a newer Cairn, may be the run's newest state,
/// and is not passed over.
TEST_F(LoadLatest, GoesPastDamageOnly) {
  save_steps({1, 2});
  Checkpointer checkpointer = make();
  const auto refused = [&](ErrorKind kind, const std::string& part) {
    for (const bool loads : {true, false}) {
      const std::string text = message_of_error(
          kind, [&] { loads ? (void)checkpointer.load_latest(loaded_.targets()) : (void)checkpointer.latest(); });
      EXPECT_THAT(text, AllOf(HasSubstr("checkpoint-2'"), HasSubstr(part)));
      expect_same_everywhere(text);
    }
  };
  {
    const Faults faults("stat:path=checkpoint-2/cairn.json:errno=ESTALE:times=6:rank=0");
    refused(ErrorKind::kIo, "Stale file handle");
  }
  {
    const Faults faults("open:path=checkpoint-2/cairn.json:errno=EACCES:times=6:rank=0");
    refused(ErrorKind::kIo, "Permission denied");
  }
  {
    const Faults faults("open:path=checkpoint-2/cairn.json:errno=EIO:times=9:rank=0");
    EXPECT_EQ(load(checkpointer, 1), "1 without 2");
  }
  {  // a file that rank 0 sees but another node does not
    const Faults faults("open:path=checkpoint-2/optimizer-:errno=ENOENT:rank=" + std::to_string(world_.ranks - 1));
    const std::string text =
        message_of_error(ErrorKind::kNotFound, [&] { checkpointer.load_latest(loaded_.targets()); });
    EXPECT_THAT(text,
                AllOf(HasSubstr("optimizer-"), HasSubstr("rank 0 sees all files of"), HasSubstr("checkpoint-2'")));
    expect_same_everywhere(text);
  }
  on_rank_0([&] {
    fs::rename(directory(2), root_ / "elsewhere");
    fs::create_directory_symlink("/nowhere/at/all", directory(2));
  });
  refused(ErrorKind::kIo, "is a link to something that is not there now");
  on_rank_0([&] {
    fs::remove(directory(2));
    fs::rename(root_ / "elsewhere", directory(2));
    write_all(directory(2) / "cairn.json", R"({"format": "cairn-checkpoint", "format_version": 3})");
  });
  refused(ErrorKind::kFormat, "format version 3");
}

TEST_F(LoadLatest, TakesAVoidStepRatherThanNone) {
  save_steps({10, 20});
  {
    Checkpointer checkpointer = make();
    state_.fill(10);
    checkpointer.load(10, loaded_.targets());
    save(checkpointer, 15, 15);
  }
  on_rank_0([&] {
    for (const std::uint64_t step : {10, 15}) fs::remove(data_file(directory(step)));
  });
  Checkpointer checkpointer = make();
  EXPECT_EQ(checkpointer.latest(), 20U);
  loaded_.clear();
  const Report report = checkpointer.load_latest(loaded_.targets());
  EXPECT_EQ(report.step, 20U);
  EXPECT_EQ(loaded_.matching_bytes(20), loaded_.bytes());
  EXPECT_THAT(report.warnings, testing::Contains(HasSubstr("was loaded because nothing else is whole, and is void: ")));
  save(checkpointer, 30, 30);  // the run continues from there
  EXPECT_EQ(load(checkpointer, 30), "30");
}

TEST_F(LoadLatest, ARunWhoseStepsHaveLostFilesIsNotNew) {
  save_steps({10, 20});
  const auto remove_file_of = [&](std::uint64_t step) { on_rank_0([&] { fs::remove(data_file(directory(step))); }); };
  Checkpointer checkpointer = make();
  remove_file_of(20);
  EXPECT_EQ(checkpointer.latest(), 10U);
  remove_file_of(10);
  expect_error(ErrorKind::kIntegrity, [&] { (void)checkpointer.latest(); },
               {"checkpoint-20", "is missing", "begin anew"});
  expect_error(ErrorKind::kIntegrity, [&] { checkpointer.load_latest(loaded_.targets()); },
               {"checkpoint-20", "is missing"});
  on_rank_0([&] {
    for (const std::uint64_t step : {10, 20}) fs::remove_all(directory(step));
  });
  EXPECT_EQ(checkpointer.latest(), std::nullopt);
}

TEST_F(LoadLatest, AnOptionalTargetIsOfTheLoadedStepOrMissing) {
  Checkpointer checkpointer = make();
  save(checkpointer, 1, 1);
  std::vector<float> memory(8, 5);
  const Shard shard{"zebra", "added", DType::kF32, {8}, {{{0}, {8}}}};  // the last name in every order
  std::vector<Source> sources = state_.sources();
  static_cast<Shard&>(sources.emplace_back()) = shard;
  sources.back().data = memory.data();
  checkpointer.save(2, sources);
  std::vector<float> loaded(8, 7);
  std::vector<Target> targets = loaded_.targets();
  static_cast<Shard&>(targets.emplace_back()) = shard;
  targets.back().data = loaded.data();
  targets.back().optional = true;
  EXPECT_TRUE(checkpointer.load_latest(targets).missing.empty());
  EXPECT_EQ(loaded, memory);
  damage(2);
  const Report report = checkpointer.load_latest(targets);
  EXPECT_EQ(report.step, 1U);
  EXPECT_EQ(report.skipped.size(), 1U);
  EXPECT_EQ(report.missing, (std::vector<TensorName>{{"zebra", "added"}}));
  EXPECT_EQ(loaded_.matching_bytes(1), loaded_.bytes());
}

TEST(IsOfCheckpoint, TellsADamagedCheckpointFromOtherErrors) {
  const fs::path directory = "runs/a/checkpoint-2";
  const auto is_damage = [&](ErrorKind kind, const std::string& path, int system_error = 0) {
    return checkpoint::is_of_checkpoint(Error(kind, "what", {system_error, path}), directory);
  };
  for (const ErrorKind kind : {ErrorKind::kIo, ErrorKind::kNotFound}) {
    EXPECT_TRUE(is_damage(kind, "runs/a/checkpoint-2"));
    EXPECT_TRUE(is_damage(kind, "runs/a/checkpoint-2/model.safetensors", EIO));
    EXPECT_TRUE(is_damage(kind, "runs/a/checkpoint-2.0123456789abcdef.replaced/checkpoint-2/cairn.json", ENOENT));
    EXPECT_FALSE(is_damage(kind, "runs/a/checkpoint-20/cairn.json", ENOENT));
    EXPECT_FALSE(is_damage(kind, "runs/a/.cairn/epoch-1", EIO));
    EXPECT_FALSE(is_damage(kind, ""));
    for (const int machine : {ENOMEM, EMFILE, ENFILE, EACCES, ESTALE, ETIMEDOUT}) {
      EXPECT_FALSE(is_damage(kind, "runs/a/checkpoint-2/model.safetensors", machine));
    }
  }
  for (const ErrorKind kind : {ErrorKind::kIntegrity, ErrorKind::kFormat}) EXPECT_TRUE(is_damage(kind, ""));
  for (const ErrorKind kind : {ErrorKind::kUsage, ErrorKind::kState, ErrorKind::kInternal}) {
    EXPECT_FALSE(is_damage(kind, "runs/a/checkpoint-2/model.safetensors"));
  }
}

/// Applies each damage to a fresh copy of the newer of two checkpoints.
class RandomDamage : public LoadLatest {
 protected:
  void SetUp() override {
    Checkpointer checkpointer = make();
    Extras extras;
    for (const int step : {1, 2}) {
      extras.carry_texts = {{"config.json", "{\"step\": " + std::to_string(step) + "}"}};
      extras.rank_blob.assign(100, static_cast<std::byte>(step));
      state_.fill(step);
      checkpointer.save(static_cast<std::uint64_t>(step), state_.sources(), extras);
    }
    for (const auto& entry : fs::directory_iterator(directory(2))) names_.push_back(entry.path().filename());
    std::ranges::sort(names_);
    on_rank_0([&] { fs::rename(directory(2), root_ / "whole"); });
  }

  [[nodiscard]] std::string any(const std::string& part) {
    std::vector<std::string> names;
    std::ranges::copy_if(names_, std::back_inserter(names),
                         [&](const std::string& name) { return name.find(part) != std::string::npos; });
    return names.at(uniform(random_, 0, names.size() - 1));
  }
  [[nodiscard]] std::string content(const std::string& name) const { return read_all(root_ / "whole" / name); }
  std::string flip_in(const std::string& name, std::uint64_t begin, std::uint64_t end) {
    const std::uint64_t bit = uniform(random_, begin * 8, end * 8 - 1);
    if (world_.rank == 0) flip(directory(2) / name, bit);
    return "bit " + std::to_string(bit) + " of " + name;
  }
  /// Collective; rank 0 does the damage, which is the same random choice on all ranks. Returns a description; sets
  /// `is_seen_` to whether a load of all tensors must notice the damage.
  std::string damage_once(int kind) {
    is_seen_ = true;
    const fs::path at = directory(2);
    const bool works = world_.rank == 0;
    switch (kind) {
      case 0: {
        const std::string name = any("-of-");  // a data file with targets
        return flip_in(name, 0, content(name).size());
      }
      case 1: return flip_in(any("-of-"), 0, 300);
      case 2: return flip_in("cairn.json", 0, content("cairn.json").size());
      case 3: return flip_in("cairn.blocks", 0, content("cairn.blocks").size());
      case 4: {
        const std::string name = any(".index.json");
        is_seen_ = false;  // only its tensor and file names are compared
        return flip_in(name, 0, content(name).size());
      }
      case 5: {
        const std::string name = any(".");
        const std::uint64_t size = uniform(random_, 0, content(name).size() - 1);
        if (works) fs::resize_file(at / name, size);
        return name + " cut to " + std::to_string(size);
      }
      case 6: {
        const std::string name = any(".");
        if (works) fs::remove(at / name);
        return name + " removed";
      }
      case 7: {
        const std::string one = any("."), other = any(".");
        is_seen_ = content(one) != content(other);
        if (works) write_all(at / one, content(other)), write_all(at / other, content(one));
        return one + " and " + other + " swapped";
      }
      case 8: {
        const std::string name = any(".");
        if (works) write_all(at / name, "");
        return name + " emptied";
      }
      default: {
        const std::string name = any(".");
        const std::string old = read_all(directory(1) / name);
        is_seen_ = name.find("-of-") != std::string::npos || name.starts_with("cairn.");
        if (works) write_all(at / name, old);
        return name + " of another step";
      }
    }
  }
  void restore() {
    on_rank_0([&] {
      fs::remove_all(directory(2));
      fs::copy(root_ / "whole", directory(2));
    });
  }

  std::mt19937_64 random_ = make_random();
  std::vector<std::string> names_;
  bool is_seen_ = true;
};

TEST_F(RandomDamage, IsNeverLoadedAndTheStepBeforeIs) {
  constexpr int kKinds = 10;
  const int count = world_.ranks == 2 ? 100 : 2 * kKinds;
  int lines = 0;
  set_log_sink([&](LogLevel, std::string_view line) {
    lines += line.find("checkpoint-2' is passed over") == std::string_view::npos ? 0 : 1;
  });
  int passed_over = 0;
  Checkpointer checkpointer = make();
  for (int i = 0; i < count; ++i) {
    restore();
    const std::string what = damage_once(i % kKinds);
    SCOPED_TRACE(std::to_string(i) + ": " + what);
    MPI_Barrier(MPI_COMM_WORLD);
    loaded_.clear();
    const Report report = checkpointer.load_latest(loaded_.targets());
    ASSERT_TRUE(report.step == 1 || report.step == 2);
    EXPECT_EQ(loaded_.matching_bytes(static_cast<int>(report.step)), loaded_.bytes());
    EXPECT_EQ(report.skipped.size(), report.step == 1 ? 1U : 0U);
    EXPECT_TRUE(report.step == 1 || !is_seen_);
    if (report.skipped.empty()) continue;
    ++passed_over;
    EXPECT_EQ(report.skipped[0].step, 2U);
    EXPECT_THAT(report.warnings, testing::Contains(HasSubstr(report.skipped[0].problem)));
    expect_same_everywhere(report.skipped[0].problem);
  }
  set_log_sink({});
  EXPECT_EQ(lines, world_.rank == 0 ? passed_over : 0);
  EXPECT_GE(passed_over, count * 7 / 10);
  restore();
  EXPECT_EQ(load(checkpointer, 2), "2");
}

}  // namespace
}  // namespace cairn::test
