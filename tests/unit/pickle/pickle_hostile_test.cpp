// Pickles that no pickler writes: read, or refused with the place of the error, in bounded time and memory.
#include "bounded.hpp"
#include "pickle/python_objects.hpp"
#include "pickle_helpers.hpp"

namespace cairn::format::testing {
namespace {

TEST(HostilePickle, Nothing) {
  expect_refused("", {"byte 0: the file ends 0 bytes on, where 1 bytes are announced"});
  expect_refused(".", {"byte 0: it takes a value from an empty stack"});
  expect_refused(raw("\x80\x04."), {"byte 2: it takes a value from an empty stack"});
  expect_refused(raw("PK\x03\x04"
                     "rest of a zip file"),
                 {"byte 1: the file ends"});
  expect_refused("{\"a\": 1}", {"byte 0: there is no opcode 0x7b '{': it is damaged, or not a pickle"});
}

TEST(HostilePickle, EveryUnknownOpcode) {
  const std::string known = "(.012FIKLMNPQRSTUVXabcdeghijlopqrstu})]GJBC";
  std::size_t unknown = 0;
  for (int opcode = 0; opcode < 256; ++opcode) {
    const bool is_known =
        known.find(static_cast<char>(opcode)) != std::string::npos || (opcode >= 0x80 && opcode <= 0x98);
    if (is_known) continue;
    expect_refused("N" + std::string(1, static_cast<char>(opcode)) + ".", {"byte 1: there is no opcode 0x"});
    ++unknown;
  }
  EXPECT_EQ(unknown, 256u - 43 - 25);
  expect_refused("NZ.", {"there is no opcode 0x5a 'Z'"});
}

TEST(HostilePickle, TheStack) {
  for (const char* pickle :
       {"a.", "s.", "R.", "b.", "\x81.", "\x85.", "\x86.", "\x87.", "\x93.", "Q.", "0.", "2.", "\x94.", "q\x01."}) {
    expect_refused(pickle, {"byte 0: it takes a value from an empty stack"});
  }
  for (const char* pickle : {"t.", "l.", "d.", "e.", "u.", "1.", "o.", "\x90.", "\x91.", "N]e."}) {
    expect_refused(pickle, {"it looks for a mark where none is"});
  }
  // A mark shields the values below it.
  expect_refused("NN(\x86.", {"byte 3: it takes a value from an empty stack"});
  expect_refused("](N(a.", {"byte 4: it takes a value from an empty stack"});
  expect_refused("(o.", {"it takes a value from an empty stack"});
  expect_refused("N(.", {"byte 2: it takes a value from an empty stack"});
  // Values and marks that remain below the result do not matter.
  EXPECT_EQ(HeldPickle("NI5\n.").root().integer(), 5);
  EXPECT_EQ(HeldPickle("(I5\n.").root().integer(), 5);
}

TEST(HostilePickle, Types) {
  expect_refused("NNa.", {"it appends to None"});
  expect_refused("N(Ne.", {"it appends to None"});
  expect_refused("](NNu.", {"it sets entries of a list"});
  expect_refused(")NNs.", {"it sets entries of a tuple"});
  expect_refused("}(Nu.", {"a key has no value"});
  expect_refused("(Nd.", {"a key has no value"});
  expect_refused("}(]Nu.", {"a list as a key"});
  expect_refused("}}Ns.", {"a dict as a key"});
  expect_refused("](N\x90.", {"it adds to a list"});
  expect_refused("N)R.", {"it calls None"});
  expect_refused("})\x81.", {"it calls a dict"});
  expect_refused("cm\nn\nNR.", {"the arguments of a call are None"});
  expect_refused("cm\nn\n)N\x92.", {"keyword arguments are None"});
  expect_refused("}}b.", {"it gives a state to a dict"});
  expect_refused("cm\nn\n}b.", {"it gives a state to the name of a class or function"});
  expect_refused("NQ}b.", {"it gives a state to a persistent id"});
  expect_refused("cm\nn\n)R}b}b.", {"an object gets a state a second time"});
}

TEST(HostilePickle, Names) {
  expect_refused("NN\x93.", {"the name of a class or function is None"});
  expect_refused(raw("\x8c\x02osC\x06system\x93."), {"the name of a class or function is bytes"});
  expect_refused("c\nn\n.", {"the name of a class or function is empty"});
  expect_refused("cm\n\xff\n.", {"the name of a class or function is not UTF-8"});
  expect_refused("c" + std::string(1001, 'm') + "\nn\n.", {"the name of a class or function is too long"});
  const std::string length = length_prefix(1001).substr(0, 4);
  expect_refused("X" + length + std::string(1001, 'm') + "X" + length + std::string(1001, 'm') + "\x93.",
                 {"the name of a class or function is too long"});
}

TEST(HostilePickle, TheMemo) {
  expect_refused(raw("h\x07."), {"byte 0: there is no memo entry 7"});
  expect_refused(raw("j\xff\xff\xff\xff."), {"there is no memo entry 4294967295"});
  expect_refused(raw("Nq\x00"
                     "0Nq\x00."),
                 {"byte 5: memo entry 0 is set a second time"});
  expect_refused(raw("Nq\x05"
                     "0Nq\x05."),
                 {"memo entry 5 is set a second time"});
  // MEMOIZE counts entries: PUT 1, then the first MEMOIZE is also entry 1.
  expect_refused(raw("Nq\x01\x94."), {"memo entry 1 is set a second time"});
  expect_refused("Np\n.", {"'' is not the number of a memo entry"});
  expect_refused("Np-1\n.", {"'-1' is not the number of a memo entry"});
  expect_refused("Ng99999999999999999999\n.", {"is not the number of a memo entry"});
  const HeldPickle far(
      raw("Nr\xff\xff\xff\xff"
          "0j\xff\xff\xff\xff."));
  EXPECT_TRUE(far.root().is(pickle::PickleKind::kNone));
}

TEST(HostilePickle, HugeCounts) {
  const std::string eight(8, '\xff');
  for (const char* opcode : {"X", "B", "T"}) {
    expect_refused(std::string(opcode) + raw("\xff\xff\xff\x7f"
                                             "1"),
                   {"the file ends 1 bytes on, where 2147483647 bytes are announced"});
  }
  for (const char* opcode : {"\x8d", "\x8e", "\x96"}) {
    expect_refused(opcode + eight + "1", {"where 18446744073709551615 bytes are announced"});
  }
  expect_refused("\x80\x04\x95" + eight + "N.", {"byte 11: the file ends 2 bytes on"});
  expect_refused(raw("\x80\x04\x95\x03\0\0\0\0\0\0\0N.NN"), {"byte 12: the pickle ends within a frame"},
                 {.may_go_on = true});
  expect_refused(raw("\x8b\xff\xff\xff\xff"), {"an integer of 4294967295 bytes is too long"});
  expect_refused("L" + std::string(5000, '9') + "L\n.", {"is not an integer, or too long"});
  expect_refused("V" + std::string((1 << 20) + 1, 'x') + "\n.", {"byte 1: a line of more than 1048576 bytes"});
}

TEST(HostilePickle, Numbers) {
  expect_refused("I1x\n.", {"'1x' is not an integer"});
  expect_refused("I\n.", {"'' is not an integer"});
  expect_refused("L--1L\n.", {"'--1' is not an integer"});
  expect_refused("F1.5z\n.", {"'1.5z' is not a float"});
  expect_refused("F\n.", {"'' is not a float"});
  const HeldPickle zero(raw("(\x8a\x00\x8a\x01\x80\x8a\x02\xff\x00\x8b\x00\x00\x00\x00t."));
  EXPECT_EQ(zero.root().at(0).integer(), 0);
  EXPECT_EQ(zero.root().at(1).integer(), -128);
  EXPECT_EQ(zero.root().at(2).integer(), 255);
  EXPECT_EQ(zero.root().at(3).integer(), 0);
}

TEST(HostilePickle, Texts) {
  expect_refused(raw("X\x01\x00\x00\x00\xff."), {"a text is not UTF-8"});
  expect_refused(raw("\x8c\x03\xed\xa0\x80."), {"a text is not UTF-8"});
  for (const char* line : {"\\u12", "\\ud800", "\\U00110000", "\\uzzzz", "\\U+0000041"}) {
    expect_refused("V" + std::string(line) + "\n.", {"an escape that is none, or is not Unicode"});
  }
  for (const char* line : {"", "'", "'a\"", "abc", "'\\'", "'\\x1'", "'\\q'"}) {
    expect_refused("S" + std::string(line) + "\n.", {"a text is not quoted as Python quotes it"});
  }
  expect_refused("P\xff\n.", {"a persistent id is not UTF-8"});
}

TEST(HostilePickle, WhatIsNotSupported) {
  expect_refused("\x80\x06N.", {"byte 0: protocol 6 is not known"});
  expect_refused("N\x80\x02.", {"the protocol is named in the middle of a pickle"});
  for (const char* opcode : {"\x82\x01", "\x83\x01\x01", "\x84\x01\x01\x01\x01"}) {
    expect_refused(std::string(opcode) + ".", {"byte 0: it names a class by a number of copyreg's registry"});
  }
  expect_refused("\x97.", {"data outside of the pickle"});
  expect_refused("N\x98.", {"data outside of the pickle"});
}

TEST(HostilePickle, DepthIsLimited) {
  const auto nested = [](std::size_t depth) { return repeated("]", depth) + repeated("a", depth - 1) + "."; };
  const HeldPickle deepest(nested(1000));
  EXPECT_FALSE(deepest.pickle.has_cycles());
  expect_refused(nested(1001), {"byte 1000: values lie in each other more than 1000 deep"});
  expect_refused(nested(100'000), {"values lie in each other more than 1000 deep"});
  expect_refused("N" + repeated("\x85", 100'000) + ".", {"more than 1000 deep"});
  expect_refused("cm\nn\n" + repeated(")R", 100'000) + ".", {"more than 1000 deep"});
  expect_refused("N" + repeated("Q", 100'000) + ".", {"more than 1000 deep"});
}

/// Each list is written at the same depth, but contains the previous list by a reference to the memo.
TEST(HostilePickle, DepthThroughTheMemo) {
  std::string lists = raw("](]q\x00");
  for (int i = 1; i < 200; ++i) {
    lists += "]h" + std::string(1, static_cast<char>(i - 1)) + "aq" + std::string(1, static_cast<char>(i));
  }
  lists += "e.";
  const HeldPickle deep(lists, {.depth = 201});
  EXPECT_EQ(deep.root().size(), 200u);
  expect_refused(lists, {"byte 0: values lie in each other more than 200 deep"}, {.depth = 200});
}

TEST(HostilePickle, SharedValuesAreNotCopied) {
  // 64 lists, each with the previous one twice: if written out, they would have 2^64 elements.
  std::string laughs = raw("]q\x00");
  for (int i = 1; i <= 64; ++i) {
    const std::string before(1, static_cast<char>(i - 1));
    laughs += "](h" + before + "h" + before + "eq" + std::string(1, static_cast<char>(i));
  }
  const HeldPickle held(laughs + ".");
  pickle::PickleValue at = held.root();
  for (int i = 0; i < 64; ++i) {
    ASSERT_EQ(at.size(), 2u);
    at = at.at(1);
  }
  EXPECT_EQ(at.size(), 0u);
  EXPECT_TRUE(opaque_names(held.pickle).empty());
}

TEST(HostilePickle, MemoryIsLimited) {
  const pickle::PickleOptions small{.memory_bytes = 1 << 20};
  const std::string refusal = "its values take more than 1.00 MiB of memory";
  expect_refused(repeated("N", 1 << 20) + ".", {refusal}, small);
  expect_refused(repeated("(", 1 << 20) + ".", {refusal}, small);
  expect_refused("N" + repeated("2", 1 << 20) + ".", {refusal}, small);
  expect_refused(repeated(")", 1 << 20) + ".", {refusal}, small);
  expect_refused("]" + repeated("(KKKKKKKKKKKKKKKKe", 1 << 16) + ".", {refusal}, small);
  std::string memo = "N";
  for (std::uint64_t i = 1; i < 100'000; ++i) memo += "r" + length_prefix(i * 1000).substr(0, 4);
  expect_refused(memo + ".", {refusal}, small);
  const std::string text = "X" + length_prefix(4000).substr(0, 4) + std::string(4000, 'x');
  expect_refused("(" + repeated(text + "0", 400) + "N.", {refusal}, small);
}

/// Large amounts of everything, in processor time linear in the file size.
TEST(HostilePickle, TimeIsLinear) {
  const std::size_t count = 200'000;
  std::string entries = "}(";
  for (std::uint64_t i = 0; i < count; ++i) entries += "J" + length_prefix(i % 5000).substr(0, 4) + "N";
  test::expect_bounded(10, 64 << 20, [&] {
    (void)HeldPickle("]" + repeated("(NNe", count) + ".");
    (void)HeldPickle("](" + repeated("N", count) + "e.");
    (void)HeldPickle(entries + "u.");
    (void)HeldPickle("](" + repeated("Vabc\n", count) + "e.");
    (void)HeldPickle("(" + repeated("}", count) + "t.");
    (void)HeldPickle("(" + repeated("L" + std::string(1200, '9') + "L\n", 1000) + "t.");
  });
}

/// Numbers that share one bucket of a standard hash table: with so many entries, its size is one of the two factors.
std::vector<std::uint64_t> colliding_numbers() {
  constexpr std::uint64_t kTableSizes = std::uint64_t{172933} * 351061;
  std::vector<std::uint64_t> out;
  for (std::uint64_t i = 1; i <= 200'000; ++i) out.push_back(i * kTableSizes);
  return out;
}

TEST(HostilePickle, NumbersThatCollideCostNoMoreThanOthers) {
  std::string memo = "N";
  std::string integers = "}(";
  for (const std::uint64_t number : colliding_numbers()) {
    memo += "p" + std::to_string(number) + "\n";
    integers += raw("\x8a\x08") + length_prefix(number) + "N";
  }
  test::expect_bounded(10, 128 << 20, [&] {
    EXPECT_TRUE(HeldPickle(memo + ".").root().is(pickle::PickleKind::kNone));
    EXPECT_EQ(HeldPickle(integers + "u.").root().entries(), 200'000U);
  });
}

/// Merging the keys of a small dict must not cost as much as the largest dict did.
TEST(HostilePickle, SmallDictsBesideALargeOne) {
  std::string large = "(}(";
  for (std::uint64_t i = 0; i < 200'000; ++i) large += "J" + length_prefix(i).substr(0, 4) + "N";
  test::expect_bounded(10, 128 << 20, [&] { (void)HeldPickle(large + "u" + repeated("}(K\1NK\2Nu", 300'000) + "t."); });
}

/// Strings of 4 kB that differ only at their ends, as keys in 480,000 places.
TEST(HostilePickle, KeysAreComparedOnce) {
  std::string keys = "(";
  for (int i = 0; i < 8; ++i) {
    const std::string text = std::string(4000, 'x') + static_cast<char>('a' + i);
    keys += "X" + length_prefix(text.size()).substr(0, 4) + text + "q" + static_cast<char>(i);
  }
  std::string dict = "}(";
  for (int i = 0; i < 8; ++i) dict += std::string("h") + static_cast<char>(i) + std::string("h") + '\0';
  const HeldPickle held(keys + repeated(dict + "u", 20) + "t.");
  EXPECT_EQ(held.root().at(27).entries(), 8U);
  test::expect_bounded(5, 128 << 20, [&] { (void)HeldPickle(keys + repeated(dict + "u", 60'000) + "t."); });
}

TEST(HostilePickle, MessagesStayOnOneLine) {
  expect_refused("I\x01\x1b[31m\n.", {"'\\x01\\x1b[31m' is not an integer"});
  expect_error(ErrorKind::kFormat, [] { (void)pickle::read_pickle(pickle::source_of({}), "a\nb"); },
               {"a\\x0ab: byte 0: "});
}

}  // namespace
}  // namespace cairn::format::testing
