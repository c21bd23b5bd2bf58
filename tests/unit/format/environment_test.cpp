// cairn.environment.json: a golden file written without Cairn, odd files, and what differs.
#include "format/environment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cairn/error.hpp"
#include "helpers.hpp"

namespace cairn::format::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// The environment that tests/data/golden/make_golden.py describes.
Environment golden() {
  Environment environment;
  environment.tool = "cairn 0.1.0";
  environment.mpi = "Open MPI v4.1.4";
  environment.cuda = "13.0";
  environment.nvidia_driver = "570.133.20";
  environment.hdf5 = "1.10.8";
  environment.compiler = "GCC 12.2.0";
  environment.kernel = "Linux 6.1.0 x86_64";
  environment.file_system = "lustre";
  environment.ranks = 8;
  environment.nodes = 2;
  environment.fewest_ranks_per_node = 4;
  environment.most_ranks_per_node = 4;
  environment.hosts = {"n1", "n2"};
  environment.git_revision = "abc123-dirty";
  environment.values = {{"torch", "2.9.1"}, {"größe", "7B"}};
  environment.command_line = {"train", "--lr", "0.1"};
  return environment;
}

TEST(Environment, IsTheGoldenFile) {
  const std::string text = read_file(test_data("golden/cairn.environment.json"));
  EXPECT_EQ(encode_environment(golden()), text);
  EXPECT_EQ(parse_environment(text, "p"), golden());
}

TEST(Environment, LeavesOutWhatIsUnknownAndNamesFewHosts) {
  Environment environment;
  environment.ranks = environment.nodes = 1000;
  for (int i = 0; i < 1000; ++i) environment.hosts.push_back("n" + std::to_string(i));
  const std::string text = encode_environment(environment);
  EXPECT_THAT(text, HasSubstr("\"n63\""));
  EXPECT_EQ(text.find("n64"), std::string::npos);
  EXPECT_EQ(text.find("cuda"), std::string::npos);
  EXPECT_EQ(parse_environment(text, "p").hosts.size(), kEnvironmentHosts);
  environment.values["key"] = "\xff";
  EXPECT_THAT(parse_environment(encode_environment(environment), "p").values.at("key"), HasSubstr("\xEF\xBF\xBD"));
}

TEST(Environment, OddFilesAreErrorsAndOddKeysAreNot) {
  for (const char* text : {"", "[]", "{}", "{\"version\": \"1\"}", "{\"version\": 2}", "{\"version\": 1"}) {
    EXPECT_THROW(static_cast<void>(parse_environment(text, "p")), Error) << text;
  }
  const Environment read = parse_environment(
      R"({"version": 1, "mpi": 5, "ranks": -1, "hosts": ["a", 3], "values": {"k": 1}, "later": {}})", "p");
  EXPECT_EQ(read.mpi, "");
  EXPECT_EQ(read.ranks, 0U);
  EXPECT_THAT(read.hosts, ElementsAre("a"));
  EXPECT_THAT(read.values, IsEmpty());
}

TEST(Environment, TellsWhatDiffers) {
  EXPECT_THAT(environment_changes(golden(), golden()), IsEmpty());
  Environment now = golden();
  now.mpi = "MPICH 4.0";
  now.nvidia_driver = "";
  now.ranks = 4;
  now.nodes = 1;
  now.hosts = {"n3"};
  now.git_revision = "def456";
  now.values = {{"torch", "2.9.2"}, {"nccl", "2.27"}};
  now.command_line = {};
  EXPECT_THAT(environment_changes(golden(), now),
              ElementsAre("MPI library: saved with Open MPI v4.1.4, now MPICH 4.0",
                          "NVIDIA driver: saved with 570.133.20, now none",
                          "ranks: saved by 8 ranks on 2 nodes, 4 on each, now 4 ranks on 1 node",
                          "hosts: saved on n1, n2, now n3", "git revision: saved with abc123-dirty, now def456",
                          "größe: saved with 7B, now none", "nccl: saved with none, now 2.27",
                          "torch: saved with 2.9.1, now 2.9.2"));
  now = golden();
  now.git_revision = "";
  now.values = {};
  EXPECT_THAT(environment_changes(golden(), now), IsEmpty());  // the program says nothing now
}

TEST(Environment, IsShownInLines) {
  const std::vector<std::string> lines = environment_lines(golden());
  EXPECT_EQ(lines.front(), "Cairn: cairn 0.1.0");
  EXPECT_EQ(lines.back(), "command line: train --lr 0.1");
  EXPECT_THAT(lines, ::testing::Contains("hosts: n1, n2"));
}

}  // namespace
}  // namespace cairn::format::testing
