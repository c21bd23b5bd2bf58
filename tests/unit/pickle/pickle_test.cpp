// Pickles written by Python in every protocol, and single opcodes.
#include "pickle/pickle.hpp"

#include <cmath>
#include <limits>

#include "pickle_helpers.hpp"

namespace cairn::format::testing {
namespace {

std::string text_of(const pickle::PickledBytes& bytes) {
  if (!bytes.memory) return "(not in memory)";
  return {reinterpret_cast<const char*>(bytes.memory->data()), bytes.memory->size()};
}

std::vector<std::int64_t> integers_of(pickle::PickleValue value) {
  std::vector<std::int64_t> out;
  for (std::size_t i = 0; i < value.size(); ++i) out.push_back(value.at(i).integer());
  return out;
}

class Protocols : public ::testing::TestWithParam<int> {
 protected:
  static std::string file(const std::string& name) { return pickle_file(name + ".p" + std::to_string(GetParam())); }
};

TEST_P(Protocols, NumbersAndTexts) {
  const HeldPickle held(file("plain"));
  ASSERT_EQ(held.root().entries(), 19u);
  EXPECT_TRUE(held["none"].is(pickle::PickleKind::kNone));
  EXPECT_TRUE(held["true"].boolean());
  EXPECT_FALSE(held["false"].boolean());
  const pickle::PickleValue integers = held["integers"];
  const std::vector<std::int64_t> expected = {0,     1,          -1,         255,         256,       65535,
                                              65536, 2147483647, 2147483648, -2147483648, INT64_MAX, INT64_MIN};
  ASSERT_EQ(integers.size(), 14u);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(integers.at(i).integer(), expected[i]) << i;
  EXPECT_EQ(integers.at(12).unsigned_integer(), std::uint64_t{1} << 63);
  EXPECT_EQ(integers.at(13).unsigned_integer(), UINT64_MAX);
  EXPECT_EQ(integers.at(2).long_integer(), "-0x1");
  EXPECT_EQ(integers.at(11).long_integer(), "-0x8000000000000000");
  const pickle::PickleValue longs = held["long"];
  EXPECT_EQ(longs.at(0).long_integer(), "0x10000000000000000");
  EXPECT_EQ(longs.at(1).long_integer(), "-0x400000000000000000");
  EXPECT_EQ(longs.at(2).long_integer(), "0x1950a86a20f9469cfc6c");
  const pickle::PickleValue floats = held["floats"];
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<double> reals = {0.0, -0.0, 0.1, 1e300, 5e-324, kInfinity, -kInfinity};
  ASSERT_EQ(floats.size(), reals.size());
  for (std::size_t i = 0; i < reals.size(); ++i) EXPECT_EQ(floats.at(i).real(), reals[i]) << i;
  EXPECT_TRUE(std::signbit(floats.at(1).real()));
  EXPECT_TRUE(std::isnan(held["nan"].real()));
  EXPECT_EQ(held["text"].text(), raw("a\\b\n'\"\0\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\x8d"));
  EXPECT_EQ(held["empty text"].text(), "");
}

TEST_P(Protocols, Containers) {
  const HeldPickle held(file("plain"));
  const pickle::PickleValue tuples = held["tuples"];
  ASSERT_EQ(tuples.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(tuples.at(i).is(pickle::PickleKind::kTuple));
    ASSERT_EQ(tuples.at(i).size(), i);
    if (i > 0) {
      EXPECT_EQ(tuples.at(i).at(i - 1).integer(), static_cast<std::int64_t>(i));
    }
  }
  const pickle::PickleValue shared = held["shared"];
  EXPECT_EQ(shared.at(0).id(), shared.at(1).id());
  EXPECT_EQ(integers_of(shared.at(0)), std::vector<std::int64_t>{1});
  const pickle::PickleValue circle = held["circle"];
  EXPECT_EQ(circle.at(0).id(), circle.id());
  EXPECT_TRUE(held.pickle.has_cycles());
  EXPECT_TRUE(held.pickle.warnings().empty());
  EXPECT_EQ(held.pickle.end(), held.bytes.size());
  const auto last = held.root().entry(18);
  EXPECT_EQ(last.first.integer(), 5);
  EXPECT_EQ(last.second.text(), "five");
  const auto with_tuple = held.root().entry(17);
  EXPECT_EQ(with_tuple.first.at(1).text(), "a");
}

TEST_P(Protocols, ObjectsAreWhatWasCalledAndTheirState) {
  const HeldPickle held(file("objects"));
  const pickle::PickleValue all = held.root();
  ASSERT_EQ(all.size(), 8u);
  const pickle::PickleValue state = all.at(0);
  ASSERT_TRUE(state.is(pickle::PickleKind::kObject));
  EXPECT_EQ(state.name(), "__main__.State");
  ASSERT_TRUE(state.state());
  EXPECT_EQ(state.state()->find("step")->integer(), 3);
  EXPECT_EQ(state.state()->find("me")->id(), state.id());
  EXPECT_EQ(all.at(1).name(), "__main__.Color");
  EXPECT_EQ(all.at(1).arguments().at(0).integer(), 1);
  EXPECT_EQ(all.at(1).id(), state.state()->find("color")->id());
  EXPECT_EQ(all.at(2).name(), "__main__.Entries");
  EXPECT_EQ(all.at(2).state()->find("note")->text(), "x");
  EXPECT_EQ(all.at(3).name(), "__main__.Elements");
  EXPECT_EQ(all.at(3).state()->find("note")->text(), "y");
  if (GetParam() >= 2) {
    EXPECT_EQ(all.at(2).find("a")->integer(), 1);
    EXPECT_EQ(integers_of(all.at(3)), (std::vector<std::int64_t>{1, 2}));
  }
  EXPECT_EQ(all.at(4).name(), "collections.defaultdict");
  EXPECT_EQ(all.at(4).find("k")->at(0).integer(), 1);
  EXPECT_EQ(all.at(5).name(), "pathlib.PurePosixPath");
  EXPECT_EQ(all.at(6).name(), "__main__.State");
  EXPECT_TRUE(all.at(6).is(pickle::PickleKind::kGlobal));
  EXPECT_EQ(all.at(7).name(), "builtins.len");
}

TEST_P(Protocols, CallsAreNotMade) {
  const HeldPickle held(file("command"));
  const pickle::PickleValue run = held["run"];
  EXPECT_EQ(run.name(), "posix.system");
  EXPECT_EQ(run.arguments().at(0).text(), "touch executed");
  EXPECT_FALSE(std::ifstream("executed").good());
}

/// No prefix of a pickle is accepted (of a long one, every seventh is tried), and no byte is read beyond its end.
TEST_P(Protocols, EveryTruncationIsRefused) {
  std::size_t prefixes = 0;
  for (const char* name : {"plain", "arrays", "objects", "command"}) {
    const std::string whole = file(name);
    const std::size_t step = whole.size() > 2000 ? 7 : 1;
    for (std::size_t size = 0; size < whole.size(); size += step, ++prefixes) {
      expect_refused(whole.substr(0, size), {});
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(prefixes, 2000u);
}

INSTANTIATE_TEST_SUITE_P(, Protocols, ::testing::Range(0, 6), ::testing::PrintToStringParamName());

TEST(Pickle, KeywordArguments) {
  for (const char* protocol : {"4", "5"}) {
    const HeldPickle held(pickle_file(std::string("keywords.p") + protocol));
    EXPECT_EQ(held.root().name(), "__main__.Named");
    ASSERT_TRUE(held.root().keywords());
    EXPECT_EQ(held.root().keywords()->find("size")->integer(), 3);
  }
}

TEST(Pickle, ElementsComeInBatches) {
  for (const char* protocol : {"2", "4"}) {
    const HeldPickle held(pickle_file(std::string("many.p") + protocol));
    const auto all = integers_of(held.root());
    ASSERT_EQ(all.size(), 2500u);
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<std::int64_t>(i));
  }
}

/// A source that counts the bytes that are read.
struct ReadRanges {
  explicit ReadRanges(std::string_view content) : bytes(content) {}
  [[nodiscard]] base::ByteSource source() {
    return {bytes.size(), [this](std::span<std::byte> to, std::uint64_t at_bytes) {
              total += to.size();
              std::ranges::copy(base::as_bytes(bytes).subspan(at_bytes, to.size()), to.begin());
            }};
  }
  std::string_view bytes;
  std::uint64_t total = 0;
};

TEST(Pickle, LongBytesAreNotRead) {
  const std::string data(10'000'000, 'x');
  std::string bytes = raw("\x80\x05]\x94(");
  for (const char* opcode : {"B", "\x8e", "\x96"}) {
    const bool has_short_length = *opcode == 'B';
    bytes += opcode;
    bytes += length_prefix(data.size()).substr(0, has_short_length ? 4 : 8) + data;
  }
  bytes +=
      "C\x05"
      "short"
      "e.";
  ReadRanges ranges(bytes);
  const pickle::Pickle pickle = pickle::read_pickle(ranges.source(), "p");
  EXPECT_LT(ranges.total, 50'000u);
  const pickle::PickleValue all = pickle.root();
  ASSERT_EQ(all.size(), 4u);
  std::uint64_t at = 5;
  for (std::size_t i = 0; i < 3; ++i) {
    const pickle::PickledBytes found = all.at(i).bytes();
    at += i == 0 ? 5 : 9;
    EXPECT_EQ(found.offset, at);
    EXPECT_EQ(found.size_bytes, data.size());
    EXPECT_FALSE(found.memory);
    at += data.size();
  }
  EXPECT_EQ(text_of(all.at(3).bytes()), "short");
  EXPECT_EQ(bytes.substr(all.at(3).bytes().offset, 5), "short");
}

TEST(Pickle, LongTextsAreNotRead) {
  const HeldPickle held(raw("X\x05\x00\x00\x00"
                            "12345."),
                        {.inline_bytes = 4});
  expect_error(ErrorKind::kFormat, [&] { (void)held.root().text(); },
               {"x.pdopt: byte 0: a text of 5 bytes is not read"});
  EXPECT_FALSE(held.root().is_text());
  EXPECT_EQ(held.root().bytes().offset, 5u);
}

TEST(Pickle, StringsOfPython2) {
  const HeldPickle held(
      raw("(S'it\\'s\\x00\\n\\101'\nU\x02"
          "abT\x02\x00\x00\x00\xff\xfet."));
  ASSERT_EQ(held.root().size(), 3u);
  EXPECT_EQ(held.root().at(0).text(), raw("it's\0\nA"));
  EXPECT_EQ(held.root().at(1).text(), "ab");
  EXPECT_EQ(text_of(held.root().at(1).bytes()), "ab");
  EXPECT_FALSE(held.root().at(2).is_text());
  EXPECT_EQ(text_of(held.root().at(2).bytes()), "\xff\xfe");
  EXPECT_TRUE(held.root().at(2).is(pickle::PickleKind::kBytes));
}

TEST(Pickle, TheLastOfEqualKeysCounts) {
  const HeldPickle held(
      raw("}(X\x01\x00\x00\x00"
          "aK\x01X\x01\x00\x00\x00"
          "bK\x02X\x01\x00\x00\x00"
          "aK\x03K\x07K\x04K\x07K\x05u."));
  ASSERT_EQ(held.root().entries(), 3u);
  EXPECT_EQ(held["a"].integer(), 3);
  EXPECT_EQ(held["b"].integer(), 2);
  EXPECT_EQ(held.root().entry(0).first.text(), "a");
  EXPECT_EQ(held.root().entry(2).second.integer(), 5);
  ASSERT_EQ(held.pickle.warnings().size(), 2u);
  EXPECT_EQ(held.pickle.warnings()[0], "dir/x.pdopt: byte 18: the key 'a' is set a second time; the last value counts");
}

TEST(Pickle, OneAfterAnother) {
  const std::string first = raw("\x80\x02K\x01.");
  const std::string bytes = first + "(t.";
  const HeldPickle one(bytes, {.may_go_on = true});
  EXPECT_EQ(one.root().integer(), 1);
  EXPECT_EQ(one.pickle.end(), first.size());
  const HeldPickle two(bytes, {.begin = one.pickle.end()});
  EXPECT_EQ(two.root().size(), 0u);
  EXPECT_EQ(two.pickle.end(), bytes.size());
  expect_refused(bytes, {"byte 4: the pickle ends here, and 3 bytes follow it"});
  expect_refused(bytes, {"byte 9: the file ends before"}, {.begin = 9});
}

TEST(Pickle, Persistent) {
  const HeldPickle held(raw("(Pid 1\nK\x05Qt."));
  EXPECT_EQ(held.root().at(0).persistent_id().text(), "id 1");
  EXPECT_EQ(held.root().at(1).persistent_id().integer(), 5);
}

TEST(Pickle, OldOpcodes) {
  // After the two classes: a memo entry, and values that POP, POP_MARK and POP of a mark remove again.
  const HeldPickle held(raw(
      "(I01\nI00\nL-5L\nL18446744073709551616\nF1e3\n(lp0\nI7\na(dp1\nS'k'\nNs(I1\nimod\nClass\n(cmod\nOther\nI2\nog0\n"
      "N0(I1\n1(0t."));
  const pickle::PickleValue all = held.root();
  ASSERT_EQ(all.size(), 10u);
  EXPECT_TRUE(all.at(0).boolean());
  EXPECT_FALSE(all.at(1).boolean());
  EXPECT_EQ(all.at(2).integer(), -5);
  EXPECT_EQ(all.at(3).long_integer(), "0x10000000000000000");
  EXPECT_EQ(all.at(4).real(), 1000);
  EXPECT_EQ(integers_of(all.at(5)), std::vector<std::int64_t>{7});
  EXPECT_TRUE(all.at(6).find("k")->is(pickle::PickleKind::kNone));
  EXPECT_EQ(all.at(7).name(), "mod.Class");
  EXPECT_EQ(all.at(7).arguments().at(0).integer(), 1);
  EXPECT_EQ(all.at(8).name(), "mod.Other");
  EXPECT_EQ(all.at(8).arguments().at(0).integer(), 2);
  EXPECT_EQ(all.at(9).id(), all.at(5).id());
}

TEST(Pickle, AccessorsNameThePlace) {
  const HeldPickle held(
      raw("(K\x01X\x01\x00\x00\x00"
          "aI-2\nt."));
  const auto expect_fault = [&](auto access, std::string_view part) {
    expect_error(ErrorKind::kFormat, [&] { access(held.root()); }, {part});
  };
  expect_fault([](pickle::PickleValue v) { (void)v.at(1).integer(); },
               "dir/x.pdopt: byte 3: expected an integer, found a text");
  expect_fault([](pickle::PickleValue v) { (void)v.at(0).text(); }, "byte 1: expected a text, found an integer");
  expect_fault([](pickle::PickleValue v) { (void)v.integer(); }, "expected an integer, found a tuple");
  expect_fault([](pickle::PickleValue v) { (void)v.entries(); }, "expected a dict, found a tuple");
  expect_fault([](pickle::PickleValue v) { (void)v.at(3); }, "there is no element 3 in 3");
  expect_fault([](pickle::PickleValue v) { (void)v.at(2).unsigned_integer(); },
               "an integer from 0 to 2^64 - 1, found -2");
  expect_fault([](pickle::PickleValue v) { (void)v.state(); }, "expected an object, found a tuple");
}

}  // namespace
}  // namespace cairn::format::testing
