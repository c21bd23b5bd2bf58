// Every option of every subcommand, as --help lists them: values that make no sense are refused by the parser, and so
// are options that have no effect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "command.hpp"

namespace cairn::app {
namespace {

using Words = std::vector<std::string>;
using testing::AllOf;
using testing::HasSubstr;

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string text_of(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += " '" + word + "'";
  return text;
}

/// Parses the words as a new start of the program would.
std::optional<CommandLine::Refusal> parse(const Words& words) {
  CommandLine line("cairn", "");
  Subcommand program = line.program();
  program.require_subcommand();
  add_commands(program, {});
  std::vector<const char*> arguments = {"cairn"};
  for (const std::string& word : words) arguments.push_back(word.c_str());
  return line.parse(static_cast<int>(arguments.size()), arguments.data());
}

std::string help_of(const Words& command) {
  const auto help = parse(command + Words{"--help"});
  EXPECT_TRUE(help && !help->is_error) << text_of(command);
  return help ? help->text : "";
}

/// The error of the words, or "" if they are right.
std::string error_of(const Words& words) {
  const auto refusal = parse(words);
  EXPECT_TRUE(!refusal || refusal->is_error) << text_of(words);
  return refusal ? refusal->text : "";
}

struct Option {
  std::string name;  ///< "--dir", or "path" for a word without dashes
  std::string kind;  ///< of the value, as in the help; empty for a flag
  bool is_required = false;
};

/// The options in the help of a command, except --help.
std::vector<Option> options_of(const Words& command) {
  static const std::regex line(
      R"(^  (--[a-z0-9-]+|[a-z]+)(?: ([A-Z][A-Z=,.]*(?: LAYOUT\.\.\.)?)(?:=[0-9]+)?(?::\{[^}]*\})?)?( REQUIRED)?)"
      R"((?: \.\.\.)?(?: {2,}.*)?$)");
  std::vector<Option> options;
  bool is_list = false;
  std::istringstream lines(help_of(command));
  for (std::string text; std::getline(lines, text);) {
    if (text.ends_with(':')) is_list = text == "Options:" || text == "Positionals:";
    std::smatch found;
    if (!is_list || !std::regex_match(text, found, line)) continue;
    options.push_back({found[1], found[2], found[3].matched});
  }
  return options;
}

const std::vector<Words>& commands() {
  static const std::vector<Words> all = {
      {"inspect"}, {"verify"}, {"convert"}, {"diff"}, {"ls"},    {"demo", "save"}, {"demo", "load"}, {"bench"},
      {"plan"},    {"doctor"}, {"prune"},   {"pin"},  {"unpin"}, {"advise"},       {"report"},       {"repair"}};
  return all;
}

/// Values of one kind.
struct Kind {
  std::string good;
  Words bad;
};

const Kind& kind_called(const std::string& name) {
  const Words no_count = {"-1", "0", "1e30", "1.5", "abc", "0x10", "18446744073709551616"};
  const Words no_step = {"-1", "1e30", "1.5", "abc", "0x10", "18446744073709551616"};
  const Words no_size = {"-1", "0", "0B", "0.5", "1e30", "abc", "5XB", "nan"};
  static const std::map<std::string, Kind> kinds = {
      {"N", {"3", no_count}},
      {"N,N...", {"1,3", no_count + Words{"1,0", "1,-1", "1,abc"}}},
      {"SIZE", {"64MiB", no_size}},
      {"SIZE,SIZE...", {"1MiB,2MiB", no_size + Words{"1MiB,0", "1MiB,abc"}}},
      {"RATE", {"100GiB/s", no_size + Words{"100", "100/s", "0GiB/s"}}},
      {"NUMBER", {"0.5", {"-1", "abc", "nan", "inf", "1e400"}}},
      {"STEP", {"3", no_step}},
      {"STEP,STEP...", {"1,3", no_step + Words{"1,-1", "1,abc"}}},
      {"RULE", {"loss:min:2", {"loss", "loss:best", "loss:min:0", ":min", "loss:min:-1", "loss:min:abc"}}},
      {"SECONDS", {"0.5", {"-1", "abc", "nan", "inf", "1e400"}}},
      {"SHARE", {"0.5", {"-1", "0", "abc", "nan", "inf", "1e400"}}},
      {"TIME", {"1.5m", {"-1", "abc", "1e30", "nan", "inf", "5x", "1h30", "m", "-1s", "1e400"}}},
      {"MODE", {"660", {"-1", "0", "abc", "1e30", "4755", "68", "060"}}},
      {"LIST", {"0-1", {"-1", "abc", "1e30", "1-0"}}},
      {"ENGINE", {"direct", {"-1", "0", "abc", "1e30"}}},
      {"HOW", {"all", {"-1", "0", "abc", "1e30"}}},
      {"FORM", {"hf", {"-1", "0", "abc", "1e30"}}},
      {"SHARING", {"reflink", {"-1", "0", "abc", "1e30"}}},
      {"CODEC", {"q8", {"-1", "0", "abc", "1e30"}}},
      {"DTYPE", {"BF16", {"-1", "0", "abc", "1e30", "F64"}}},
      // These depend on files, on the number of ranks or on the model: commands look at them.
      {"TEXT", {"some.h6", {}}},
      {"DIR", {"some", {}}},
      {"PATH", {"some", {}}},
      {"FILE", {"some.csv", {}}},
      {"NAME", {"8b", {}}},
      {"NAMES", {"model", {}}},
      {"PATTERN", {"model*", {}}},
      {"LAYOUT", {"fsdp=2", {}}},
      {"LAYOUT LAYOUT...", {"fsdp=2", {}}},
      {"KEY=VALUE", {"cb_nodes=1", {}}},
      {"GROUP", {"users", {}}},
  };
  const auto found = kinds.find(name);
  if (found != kinds.end()) return found->second;
  ADD_FAILURE() << "a new kind of value: " << name << "; add which values of it make no sense";
  static const Kind none;
  return none;
}

/// Numbers for which 0 makes sense.
const std::set<std::string> kFromZero = {"--step", "--warm-up", "--failures"};

Words words_of(const Option& option, const std::string& value) {
  if (option.kind.empty()) return {option.name};
  return option.name.starts_with("--") ? Words{option.name, value} : Words{value};
}

/// The command with what it requires, and with this value of one more option.
Words words_with(const Words& command, const std::vector<Option>& options, const std::string& name = {},
                 const std::string& value = {}) {
  Words words = command;
  for (const Option& option : options) {
    const bool is_chosen = option.name == name;
    if (option.is_required || is_chosen)
      words = words + words_of(option, is_chosen ? value : kind_called(option.kind).good);
  }
  return words;
}

TEST(Options, ValuesThatMakeNoSenseAreRefused) {
  std::size_t tried = 0;
  for (const Words& command : commands()) {
    const std::vector<Option> options = options_of(command);
    ASSERT_FALSE(options.empty()) << text_of(command);
    EXPECT_EQ(error_of(words_with(command, options)), "");
    for (const Option& option : options) {
      if (option.kind.empty()) continue;
      const Kind& kind = kind_called(option.kind);
      for (const std::string& value : kind.bad + Words{""}) {
        if (value == "0" && kFromZero.contains(option.name)) continue;
        const Words words = words_with(command, options, option.name, value);
        EXPECT_THAT(error_of(words), AllOf(HasSubstr(option.name), testing::Not(HasSubstr("no effect"))))
            << text_of(words);
        ++tried;
      }
    }
  }
  EXPECT_GT(tried, 300U);
}

TEST(Options, TheHelpListsAllOptions) {
  std::set<std::string> numbers;
  for (const Words& command : commands()) {
    for (const Option& option : options_of(command)) {
      if (option.kind.starts_with("N") || option.kind.starts_with("SIZE")) numbers.insert(option.name);
    }
  }
  EXPECT_THAT(numbers, testing::IsSupersetOf({"--step", "--repeats", "--warm-up", "--layers", "--save-ranks",
                                              "--load-ranks", "--cards", "--aggregators", "--in-flight",
                                              "--request-size", "--memory", "--align", "--block-size", "--block",
                                              "--max-file-size", "--size", "--sweep", "--stripe", "--ranks-sampled"}));
}

/// A way to start a command, and the options that have no effect then.
struct Mode {
  Words words;
  std::set<std::string> idle;
};

TEST(Options, WithoutEffectTheyAreRefused) {
  const std::set<std::string> async_only = {"--async-cores", "--program-cores"};
  const auto with = [](std::set<std::string> some, const std::set<std::string>& more) {
    some.insert(more.begin(), more.end());
    return some;
  };
  const std::vector<Mode> modes = {
      {{"inspect", "some"}, {}},
      {{"inspect", "some.safetensors"}, {"--trust-index"}},
      {{"inspect", "some", "--json"}, {"--sections", "--files", "--tensors", "--metadata", "--all"}},
      {{"verify", "some"}, {}},
      {{"verify", "some.h5"}, {"--trust-index"}},
      {{"verify", "some", "--for", "10m"}, {"--all"}},
      {{"convert", "some", "other"}, {"--report"}},
      {{"convert", "some.h5", "other"}, {"--report", "--trust-index"}},
      {{"convert", "some", "other", "--quant", "off"}, {"--report"}},
      {{"convert", "some", "other", "--quant", "q8"}, {}},
      {{"convert", "some", "other", "--quant", "q8", "--engine", "posix"}, {"--hint"}},
      {{"convert", "some", "other.h5"},
       {"--to", "--max-file-size", "--align", "--report", "--remove-master-weight", "--skip-save-model-weight",
        "--keep-names"}},
      {{"convert", "some", "other", "--to", "shards", "--layout", "fsdp=2"}, {"--report", "--max-file-size"}},
      {{"convert", "some", "other", "--to", "paddlenlp", "--cards", "1"}, {"--report", "--max-file-size"}},
      {{"diff", "some", "other"}, {}},
      {{"diff", "some", "other.safetensors"}, {}},
      {{"diff", "some.h5", "other.safetensors"}, {"--trust-index"}},
      {{"diff", "some", "other", "--json"}, {"--all"}},
      {{"ls", "some"}, {}},
      {{"prune", "some", "--keep-last", "3"}, {}},
      {{"prune", "some", "--dry-run"}, {"--wait", "--quiet"}},
      {{"prune", "some", "--json"}, {"--quiet"}},
      {{"pin", "some", "3"}, {}},
      {{"repair", "some"}, {}},
      {{"repair", "some", "--dry-run"}, {"--quiet", "--wait"}},
      {{"demo", "save", "--dir", "some"}, {"--base", "--frozen", "--reuse"}},
      {{"demo", "save", "--dir", "some", "--no-save-optim"}, {"--frozen", "--reuse"}},
      {{"demo", "save", "--dir", "some", "--frozen", "model", "--reuse", "reflink"}, {"--base"}},
      {{"demo", "save", "--dir", "some", "--section", "model", "--engine", "posix"}, {"--frozen", "--hint", "--reuse"}},
      {{"demo", "load", "--dir", "some"}, {}},
      {{"demo", "load", "--dir", "some", "--engine", "posix"}, {"--hint"}},
      {{"bench", "--dir", "some"}, async_only},
      {{"bench", "--dir", "some", "--no-load"}, with(async_only, {"--drop-caches"})},
      {{"bench", "--dir", "some", "--engine", "posix"}, with(async_only, {"--hint"})},
      {{"bench", "--dir", "some", "--async"},
       {"--sweep", "--save-ranks", "--load-ranks", "--load-layouts", "--no-load", "--reuse-plan", "--scattered-memory",
        "--drop-caches", "--request-size", "--in-flight", "--csv", "--html"}},
      {{"plan", "--model", "gpt2", "--layout", "fsdp=2"}, {}},
      {{"plan", "--model", "gpt2", "--layout", "fsdp=2", "--load", "fsdp=3"}, {"--stripe"}},
      {{"report", "some"}, {"--rate", "--hours"}},
      {{"report", "some", "--mtbf", "3h"}, {"--nodes", "--rate", "--failures", "--hours"}},
      {{"advise", "some"}, {"--rate", "--hours"}},
      {{"advise", "--stall", "1"}, {"--rate", "--hours"}},
      {{"advise", "--stall", "1", "--mtbf", "3h"}, {"--nodes", "--rate", "--failures", "--hours"}},
      {{"advise", "--stall", "1", "--nodes", "3"}, {"--failures", "--hours"}},
      {{"advise", "--stall", "1", "--failures", "3"}, {"--rate"}},
      {{"doctor"}, {}},
      {{"doctor", "--json"}, {"--quiet"}},
  };
  for (const Mode& mode : modes) {
    const Words command(mode.words.begin(), mode.words.begin() + (mode.words.front() == "demo" ? 2 : 1));
    EXPECT_EQ(error_of(mode.words), "");
    std::set<std::string> idle;
    for (const Option& option : options_of(command)) {
      const bool is_there = std::ranges::find(mode.words, option.name) != mode.words.end();
      if (is_there || !option.name.starts_with("--")) continue;
      const std::string value = option.kind.empty() ? "" : kind_called(option.kind).good;
      const std::string error = error_of(mode.words + words_of(option, value));
      if (error.empty()) continue;
      EXPECT_THAT(error, AllOf(HasSubstr(" has no effect "), HasSubstr(": leave it out")));
      // With --async, the error is about --no-load of this mode.
      const bool is_of_mode = std::ranges::any_of(
          mode.words, [&](const std::string& word) { return error.starts_with(word + " has no effect "); });
      if (is_of_mode) continue;
      EXPECT_THAT(error, HasSubstr(option.name + " has no effect "));
      idle.insert(option.name);
    }
    EXPECT_EQ(idle, mode.idle) << text_of(mode.words);
  }
}

TEST(Options, HelpIsThatOfTheCommand) {
  const auto same = [](const Words& asked, const Words& command) {
    const auto told = parse(asked);
    ASSERT_TRUE(told && !told->is_error);
    EXPECT_EQ(told->text, help_of(command));
  };
  same({"help"}, {});
  same({"help", "verify"}, {"verify"});
  same({"help", "demo", "save"}, {"demo", "save"});
  same({"help", "help"}, {"help"});
}

TEST(Options, UnknownOnesAreCalledSo) {
  const std::pair<Words, std::string> cases[] = {
      {{"bench", "--dir", "some", "--repeat", "3"}, "unknown option '--repeat': did you mean '--repeats'?"},
      {{"bench", "--repeat", "3"}, "unknown option '--repeat': did you mean '--repeats'?"},
      {{"bench", "--warmup=3"}, "unknown option '--warmup': did you mean '--warm-up'?"},
      {{"demo", "save", "--dir", "some", "--setp", "3"}, "unknown option '--setp': did you mean '--step'?"},
      {{"inspect", "--frobnicate"}, "unknown option '--frobnicate' (see cairn inspect --help)"},
      {{"ls", "some", "-x"}, "unknown option '-x'"},
      {{"ls", "some", "other"}, "unexpected argument 'other' (see cairn ls --help)"},
      {{"verfy", "some"}, "unknown subcommand 'verfy': did you mean 'verify'?"},
      {{"demo", "laod"}, "unknown subcommand 'laod': did you mean 'load'?"},
      {{"frobnicate"}, "unknown subcommand 'frobnicate' (see cairn --help)"},
      {{"--frobnicate"}, "unknown option '--frobnicate' (see cairn --help)"},
      {{"help", "verfy"}, "unknown subcommand 'verfy': did you mean 'verify'? (see cairn --help)"},
      {{"help", "demo", "dance"}, "unknown subcommand 'dance' (see cairn --help)"},
      {{"help", "verify", "all"}, "unexpected argument 'all' (see cairn --help)"},
      {{"help", "--al"}, "unknown option '--al'"},
  };
  for (const auto& [words, says] : cases) EXPECT_THAT(error_of(words), HasSubstr(says)) << text_of(words);
  EXPECT_THAT(error_of({}), HasSubstr("subcommand"));
  EXPECT_THAT(error_of({"bench"}), HasSubstr("--dir is required"));
}

}  // namespace
}  // namespace cairn::app
