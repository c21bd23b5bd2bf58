// Models scaled to sizes, MLPerf's sets, sections.
#include "bench/workload.hpp"

#include <gtest/gtest.h>

#include "cairn/error.hpp"
#include "shard/layout.hpp"
#include "shard/shard_map.hpp"

namespace cairn::bench {
namespace {

const std::vector<std::string> kAll = {"model", "optimizer", "master_weights"};

void expect_near(std::uint64_t found, std::uint64_t wanted, double tolerance) {
  EXPECT_NEAR(static_cast<double>(found) / static_cast<double>(wanted), 1, tolerance) << found << " for " << wanted;
}

TEST(Workload, SizesAreNearWhatIsAsked) {
  for (const std::uint64_t mebibytes : {64ULL, 256ULL, 1024ULL, 4096ULL, 65536ULL}) {
    expect_near(sized_workload(mebibytes << 20, kAll).state.bytes, mebibytes << 20, 0.25);
  }
  expect_near(sized_workload(256ULL << 20, {"model"}).state.bytes, 256ULL << 20, 0.25);
}

TEST(Workload, LargerSizesTakeLargerModels) {
  expect_near(sized_workload(700ULL << 30, kAll).state.bytes, 700ULL << 30, 0.05);
  expect_near(sized_workload(4ULL << 40, kAll).state.bytes, 4ULL << 40, 0.05);
  EXPECT_THROW(sized_workload(1ULL << 50, kAll), Error);
}

TEST(Workload, ASizeOfMoreLayersThanAnyModelHasIsRefused) {
  EXPECT_THROW(layered_workload("gpt2", 1ULL << 60, {"model"}), Error);
}

TEST(Workload, ASizeAboveTheShapeIsTheShape) {
  const Workload whole = scaled_workload("whole", kLlama8B, 1ULL << 50, kAll);
  EXPECT_EQ(whole.state.model.layers, 32U);
  EXPECT_EQ(whole.state.bytes, 8030261248ULL * 14);  // parameters of Llama 3.1 8B
}

TEST(Workload, LargeSizesKeepTheWidth) {
  const Workload half = sized_workload(56ULL << 30, kAll);
  EXPECT_EQ(half.state.tensors.at(0).shape.back(), 4096U);
  EXPECT_LT(half.state.model.layers, 32U);
}

TEST(Workload, TinySizesStillHaveAllTensorsAndShard) {
  const Workload tiny = sized_workload(1, kAll);
  EXPECT_EQ(tiny.state.model.layers, 4U);
  for (const char* layout : {"tp=2,pp=2", "tp=4,pp=2", "fsdp=3", "tp=8"}) {
    const shard::Layout parsed = shard::Layout::from_text(layout);
    EXPECT_NO_THROW(shard::ShardMap(parsed, tiny.state.model, tiny.state.sections, tiny.state.tensors)) << layout;
  }
}

TEST(Workload, LayersComeNearestToTheSize) {
  const Workload found = layered_workload("smollm2-135m", 800ULL << 20, kAll);
  expect_near(found.state.bytes, 800ULL << 20, 0.06);
  EXPECT_EQ(layered_workload("smollm2-135m", 1, kAll).state.model.layers, 1U);
}

TEST(Workload, MlperfHasItsBytesARank) {
  // The published sizes, such as 105 GiB on 8 ranks. The parameter count of the state differs slightly from MLPerf's.
  expect_near(mlperf_workload("8b", 8, std::nullopt, kAll).state.bytes, 105ULL << 30, 0.02);
  expect_near(mlperf_workload("8b", 4, std::nullopt, kAll).state.bytes, (105ULL << 30) / 2, 0.05);
  expect_near(mlperf_workload("70b", 64, std::nullopt, kAll).state.bytes, 911ULL << 30, 0.03);
  expect_near(mlperf_workload("405b", 512, std::nullopt, kAll).state.bytes, 5288ULL << 30, 0.03);
  expect_near(mlperf_workload("405b", 4, std::nullopt, kAll).state.bytes, (5288ULL << 30) / 128, 0.25);
  expect_near(mlperf_workload("8b", 4, 64ULL << 20, kAll).state.bytes, 64ULL << 20, 0.25);
  EXPECT_NE(mlperf_workload("8b", 4, std::nullopt, kAll).note.find("105 GiB on 8 ranks"), std::string::npos);
}

TEST(Workload, MlperfLayoutsAreForTheRanks) {
  EXPECT_EQ(mlperf_layout("8b", 8), "fsdp=8");
  EXPECT_EQ(mlperf_layout("70b", 64), "fsdp=8,tp=8");
  EXPECT_EQ(mlperf_layout("405b", 512), "tp=8,pp=64");
  for (const std::string& name : mlperf_names()) {
    for (const int ranks : {1, 2, 3, 4, 6, 12, 16}) {
      EXPECT_EQ(shard::Layout::from_text(mlperf_layout(name, ranks)).world_size(), ranks) << name;
    }
  }
}

TEST(Workload, SectionsAreKeptOrLeft) {
  EXPECT_EQ(parse_sections("all"), kAll);
  EXPECT_EQ(parse_sections("model,optimizer"), (std::vector<std::string>{"model", "optimizer"}));
  EXPECT_EQ(parse_sections("model,model"), (std::vector<std::string>{"model"}));
  for (const char* wrong : {"", "models", "model,", ",model", "all,model"}) {
    EXPECT_THROW(parse_sections(wrong), Error) << wrong;
  }
  DemoState state = demo_state_by_name("smollm2-135m", 2);
  const std::uint64_t all = state.bytes;
  keep_sections(state, {"model"});
  EXPECT_EQ(state.bytes * 7, all);  // 2 of 14 bytes per parameter
  for (const std::string& section : state.sections) EXPECT_EQ(section, "model");
  EXPECT_FALSE(state.tensors.empty());
}

}  // namespace
}  // namespace cairn::bench
