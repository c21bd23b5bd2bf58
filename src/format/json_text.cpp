// Strict parsing on top of the JSON library: its callback sees every bracket and key while the tree grows, so that a
// second key or a deep nest is refused at once.
#include "format/json_text.hpp"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "base/units.hpp"
#include "cairn/error.hpp"
#include "format/message.hpp"
#include "format/utf8.hpp"

namespace cairn::format {
namespace {

using nlohmann::json;

void check_text(std::string_view text, std::string_view path) {
  const std::size_t bad = find_invalid_utf8(text);
  if (bad != std::string_view::npos) fail_format(path, fmt::format("byte {} is not UTF-8", bad));
  if (text.starts_with("\xEF\xBB\xBF")) fail_format(path, "begins with a byte order mark; JSON must not");
  const std::size_t nul = text.find('\0');
  if (nul != std::string_view::npos) fail_format(path, fmt::format("not JSON: NUL at byte {}", nul));
}

/// Called by the parser for every bracket and key; keeps the keys of each open object.
class StructureCheck {
 public:
  explicit StructureCheck(std::string_view path) : path_(path) {}

  void operator()(json::parse_event_t event, const json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
      case json::parse_event_t::array_start:
        open_.emplace_back();
        if (open_.size() > kMaxJsonDepth) {
          fail_format(path_, fmt::format("JSON is nested more than {} levels deep", kMaxJsonDepth));
        }
        break;
      case json::parse_event_t::object_end:
      case json::parse_event_t::array_end: open_.pop_back(); break;
      case json::parse_event_t::key: {
        const auto& key = parsed.get_ref<const std::string&>();
        if (!open_.back().insert(key).second) {
          fail_format(path_, fmt::format("the key '{}' appears twice in one object", base::printable(key)));
        }
        break;
      }
      case json::parse_event_t::value: break;
    }
  }

 private:
  std::string_view path_;
  std::vector<std::set<std::string>> open_;
};

}  // namespace

json parse_strict_json(std::string_view text, std::string_view path) {
  check_text(text, path);
  StructureCheck check(path);
  const json::parser_callback_t callback = [&](int, json::parse_event_t event, json& parsed) {
    check(event, parsed);
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), callback);
  } catch (const json::parse_error& error) {
    fail_format(path, fmt::format("not valid JSON at byte {}; the file is damaged or cut off", error.byte));
  } catch (const json::out_of_range&) {
    fail_format(path, "not valid JSON: a number is too large");
  }
}

std::string dump_json(const json& value) {
  try {
    return value.dump(2, ' ', true) + "\n";
  } catch (const json::type_error& error) {
    throw Error(ErrorKind::kUsage, fmt::format("text that is to be stored as JSON is not UTF-8: {}", error.what()));
  }
}

}  // namespace cairn::format
