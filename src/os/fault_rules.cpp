#include "os/fault_rules.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <limits>
#include <utility>

#include "base/text.hpp"
#include "cairn/error.hpp"

namespace cairn::os::internal {
namespace {

constexpr std::array<std::string_view, 12> kFileOperations = {
    "open", "write", "read", "fsync", "close", "rename", "exchange", "mkdir", "unlink", "truncate", "flock", "link"};

constexpr std::array<std::pair<std::string_view, int>, 9> kErrors = {{{"EIO", EIO},
                                                                      {"ENOSPC", ENOSPC},
                                                                      {"EDQUOT", EDQUOT},
                                                                      {"ENOENT", ENOENT},
                                                                      {"EACCES", EACCES},
                                                                      {"EINTR", EINTR},
                                                                      {"EINVAL", EINVAL},
                                                                      {"ENOLCK", ENOLCK},
                                                                      {"ENOTSUP", ENOTSUP}}};

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

class RuleParser {
 public:
  explicit RuleParser(std::string_view text) : text_(text) {}

  FaultRule parse() {
    const auto fields = split(text_, ':');
    set_operation(fields.front());
    for (std::size_t at = 1; at < fields.size(); ++at) set_field(fields[at]);
    if (rule_.action == FaultAction::kShort && rule_.operation != "write" && rule_.operation != "read") {
      fail("has short for an operation that is not write or read");
    }
    if (rule_.action == FaultAction::kLie && rule_.operation != "write") {
      fail("has lie for an operation that is not write");
    }
    const bool is_retried = rule_.action == FaultAction::kFail && rule_.error == EINTR;
    if (!rule_.times && (is_retried || rule_.action == FaultAction::kShort)) rule_.times = 1;
    return rule_;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ErrorKind::kUsage,
                fmt::format("fault rule '{}' {}; src/os/fault.hpp has the language", base::printable(text_), why));
  }

  void set_operation(std::string_view name) {
    const bool is_file_operation =
        std::find(kFileOperations.begin(), kFileOperations.end(), name) != kFileOperations.end();
    const bool is_step = name.find('.') != std::string_view::npos;
    if (!is_file_operation && !is_step) fail("has an unknown operation");
    rule_.operation = name;
  }

  void set_field(std::string_view field) {
    const std::size_t equals = field.find('=');
    const std::string_view key = field.substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? "" : field.substr(equals + 1);
    if (key == "rank") {
      rule_.rank = static_cast<int>(number(key, value, std::numeric_limits<int>::max()));
    } else if (key == "after") {
      rule_.after = number(key, value);
    } else if (key == "times") {
      rule_.times = number(key, value);
    } else if (key == "path") {
      if (value.empty()) fail("has an empty path");
      rule_.path_part = value;
    } else if (key == "errno") {
      set_error(value);
    } else if (key == "short") {
      set_action(FaultAction::kShort);
      rule_.short_bytes = number(key, value);
      if (rule_.short_bytes == 0) fail("has short=0, which is the end of a file and no short transfer");
    } else if ((key == "kill" || key == "stop") && (equals == std::string_view::npos || value == "1")) {
      set_action(key == "kill" ? FaultAction::kKill : FaultAction::kStop);
    } else if (key == "lie" && (equals == std::string_view::npos || value == "1")) {
      set_action(FaultAction::kLie);
    } else if (key == "pause") {
      if (value.empty()) fail("has an empty pause");
      set_action(FaultAction::kPause);
      rule_.pause_path = value;
    } else {
      fail(fmt::format("has an unknown key '{}'", base::printable(field)));
    }
  }

  void set_action(FaultAction action) {
    if (has_action_) fail("has more than one of errno, short, lie, kill, stop and pause");
    has_action_ = true;
    rule_.action = action;
  }

  void set_error(std::string_view name) {
    set_action(FaultAction::kFail);
    const auto* const found =
        std::find_if(kErrors.begin(), kErrors.end(), [&](const auto& known) { return known.first == name; });
    if (found == kErrors.end())
      fail("has an unknown errno; EIO, ENOSPC, EDQUOT, ENOENT, EACCES, EINTR, EINVAL, ENOLCK and ENOTSUP are known");
    rule_.error = found->second;
  }

  [[nodiscard]] std::uint64_t number(std::string_view key, std::string_view text,
                                     std::uint64_t limit = std::numeric_limits<std::uint64_t>::max()) const {
    std::uint64_t value = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (status == std::errc() && end == text.data() + text.size() && value <= limit) return value;
    fail(fmt::format("has no number in '{}'", key));
  }

  std::string_view text_;
  FaultRule rule_;
  bool has_action_ = false;
};

}  // namespace

bool FaultRule::matches(std::string_view name, int at_rank, std::string_view path) const {
  if (name != operation || (rank && *rank != at_rank)) return false;
  return path_part.empty() || path.find(path_part) != std::string_view::npos;
}

bool FaultRule::is_due() {
  if (seen++ < after) return false;
  return !times || fired < *times;
}

std::vector<FaultRule> parse_fault_rules(std::string_view text) {
  std::vector<FaultRule> rules;
  for (const std::string_view rule : split(text, ';')) {
    if (!rule.empty()) rules.push_back(RuleParser(rule).parse());
  }
  return rules;
}

}  // namespace cairn::os::internal
