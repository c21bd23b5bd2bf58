// The environment of a save, and named values: recorded, loaded, compared; never an error of a load.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "cairn/checkpoint.hpp"
#include "cairn/values.hpp"
#include "expect_error.hpp"
#include "format/environment.hpp"
#include "sharded_state.hpp"
#include "shared_temp_dir.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Contents of the files with tensors, by name.
std::map<std::string, std::string> data_of(const fs::path& directory) {
  std::map<std::string, std::string> data;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path().extension() == ".safetensors") data[entry.path().filename()] = content_of(entry.path());
  }
  return data;
}

class EnvironmentOfSaves : public testing::Test {
 protected:
  EnvironmentOfSaves() { state_.fill(1); }

  static Options recording() {
    Options options = options_for_small_state();
    options.environment.record = true;
    options.environment.git_revision = "abc";
    options.environment.values = {{"torch", "2.9.1"}};
    return options;
  }
  /// Collective: step 1 is saved into a root of this name.
  Report save(const std::string& name, const Options& options) {
    Checkpointer checkpointer(MPI_COMM_WORLD, root_.path() / name, options);
    return checkpointer.save(1, state_.sources());
  }
  /// Collective: what a load with these options says on rank 0.
  std::vector<std::string> changes(const std::string& name, const EnvironmentOptions& environment) {
    Options options = options_for_small_state();
    options.environment = environment;
    Checkpointer checkpointer(MPI_COMM_WORLD, root_.path() / name, options);
    loaded_.clear();
    const Report report = checkpointer.load_latest(loaded_.targets());
    EXPECT_EQ(loaded_.matching_bytes(1), loaded_.bytes());
    if (world_.rank != 0) {
      EXPECT_THAT(report.environment_changes, IsEmpty());
    }
    return report.environment_changes;
  }

  const World world_;
  SharedTempDir root_;
  RankState state_{small_state(), Cut::kRows, world_.rank, world_.ranks};
  RankState loaded_{small_state(), Cut::kFlat, world_.rank, world_.ranks};
};

TEST_F(EnvironmentOfSaves, IsRecordedOnRequestAndChangesNoDataFile) {
  save("without", options_for_small_state());
  const fs::path directory = save("with", recording()).directory;
  const fs::path file = directory / format::kEnvironmentFile;
  EXPECT_FALSE(fs::exists(root_.path() / "without/checkpoint-1" / format::kEnvironmentFile));
  EXPECT_EQ(data_of(directory), data_of(root_.path() / "without/checkpoint-1"));
  const format::Environment found = format::parse_environment(content_of(file), file.native());
  EXPECT_THAT(found.tool, HasSubstr("cairn "));
  EXPECT_THAT(found.mpi, testing::Not(IsEmpty()));
  EXPECT_THAT(found.compiler, testing::Not(IsEmpty()));
  EXPECT_THAT(found.kernel, HasSubstr("Linux"));
  EXPECT_EQ(found.ranks, static_cast<std::uint64_t>(world_.ranks));
  EXPECT_EQ(found.nodes, 1U);
  EXPECT_EQ(found.most_ranks_per_node, found.ranks);
  EXPECT_EQ(found.hosts.size(), 1U);
  EXPECT_EQ(found.git_revision, "abc");
  EXPECT_THAT(found.command_line, IsEmpty());
  Options options = recording();
  options.environment.command_line = true;
  const fs::path with_command = save("command", options).directory / format::kEnvironmentFile;
  EXPECT_THAT(format::parse_environment(content_of(with_command), "p").command_line.at(0), HasSubstr("mpi_test"));
}

TEST_F(EnvironmentOfSaves, ALoadSaysWhatDiffers) {
  const fs::path file = save("root", recording()).directory / format::kEnvironmentFile;
  EXPECT_THAT(changes("root", recording().environment), IsEmpty());
  EXPECT_THAT(changes("root", {}), IsEmpty());
  EnvironmentOptions now;
  now.git_revision = "def";
  now.values = {{"torch", "2.9.2"}};
  const std::vector<std::string> lines = changes("root", now);
  if (world_.rank == 0) {
    EXPECT_THAT(lines, ElementsAre("git revision: saved with abc, now def", "torch: saved with 2.9.1, now 2.9.2"));
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_.rank == 0) {  // of the same size, so that only its checksum tells
    std::string text = content_of(file);
    text.replace(text.find("abc"), 3, "xyz");
    std::ofstream(file, std::ios::binary) << text;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  const std::vector<std::string> damaged = changes("root", now);
  if (world_.rank == 0) {
    ASSERT_EQ(damaged.size(), 1U);
    EXPECT_THAT(damaged[0], HasSubstr("unknown: "));
  }
}

TEST_F(EnvironmentOfSaves, IsNotCarriedTwice) {
  Checkpointer checkpointer(MPI_COMM_WORLD, root_.path() / "twice", recording());
  Extras extras;
  extras.carry_texts[format::kEnvironmentFile] = "{}";
  expect_error(ErrorKind::kUsage, [&] { checkpointer.save(1, state_.sources(), extras); }, {format::kEnvironmentFile});
  checkpointer.save(1, state_.sources());
}

TEST_F(EnvironmentOfSaves, NamedValuesComeBackToTheirRanks) {
  Checkpointer checkpointer(MPI_COMM_WORLD, root_.path() / "values", options_for_small_state());
  NamedValues run;
  run.set_integer(value_names::kStep, 7);
  NamedValues mine;
  mine.set_integer(value_names::kDataPosition, 100 + world_.rank);
  Extras extras;
  put_run_values(extras, run);
  put_rank_values(extras, mine);
  checkpointer.save(7, state_.sources(), extras);
  const Checkpointer::LoadedExtras loaded = checkpointer.load_extras(7);
  EXPECT_EQ(run_values(loaded), run);
  const auto ranks = static_cast<std::uint64_t>(world_.ranks);
  EXPECT_EQ(rank_values(loaded, ranks).integer(value_names::kDataPosition), 100 + world_.rank);
  expect_error(ErrorKind::kState, [&] { (void)rank_values(loaded, ranks + 1); }, {"another number of ranks"});
  EXPECT_EQ(values_of_blob(checkpointer.load_rank_blob(7, 0)).integer(value_names::kDataPosition), 100);
}

}  // namespace
}  // namespace cairn::test
