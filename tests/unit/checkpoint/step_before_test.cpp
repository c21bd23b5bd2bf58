// The report of a save gives the unchanged part of each section since the previous step. A warning names sections that
// have not changed at all, although training should have changed them.
#include "checkpoint/step_before.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "opening/open.hpp"
#include "random.hpp"
#include "simulated_save.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using checkpoint::StepBefore;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

format::BlockTable random_table(std::mt19937_64& random, std::uint64_t block_bytes) {
  format::BlockTable table;
  table.block_bytes = block_bytes;
  for (std::uint64_t f = uniform(random, 0, 5); f > 0; --f) {
    format::FileBlocks file{"file-" + std::to_string(f), uniform(random, 0, 1000 * block_bytes), {}};
    file.crcs.resize((file.size_bytes + block_bytes - 1) / block_bytes);
    for (std::uint32_t& crc : file.crcs) crc = static_cast<std::uint32_t>(uniform(random, 0, 1ULL << 32));
    table.files.push_back(std::move(file));
  }
  return table;
}

/// The shares of all ranks together cover every block once, whatever other files exist.
TEST(StepBefore, SharesAddUpToTheWhole) {
  auto random = make_random(1);
  for (int i = 0; i < 100; ++i) {
    const format::BlockTable before = random_table(random, 100);
    format::BlockTable now = before;
    std::map<std::string, StepBefore::Unchanged> expected;
    for (format::FileBlocks& file : now.files) {
      StepBefore::Unchanged& unchanged = expected[file.name];
      for (std::size_t b = 0; b < file.crcs.size(); ++b) {
        if (uniform(random, 0, 1) != 0) {
          file.crcs[b] ^= 1;
        } else {
          ++unchanged.blocks;
          unchanged.bytes += std::min<std::uint64_t>(100, file.size_bytes - b * 100);
        }
      }
    }
    now.files.insert(now.files.begin(), {"another", 10, {1}});
    expected["another"] = {};
    if (now.files.size() > 2) {  // a different size, so not comparable
      now.files.back().size_bytes += 100;
      now.files.back().crcs.push_back(0);
      expected[now.files.back().name] = {};
    }
    const int ranks = static_cast<int>(uniform(random, 1, 9));
    const format::BlockRows rows(format::encode_blocks(before), "test");
    std::map<std::string, StepBefore::Unchanged> of_table;
    std::map<std::string, StepBefore::Unchanged> of_rows;
    for (int rank = 0; rank < ranks; ++rank) {
      const StepBefore kept(7, before, {rank, ranks});
      const StepBefore read(7, rows, {rank, ranks});
      for (const format::FileBlocks& file : now.files) {
        for (auto* sum : {&of_table, &of_rows}) {
          const auto here = (sum == &of_table ? kept : read).unchanged_of(file);
          (*sum)[file.name].blocks += here.blocks;
          (*sum)[file.name].bytes += here.bytes;
        }
      }
    }
    for (const auto& [name, unchanged] : expected) {
      EXPECT_EQ(of_table[name].blocks, unchanged.blocks) << name << " on " << ranks << " ranks";
      EXPECT_EQ(of_table[name].bytes, unchanged.bytes) << name;
      EXPECT_EQ(of_rows[name].blocks, unchanged.blocks) << name;
      EXPECT_EQ(of_rows[name].bytes, unchanged.bytes) << name;
    }
  }
  EXPECT_FALSE(StepBefore().has_blocks_of(4096));
}

/// One rank's rows of a training state of three sections, one of them without elements.
class Training {
 public:
  Training(int rank, int ranks) {
    const std::map<std::string, std::vector<std::string>> names = {
        {"model", {"vision.w", "text.w"}}, {"optimizer", {"text.w.exp_avg", "text.w.exp_avg_sq"}}, {"empty", {"none"}}};
    const auto first = [&](int r) { return static_cast<std::uint64_t>(r) * 96 / static_cast<std::uint64_t>(ranks); };
    for (const auto& [section, of_section] : names) {
      for (const std::string& name : of_section) {
        Source source;
        source.section = section;
        source.name = name;
        source.shape = {96, section == "empty" ? 0U : 256U};
        source.boxes = {{{first(rank), 0}, {first(rank + 1) - first(rank), source.shape[1]}}};
        values_.emplace_back(section == "empty" ? 0 : source.boxes[0].shape[0] * 256, 1.0F);
        sources_.push_back(source);
      }
    }
    for (std::size_t i = 0; i < sources_.size(); ++i) sources_[i].data = values_[i].data();
  }
  /// Changes the values of tensors whose "section/name" contains `part`.
  void train(const std::string& part) {
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      if ((sources_[i].section + "/" + sources_[i].name).find(part) == std::string::npos) continue;
      for (float& value : values_[i]) value *= 1.25F;
    }
  }
  [[nodiscard]] const std::vector<Source>& sources() const { return sources_; }

 private:
  std::vector<std::vector<float>> values_;
  std::vector<Source> sources_;
};

