// Formulas of the record, and the same numbers in JSON and CSV.
#include "bench/record.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/record_document.hpp"
#include "sample_record.hpp"

namespace cairn::bench {
namespace {

TEST(Record, SharesAreOfTheCeilingsOfTheirOwnRepeat) {
  const Operation save = operation_of(Kind::kSave);
  // 0.5 GiB/s of a ceiling of 2; 1 of 3, the mean of 4 and 2; 0.25 of 1.
  const Summary share = share_of_ceiling(save);
  EXPECT_EQ(share.values, (std::vector<double>{0.25, 1.0 / 3, 0.25}));
  EXPECT_EQ(share.median, 0.25);
  EXPECT_EQ(seconds_of(save).median, 4);
  EXPECT_EQ(first_seconds_of(save).median, 2);
  EXPECT_EQ(rate_of(save).max, 1.0 * kTestGiB);
  EXPECT_EQ(ceiling_of(save).values.size(), 6U);
  EXPECT_EQ(ceiling_of(save).max, 4.0 * kTestGiB);
  EXPECT_EQ(copied_ceiling_of(save).max, 1.25 * kTestGiB);
  EXPECT_EQ(share_of_copied_ceiling(save).values, (std::vector<double>{0.8, 0.8, 0.8}));
  EXPECT_EQ(busy_of(save).values, (std::vector<double>{0.25, 0.5, 0.125}));
  EXPECT_EQ(ceiling_busy_of(save).median, 0.5);
}

TEST(Record, PhasesAreSummarisedByName) {
  Operation save = operation_of(Kind::kSave);
  save.samples[2].phases.push_back({"fsync", 1, 1, 0});
  EXPECT_EQ(phases_of(save), (std::vector<std::string>{"plan", "write", "fsync"}));
  EXPECT_EQ(phase_seconds(save, "write").values, (std::vector<double>{3, 1.5, 6}));
  EXPECT_EQ(phase_first_seconds(save, "write").median, 1);
  EXPECT_EQ(phase_share(save, "write").median, 0.75);
  EXPECT_EQ(phase_seconds(save, "fsync").values, (std::vector<double>{0, 0, 1}));
  EXPECT_EQ(phase_bytes(save, "write"), 2 * kTestGiB);
  EXPECT_EQ(phase_bytes(save, "none"), 0U);
}

TEST(Record, FixedCostsAreThoseOfPhasesThatMoveNothing) {
  const Operation save = operation_of(Kind::kSave);
  const double plan = phase_seconds(save, "plan").median;
  const double write = phase_seconds(save, "write").median;
  const FixedCosts costs = fixed_costs_of(save);
  EXPECT_GT(plan, 0);
  EXPECT_DOUBLE_EQ(costs.seconds, plan);
  EXPECT_DOUBLE_EQ(costs.share, plan / (plan + write));
  // For a state of size_bytes, written at the same rate, the share of fixed costs is kFixedShare.
  const double then = write * static_cast<double>(costs.size_bytes) / static_cast<double>(save.bytes);
  EXPECT_NEAR(plan / (plan + then), kFixedShare, 1e-6);
  EXPECT_EQ(fixed_costs_of({}).size_bytes, 0U);
}

TEST(Record, EngineIsToldWithItsHints) {
  Operation save = operation_of(Kind::kSave);
  EXPECT_EQ(engine_text(save), "mpiio: asked for; hints cb_nodes=4 romio_cb_write=<disable>");
  save.engine_hints.clear();
  EXPECT_EQ(engine_text(save), "mpiio: asked for");
  const auto json = nlohmann::json::parse(record_json(sample_record()).dump());
  EXPECT_EQ(json["runs"][0]["loads"][0]["engine_hints"]["cb_nodes"], "4");
}

TEST(Record, NothingMeasuredIsNoDivisionByZero) {
  Operation empty;
  EXPECT_EQ(share_of_ceiling(empty).median, 0);
  empty.samples.push_back({});
  EXPECT_EQ(share_of_ceiling(empty).median, 0);
  EXPECT_EQ(share_of_copied_ceiling(empty).median, 0);
  EXPECT_EQ(rate_of(empty).median, 0);
  EXPECT_EQ(phase_share(empty, "write").median, 0);
}

TEST(RecordJson, HasTheNumbersOfTheRecord) {
  const auto json = nlohmann::json::parse(record_json(sample_record()).dump());
  EXPECT_EQ(json["record_version"], kRecordVersion);
  EXPECT_EQ(json["options"]["read_back"], "sample");
  EXPECT_EQ(json["runs"].size(), 2U);
  const auto& save = json["runs"][0]["save"];
  EXPECT_EQ(save["seconds_max"]["median"], 4.0);
  EXPECT_EQ(save["seconds_max"]["values"].size(), 3U);
  EXPECT_EQ(save["share_of_ceiling"]["median"], 0.25);
  EXPECT_EQ(save["ceiling"]["copied_gib_per_s"]["max"], 1.25);
  EXPECT_EQ(save["share_of_copied_ceiling"]["median"], 0.8);
  EXPECT_EQ(save["gib_per_s"]["max"], 1.0);
  EXPECT_EQ(save["engine_hints"].dump(), R"({"cb_nodes":"4","romio_cb_write":"<disable>"})");
  EXPECT_EQ(save["phases"][1]["name"], "write");
  EXPECT_EQ(save["phases"][1]["size_bytes"], 2 * kTestGiB);
  EXPECT_EQ(json["runs"][0]["loads"][0]["cache"]["state"], "dropped");
  EXPECT_EQ(json["memory_ceilings_gib_per_s"]["memcpy"]["median"], 2.0);
  EXPECT_TRUE(json["memory_ceilings_gib_per_s"]["exchange"].is_null());
  EXPECT_EQ(json["machine"]["hosts"][0]["name"], "node<1>");
}

// Fields of a CSV line, without their quotes.
std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (line[at] == '"' && quoted && at + 1 < line.size() && line[at + 1] == '"') {
      fields.back() += line[++at];
    } else if (line[at] == '"') {
      quoted = !quoted;
    } else if (line[at] == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += line[at];
    }
  }
  return fields;
}

TEST(RecordCsv, EveryLineHasEveryColumn) {
  std::istringstream lines(record_csv(sample_record()));
  std::string line;
  std::getline(lines, line);
  const auto columns = fields_of(line);
  EXPECT_EQ(columns.size(), 16U);
  std::size_t count = 0;
  std::size_t totals = 0;
  while (std::getline(lines, line)) {
    const auto fields = fields_of(line);
    ASSERT_EQ(fields.size(), columns.size()) << line;
    EXPECT_EQ(fields[0], std::to_string(kRecordVersion));
    ++count;
    if (fields[7] != "total") continue;
    ++totals;
    EXPECT_EQ(fields[1], "size, \"small\"");
    EXPECT_EQ(fields[4], "tp=2,pp=2");
    EXPECT_EQ(fields[15], std::to_string(2 * kTestGiB));
  }
  // Two runs, save and load, three repeats: each has three ceilings, a total, two phases. Plus two memory ceilings.
  EXPECT_EQ(totals, 12U);
  EXPECT_EQ(count, 12U * 6 + 2);
}

}  // namespace
}  // namespace cairn::bench
