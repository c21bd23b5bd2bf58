// Messages of the library in the words of the command.
#include "cli/option_words.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cairn::cli {
namespace {

std::string told(std::vector<std::string> options, const std::string& message) {
  set_command_options(std::move(options));
  return in_words_of_command(message);
}

TEST(OptionWords, AreThoseOfTheCommand) {
  EXPECT_EQ(told({"--group"}, "there is no group 'x' (Options::files.group)"), "there is no group 'x' (--group)");
  EXPECT_EQ(told({"--block-size"}, "make Options::files.block_bytes larger"), "make --block-size larger");
  EXPECT_EQ(told({"--block"}, "make Options::files.block_bytes larger"), "make --block larger");
  EXPECT_EQ(told({"--quant"}, "Options::quantisation.codecs: q8 codes nothing"), "--quant: q8 codes nothing");
  EXPECT_EQ(told({"--follow-links"}, "give --follow-links (Options::follow_links) when it may be read"),
            "give --follow-links when it may be read");
  EXPECT_EQ(told({"--trust-index"}, "bad; --trust-index (Options::trust_index) reads just what the index lists"),
            "bad; --trust-index reads just what the index lists");
  EXPECT_EQ(told({"--mode"}, "mode 07 keeps its owner from reading (Options::files.mode)."),
            "mode 07 keeps its owner from reading (--mode).");
}

TEST(OptionWords, ThatTheCommandLacksAreLeftOut) {
  EXPECT_EQ(told({}, "raise the limit (Options::waiting, CAIRN_WATCHDOG_S)"), "raise the limit (CAIRN_WATCHDOG_S)");
  EXPECT_EQ(told({}, "a program can have it replaced (Options::overwrite)"), "a program can have it replaced");
  EXPECT_EQ(told({}, "is F32 [2]; LoadOptions::cast_floats would convert it"), "is F32 [2]");
  EXPECT_EQ(told({}, "is F32 [2]; LoadOptions::cast_floats would convert it; and more"), "is F32 [2]; and more");
  EXPECT_EQ(told({}, "carry a copy of it, or its text (Extras::carry_texts)"), "carry a copy of it, or its text");
  EXPECT_EQ(told({}, "no such name; Checkpointer::tensors() and 'cairn inspect' list what it has"),
            "no such name; 'cairn inspect' lists what it has");
}

TEST(OptionWords, OfAdviceThatTheCommandCannotFollow) {
  const std::string exists =
      "exists already; save another step, or allow it to be replaced (Options::overwrite, or --overwrite on the "
      "command line), or go on from it by load_latest()";
  EXPECT_EQ(told({"--overwrite"}, exists),
            "exists already; save another step, or allow it to be replaced (--overwrite)");
  const std::string held =
      "has another saver; end it first, save to another root, or let this one wait for it "
      "(Options::lease.wait_seconds)";
  EXPECT_EQ(told({"--wait"}, held),
            "has another saver; end it first, save to another root, or let this one wait for it (--wait)");
  EXPECT_EQ(told({}, held), "has another saver; end it first, or save to another root");
  EXPECT_EQ(told({},
                 "of run 'a', not of 'b' (Options::run_id); save into another root, or set Options::allow_other_run "
                 "where this run takes it over"),
            "of run 'a', not of 'b'; save into another root");
}

TEST(OptionWords, LeaveOtherTextsAsTheyAre) {
  for (const char* text :
       {"", "std::bad_alloc", "tensor 'MyOptions::x' (Section::y); z", "a (b, c); d", "(", "Options:", "x; y (z)"}) {
    EXPECT_EQ(told({"--overwrite"}, text), text);
  }
}

}  // namespace
}  // namespace cairn::cli