struct Trained {
  std::uint64_t step = 0;
  std::string part;  ///< passed to train() before the save
};

/// The report of the last save that succeeded, and the error of the last save that failed; both on rank 0.
struct Told {
  Report report;
  std::string error;
};

Told told_by(const Options& options, const std::vector<Trained>& steps, bool has_blobs = false) {
  const TempDir root;
  Told told;
  std::mutex mutex;
  comm::run_simulated(3, [&](comm::Communicator& communicator) {
    Training training(communicator.rank(), 3);
    io::WindowStore store;
    checkpoint::Saver saver(communicator, options, store);
    Extras extras;
    if (has_blobs) extras.rank_blob.resize(1000);
    Report report;
    std::string error;
    for (const Trained& trained : steps) {
      training.train(trained.part);
      const fs::path directory = root.path() / ("checkpoint-" + std::to_string(trained.step));
      try {
        report = saver.save(directory, trained.step, training.sources(), extras);
      } catch (const Error& failure) {
        EXPECT_EQ(failure.kind(), ErrorKind::kState);
        error = failure.what();
        EXPECT_FALSE(fs::exists(directory));
      }
    }
    const std::lock_guard lock(mutex);
    if (communicator.rank() == 0) told = {report, error};
  });
  return told;
}

Options stale_options(StaleSections stale = StaleSections::kWarn) {
  Options options;
  options.engine.name = "posix";
  options.files.block_bytes = 4096;
  options.files.max_bytes = 120'000;
  options.overwrite = true;
  options.checks.stale = stale;
  return options;
}

TEST(Stale, NothingIsSaidOfWhatIsTrained) {
  const Told first = told_by(stale_options(), {{1, "w"}});
  EXPECT_THAT(first.report.warnings, IsEmpty());
  EXPECT_FALSE(first.report.unchanged_since);
  EXPECT_THAT(first.report.unchanged, IsEmpty());
  const Told second = told_by(stale_options(), {{1, "w"}, {2, "w"}}, true);
  EXPECT_THAT(second.report.warnings, IsEmpty()) << "the ranks' blobs may be the same";
  EXPECT_EQ(second.report.unchanged_since, 1U);
  ASSERT_EQ(second.report.unchanged.size(), 3U) << "not the blobs";
  for (const SectionChange& change : second.report.unchanged) {
    const bool is_empty = change.section == "empty";
    EXPECT_EQ(change.unchanged_blocks, is_empty ? change.blocks : 2) << change.section << ": the headers of its files";
    EXPECT_GE(change.bytes, is_empty ? 1U : 2U * 96 * 256 * 4);
  }
}

TEST(Stale, SectionsAreNamedInOneWarning) {
  const Told one = told_by(stale_options(), {{1, "w"}, {2, "model"}});
  EXPECT_THAT(one.report.warnings, ElementsAre(AllOf(HasSubstr("section 'optimizer' has changed since step 1"),
                                                     Not(HasSubstr("model")), Not(HasSubstr("empty")))));
  for (const SectionChange& change : one.report.unchanged) {
    EXPECT_EQ(change.unchanged_bytes, change.section == "model" ? 2 * 4096 : change.bytes) << change.section;
  }
  const Told both = told_by(stale_options(), {{1, "w"}, {2, "nothing"}});
  EXPECT_THAT(both.report.warnings, ElementsAre(HasSubstr("sections 'model', 'optimizer' has changed since step 1")));
  const Told again = told_by(stale_options(), {{1, "w"}, {2, "w"}, {2, "nothing"}});
  EXPECT_THAT(again.report.warnings, IsEmpty()) << "the same step";
  EXPECT_EQ(again.report.unchanged_since, 2U);
  const Told part = told_by(stale_options(), {{1, "w"}, {2, "text"}});
  EXPECT_THAT(part.report.warnings, IsEmpty());
  for (const SectionChange& change : part.report.unchanged) {
    if (change.section != "model") continue;
    EXPECT_GT(change.unchanged_blocks, change.blocks / 3);
    EXPECT_LT(change.unchanged_blocks, change.blocks * 2 / 3);
  }
}

