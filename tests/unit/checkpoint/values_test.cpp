// Named values: what is set is read back, and everything else is a typed error that says what is there.
#include "cairn/values.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "expect_error.hpp"

namespace cairn::test {
namespace {

using testing::ElementsAre;

std::vector<std::byte> some_bytes() { return {std::byte{0}, std::byte{0x7f}, std::byte{0xff}}; }

NamedValues some_values() {
  NamedValues values;
  values.set_integer(value_names::kStep, 1000);
  values.set_integer("lowest", std::numeric_limits<std::int64_t>::min());
  values.set_integer("highest", std::numeric_limits<std::int64_t>::max());
  values.set_number("lr", 0.1);
  values.set_number("whole", 3.0);
  values.set_text(value_names::kSchedule, R"({"last_epoch": 7, "ü": "\""})");
  values.set_bytes(value_names::kRandomState, some_bytes());
  values.set_bytes("empty", {});
  return values;
}

/// Extras as a load by `ranks` ranks gives them.
Checkpointer::LoadedExtras loaded(const Extras& saved, std::uint64_t saving_ranks) {
  Checkpointer::LoadedExtras extras;
  extras.metadata = saved.metadata;
  extras.rank_blobs = saved.rank_blob.empty() ? 0 : saving_ranks;
  extras.rank_blob = saved.rank_blob;
  return extras;
}

TEST(NamedValues, ComeBackAsTheyWereSet) {
  const NamedValues values = parse_values(encode_values(some_values()));
  EXPECT_EQ(values, some_values());
  EXPECT_EQ(values.integer("step"), 1000);
  EXPECT_EQ(values.number("step"), 1000);  // an integer is a number
  EXPECT_EQ(values.number("lr"), 0.1);
  EXPECT_EQ(values.number("whole"), 3);
  EXPECT_EQ(values.bytes("random_state"), some_bytes());
  EXPECT_TRUE(values.bytes("empty").empty());
  EXPECT_TRUE(values.contains("lr"));
  EXPECT_FALSE(values.contains("lR"));
  EXPECT_EQ(parse_values(encode_values({})), NamedValues());
  NamedValues again = some_values();
  again.set_text("step", "x");
  EXPECT_EQ(again.text("step"), "x");
}

TEST(NamedValues, AMissingOneNamesTheNearest) {
  const NamedValues values = some_values();
  expect_error(ErrorKind::kNotFound, [&] { (void)values.bytes("random_stat"); },
               {"no value 'random_stat'", "the nearest name is 'random_state'"});
  expect_error(ErrorKind::kNotFound, [&] { (void)values.integer("zzzzzzzz"); }, {"there are", "'step'"});
  expect_error(ErrorKind::kNotFound, [] { (void)NamedValues().text("a"); }, {"there are no values"});
}

TEST(NamedValues, OfAnotherTypeAreErrors) {
  const NamedValues values = some_values();
  expect_error(ErrorKind::kState, [&] { (void)values.integer("lr"); }, {"'lr' is a number, expected an integer"});
  expect_error(ErrorKind::kState, [&] { (void)values.text("step"); }, {"'step' is an integer, expected a text"});
  expect_error(ErrorKind::kState, [&] { (void)values.number("lr_schedule"); }, {"a text, expected a number"});
  expect_error(ErrorKind::kState, [&] { (void)values.bytes("lr_schedule"); }, {"a text, expected bytes"});
}

TEST(NamedValues, RefuseWhatCannotBeSaved) {
  NamedValues values;
  expect_error(ErrorKind::kUsage, [&] { values.set_number("a", std::nan("")); }, {"'a' is nan"});
  expect_error(ErrorKind::kUsage, [&] { values.set_integer("", 1); }, {"empty name"});
  expect_error(ErrorKind::kUsage, [&] { values.set_text("a", "\xff"); }, {"not UTF-8"});
  expect_error(ErrorKind::kUsage, [&] { values.set_integer("\xff", 1); }, {"not UTF-8"});
  EXPECT_EQ(values, NamedValues());
}

TEST(NamedValues, DamagedAndForeignTextsAreErrors) {
  std::string text = encode_values(some_values());
  text.replace(text.find("1000"), 4, "1001");
  expect_error(ErrorKind::kIntegrity, [&] { (void)parse_values(text); }, {"checksum"});
  for (const char* other : {"", "{}", "[]", "random state of rank 0", R"({"cairn_values": 1})",
                            R"({"cairn_values": 2, "crc32c": "", "values": {}})"}) {
    expect_error(ErrorKind::kFormat, [&] { (void)parse_values(other); }, {"named values"});
  }
}

TEST(NamedValues, OfTheRunAndOfRanksTravelInExtras) {
  Extras extras;
  extras.metadata["note"] = "mine";
  expect_error(ErrorKind::kNotFound, [&] { (void)run_values(loaded(extras, 2)); }, {"put_run_values"});
  expect_error(ErrorKind::kNotFound, [&] { (void)rank_values(loaded(extras, 2), 2); }, {"put_rank_values"});
  put_run_values(extras, some_values());
  NamedValues mine;
  mine.set_bytes(value_names::kRandomState, some_bytes());
  put_rank_values(extras, mine);
  EXPECT_EQ(extras.metadata.at("note"), "mine");
  EXPECT_EQ(run_values(loaded(extras, 2)), some_values());
  EXPECT_EQ(rank_values(loaded(extras, 2), 2), mine);
  expect_error(ErrorKind::kState, [&] { (void)rank_values(loaded(extras, 2), 3); },
               {"those of 2 ranks, and 3 ranks load"});
  EXPECT_THAT(values_of_blob(extras.rank_blob).names(), ElementsAre("random_state"));
  expect_error(ErrorKind::kFormat, [] { (void)values_of_blob(some_bytes()); }, {"the blob of the rank has other data"});
}

}  // namespace
}  // namespace cairn::test
