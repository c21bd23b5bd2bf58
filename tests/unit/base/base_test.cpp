// Sizes in users' notation, printable text, arithmetic that does not wrap, byte strings that ranks exchange, log sinks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/checked.hpp"
#include "base/log.hpp"
#include "base/mix.hpp"
#include "base/text.hpp"
#include "cairn/log.hpp"
#include "nlohmann/json.hpp"

namespace cairn::base {
namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

ErrorKind kind_thrown(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.kind();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorKind::kIo;
}

TEST(ParseSize, KnowsDecimalAndBinaryUnits) {
  EXPECT_EQ(parse_size("4096"), 4096u);
  EXPECT_EQ(parse_size("0"), 0u);
  EXPECT_EQ(parse_size("5GB"), 5'000'000'000u);
  EXPECT_EQ(parse_size("4 MiB"), 4u << 20);
  EXPECT_EQ(parse_size("1.5gib"), 3ULL << 29);
  EXPECT_EQ(parse_size("64k"), 65536u);
  EXPECT_EQ(parse_size("1T"), 1ULL << 40);
  EXPECT_EQ(parse_size("9000000TB"), 9'000'000'000'000'000'000u);
}

TEST(ParseSize, RefusesWhatIsNoSize) {
  for (const char* text :
       {"", "GB", "x", "5 XB", "-1", "-1KB", "nan", "infKB", "1e30", "5GBB", "0x10", "1,5GB", "10000000TB"}) {
    EXPECT_EQ(kind_thrown([&] { parse_size(text); }), ErrorKind::kUsage) << text;
  }
}

// Differences from Hugging Face: Cairn also accepts binary units and bare bytes, and it refuses negative sizes.
TEST(ParseSize, AgreesWithHuggingFace) {
  const char* root = std::getenv("CAIRN_TEST_DATA");
  ASSERT_NE(root, nullptr) << "run the tests through ctest";
  std::ifstream in(std::string(root) + "/hf_split.json");
  const auto vectors = nlohmann::json::parse(in)["parse_size"];
  int equal = 0;
  int refused = 0;
  int different = 0;
  for (const auto& vector : vectors) {
    const std::string text = vector[0];
    if (text == "5GiB" || text == "5") {
      EXPECT_EQ(parse_size(text), text == "5" ? 5u : 5ULL << 30);
      ++different;
    } else if (vector[1].is_number_unsigned()) {
      EXPECT_EQ(parse_size(text), vector[1].get<std::uint64_t>()) << text;
      ++equal;
    } else {
      EXPECT_EQ(kind_thrown([&] { parse_size(text); }), ErrorKind::kUsage) << text;
      ++refused;
    }
  }
  EXPECT_EQ(equal, 8);
  EXPECT_EQ(refused, 5);
  EXPECT_EQ(different, 2);
}

TEST(FormatSize, KeepsThreePlaces) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(1023), "1023 B");
  EXPECT_EQ(format_size(1024), "1.00 KiB");
  EXPECT_EQ(format_size(2'040'109'465), "1.90 GiB");
  EXPECT_EQ(format_size(15ULL << 20), "15.0 MiB");
  EXPECT_EQ(format_size(500ULL << 40), "500 TiB");
  EXPECT_EQ(format_size(kMost), "16777216 TiB");
}

TEST(Printable, EscapesAndCuts) {
  EXPECT_EQ(printable("plain \u00e9"), "plain \u00e9");
  EXPECT_EQ(printable(std::string_view("a\n\0'\\\x7f", 6)), "a\\x0a\\x00\\x27\\x5c\\x7f");
  EXPECT_EQ(printable("abcdef", 3), "abc...");
  EXPECT_EQ(printable("abc", 3), "abc");
}

TEST(Printable, EscapesWhatTerminalsObeyOrDoNotShow) {
  EXPECT_EQ(printable("\u4e2d\u6587 \U0001f600 \u0627"), "\u4e2d\u6587 \U0001f600 \u0627");
  EXPECT_EQ(printable("\u009b31m"), "\\xc2\\x9b31m");                 // CSI in eight bits
  EXPECT_EQ(printable("a\u202egnp.exe"), "a\\xe2\\x80\\xaegnp.exe");  // written from right to left
  for (const char* unseen : {"\u0080", "\u009f", "\u00ad", "\u061c", "\u200b", "\u200f", "\u2028", "\u202a", "\u2066",
                             "\u2069", "\ufeff", "\U000e0041"}) {
    EXPECT_THAT(printable(unseen), testing::MatchesRegex(R"((\\x[0-9a-f][0-9a-f])+)"));
    EXPECT_THAT(one_line(std::string("'") + unseen), testing::MatchesRegex(R"('(\\x[0-9a-f][0-9a-f])+)"));
  }
  EXPECT_EQ(printable("a\x9b\xff\xe2\x80"), "a\\x9b\\xff\\xe2\\x80");  // not UTF-8
  // A character is never cut in two.
  EXPECT_EQ(printable("ab\u4e2d", 3), "ab...");
  EXPECT_EQ(printable("ab\u4e2d", 5), "ab\u4e2d");
  EXPECT_EQ(one_line("a\\'\n"), "a\\'\\x0a");
}

TEST(VisibleJson, SaysTheSame) {
  EXPECT_EQ(visible_json(R"({"a": "plain"})"), R"({"a": "plain"})");
  EXPECT_EQ(visible_json("[\"\u4e2d\u202e\u009b\U000e0041\"]"), "[\"\u4e2d\\u202e\\u009b\\udb40\\udc41\"]");
}

TEST(Checked, FindsOverflow) {
  EXPECT_EQ(try_add(kMost, 0), kMost);
  EXPECT_FALSE(try_add(kMost, 1));
  EXPECT_EQ(try_mul(1ULL << 63, 1), 1ULL << 63);
  EXPECT_FALSE(try_mul(1ULL << 63, 2));
  EXPECT_EQ(add(2, 3, "x"), 5u);
  EXPECT_EQ(mul(2, 3, "x"), 6u);
  EXPECT_EQ(kind_thrown([] { add(kMost, 1, "x"); }), ErrorKind::kInternal);
  EXPECT_EQ(kind_thrown([] { mul(kMost, 2, "x"); }), ErrorKind::kInternal);
}

TEST(Checked, MultipliesShapesLeftToRight) {
  const auto product = [](std::vector<std::uint64_t> shape) { return try_product(shape); };
  EXPECT_EQ(product({}), 1u);
  EXPECT_EQ(product({3, 5}), 15u);
  EXPECT_EQ(product({0, 1ULL << 63, 4}), 0u);
  EXPECT_FALSE(product({1ULL << 63, 4, 0}));
}

TEST(Checked, RoundsAndDivides) {
  EXPECT_EQ(ceil_div(0, 8), 0u);
  EXPECT_EQ(ceil_div(1, 8), 1u);
  EXPECT_EQ(ceil_div(8, 8), 1u);
  EXPECT_EQ(ceil_div(kMost, 2), 1ULL << 63);
  EXPECT_EQ(round_up(9, 8), 16u);
  EXPECT_EQ(round_up(16, 8), 16u);
}

TEST(Checked, NarrowsOnlyWhatFits) {
  EXPECT_EQ(narrow<std::int32_t>(0x7fffffffLL, "count"), 0x7fffffff);
  EXPECT_EQ(kind_thrown([] { narrow<std::int32_t>(0x80000000LL, "count"); }), ErrorKind::kInternal);
  EXPECT_EQ(kind_thrown([] { narrow<std::uint64_t>(-1, "count"); }), ErrorKind::kInternal);
}

TEST(Bytes, GoThereAndBack) {
  ByteWriter writer;
  writer.u64(kMost);
  writer.text("");
  writer.text("name\n");
  writer.u64s(std::vector<std::uint64_t>{1, 2, 3});
  writer.u64s({});
  writer.blob(as_bytes("xyz"));
  const Bytes bytes = writer.take();
  ByteReader reader(bytes);
  EXPECT_EQ(reader.u64(), kMost);
  EXPECT_EQ(reader.text(), "");
  EXPECT_EQ(reader.text(), "name\n");
  EXPECT_EQ(reader.u64s(), (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_TRUE(reader.u64s().empty());
  EXPECT_FALSE(reader.done());
  EXPECT_EQ(reader.blob(), Bytes(as_bytes("xyz").begin(), as_bytes("xyz").end()));
  EXPECT_TRUE(reader.done());
}

TEST(Bytes, RefuseLengthsBeyondTheMessage) {
  for (const std::uint64_t length : {std::uint64_t{1}, std::uint64_t{1} << 61, kMost}) {
    ByteWriter writer;
    writer.u64(length);
    const Bytes bytes = writer.take();
    EXPECT_EQ(kind_thrown([&] { ByteReader(bytes).text(); }), ErrorKind::kInternal);
    EXPECT_EQ(kind_thrown([&] { ByteReader(bytes).blob(); }), ErrorKind::kInternal);
    EXPECT_EQ(kind_thrown([&] { ByteReader(bytes).u64s(); }), ErrorKind::kInternal);
  }
  EXPECT_EQ(kind_thrown([] { ByteReader({}).u64(); }), ErrorKind::kInternal);
}

/// Collects the lines and levels that are logged, through a sink that its destructor removes.
class Lines {
 public:
  Lines() {
    set_log_sink([this](LogLevel level, std::string_view line) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(level, line);
    });
  }
  ~Lines() { set_log_sink({}); }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;
  std::vector<std::pair<LogLevel, std::string>> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(lines_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<LogLevel, std::string>> lines_;
};

std::string standard_error_of(const std::function<void()>& work) {
  testing::internal::CaptureStderr();
  work();
  return testing::internal::GetCapturedStderr();
}

TEST(Log, GoesToTheSinkAndNowhereElse) {
  Lines lines;
  const std::string printed = standard_error_of([] {
    log_debug("nobody asked for it");
    log_warning("one");
    log_error("two");
    warn_once("three, once");
    warn_once("three, once");
  });
  EXPECT_EQ(printed, "");
  using Row = std::pair<LogLevel, std::string>;
  EXPECT_EQ(
      lines.take(),
      (std::vector<Row>{{LogLevel::kWarning, "one"}, {LogLevel::kError, "two"}, {LogLevel::kWarning, "three, once"}}));
}

TEST(Log, GoesToStandardErrorWithoutASinkAndWhereItThrows) {
  { const Lines lines; }
  EXPECT_EQ(standard_error_of([] { log_warning("again"); }), "cairn: warning: again\n");
  set_log_sink([](LogLevel, std::string_view) { throw 7; });
  EXPECT_EQ(standard_error_of([] { log_error("not lost"); }), "cairn: error: not lost\n");
  set_log_sink({});
}

TEST(Log, TakesLinesOfManyThreadsAndAnotherSinkMeanwhile) {
  constexpr int kThreads = 4;
  constexpr int kEach = 500;
  std::atomic<int> seen{0};
  const auto count = [&](LogLevel, std::string_view line) { seen += line == "x" ? 1 : 0; };
  set_log_sink(count);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < kEach; ++i) log_warning("x");
    });
  }
  for (int i = 0; i < kEach; ++i) set_log_sink(count);
  for (std::thread& thread : threads) thread.join();
  set_log_sink({});
  EXPECT_EQ(seen, kThreads * kEach);
}

TEST(Mix, IsSplitMix64) {
  // The first three numbers of the reference implementation (splitmix64.c by Vigna) with the seed 1234567.
  constexpr std::uint64_t kSeed = 1234567;
  EXPECT_EQ(split_mix64(kSeed), 6457827717110365317ULL);
  EXPECT_EQ(split_mix64(kSeed + kGoldenGamma), 3203168211198807973ULL);
  EXPECT_EQ(split_mix64(kSeed + 2 * kGoldenGamma), 9817491932198370423ULL);
  EXPECT_EQ(mix64(0), 0U);
}

TEST(Log, AProcessThatIsRankZeroSomewhereSpeaks) {
  std::string said;
  set_log_sink([&](LogLevel, std::string_view line) { said += line; });
  set_log_rank(3, 4);
  log_warning("a");
  set_log_rank(0, 2);
  log_warning("b");
  set_log_rank(1, 2);
  log_warning("c");
  set_log_sink({});
  EXPECT_EQ(said, "bc");
}

}  // namespace
}  // namespace cairn::base