TEST(Stale, MayBeIgnoredOrRefused) {
  const Told ignored = told_by(stale_options(StaleSections::kIgnore), {{1, "w"}, {2, "model"}});
  EXPECT_THAT(ignored.report.warnings, IsEmpty());
  EXPECT_EQ(ignored.report.unchanged_since, 1U);
  EXPECT_THAT(told_by(stale_options(StaleSections::kRefuse), {{1, "w"}, {2, "model"}}).error,
              HasSubstr("section 'optimizer'"));
  const Told then = told_by(stale_options(StaleSections::kRefuse), {{1, "w"}, {2, "model"}, {3, "w"}});
  EXPECT_EQ(then.report.unchanged_since, 1U) << "a refused step is not the one before";
}

TEST(Stale, FrozenSectionsAreNotNamed) {
  Options options = stale_options();
  options.frozen = {{{"model"}, {"vision.*"}}, {{"optimizer"}, {}}};
  EXPECT_THAT(told_by(options, {{1, "w"}, {2, "nothing"}}).report.warnings,
              ElementsAre(AllOf(HasSubstr("'model'"), Not(HasSubstr("'optimizer'")))))
      << "only a part of the model is frozen";
  options.frozen.push_back({{"model"}, {"text.*"}});
  EXPECT_THAT(told_by(options, {{1, "w"}, {2, "nothing"}}).report.warnings, IsEmpty());
  options.frozen = {{{}, {"*.exp_avg", "*.exp_avg_sq"}}};
  options.quantisation.codecs["optimizer"] = "q8";
  EXPECT_THAT(told_by(options, {{1, "w"}, {2, "model"}}).report.warnings, IsEmpty()) << "codes have other names";
  options.frozen = {};
  EXPECT_THAT(told_by(options, {{1, "w"}, {2, "model"}}).report.warnings, ElementsAre(HasSubstr("'optimizer'")));
}

TEST(Stale, ASelectionThatFreezesNothingIsSaidOnce) {
  Options options = stale_options();
  options.frozen = {{{"optimizer"}, {}}, {{"modle"}, {}}, {{}, {"vision.*", "nothing"}}, {{"model"}, {"vison.*", "a"}}};
  EXPECT_THAT(told_by(options, {{1, "w"}}).report.warnings,
              ElementsAre(HasSubstr("Options::frozen[1] (sections modle, names all) selects no tensor that is saved"),
                          HasSubstr("Options::frozen[3] (sections model, names vison.*, a) selects no tensor")));
  EXPECT_THAT(told_by(options, {{1, "w"}, {2, "model"}}).report.warnings, IsEmpty());
}

/// Files with different sizes, names or blocks are not compared, and do not count as stale.
TEST(Stale, OtherFilesAreNotCompared) {
  const TempDir root;
  comm::run_simulated(2, [&](comm::Communicator& communicator) {
    const Training training(communicator.rank(), 2);
    io::WindowStore store;
    checkpoint::Saver first(communicator, stale_options(), store);
    first.save(root.path() / "1", 1, training.sources(), {});
    Options options = stale_options();
    options.files.max_bytes = 1'000'000;  // one file, so with a different name
    checkpoint::Saver second(communicator, options, store);
    second.writer.compare_with(first.writer.take_before());
    const Report others = second.save(root.path() / "2", 2, training.sources(), {});
    EXPECT_THAT(others.warnings, IsEmpty());
    EXPECT_EQ(others.unchanged_since, 1U);
    EXPECT_EQ(others.unchanged.at(0).unchanged_blocks, 0U);
    options.files.block_bytes = 8192;
    checkpoint::Saver third(communicator, options, store);
    third.writer.compare_with(second.writer.take_before());
    EXPECT_FALSE(third.save(root.path() / "3", 3, training.sources(), {}).unchanged_since);
  });
}

}  // namespace
}  // namespace cairn::test
