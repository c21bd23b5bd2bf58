#include "cli/json_output.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>

#include "base/internal_error.hpp"
#include "base/text.hpp"
#include "cli/option_words.hpp"

namespace cairn::cli {

base::Json json_document(std::string_view command) {
  return {{"cairn_json", kJsonVersion}, {"command", std::string(command)}};
}

namespace {

constexpr base::JsonFormat kJsonFormat = {.indent = 2, .is_lenient = true};

constexpr std::size_t kPrintedAtOnceBytes = 64 << 10;

std::string text_of(const base::Json& value) { return base::visible_json(value.dump(kJsonFormat)); }

}  // namespace

void print_json(Output& output, const base::Json& document) { output.line(text_of(document)); }

void JsonText::begin_item() {
  if (std::exchange(has_key_, false)) return;
  if (!std::exchange(is_first_, false)) text_ += ',';
  new_line();
}

void JsonText::new_line() {
  text_ += '\n';
  text_.append(depth_ * static_cast<std::size_t>(kJsonFormat.indent), ' ');
}

void JsonText::begin(char bracket) {
  begin_item();
  text_ += bracket;
  ++depth_;
  is_first_ = true;
}

void JsonText::end(char bracket) {
  --depth_;
  if (!std::exchange(is_first_, false)) new_line();
  text_ += bracket;
  if (text_.size() >= kPrintedAtOnceBytes) finish();
}

void JsonText::key(std::string_view name) {
  begin_item();
  put(name);
  text_ += ": ";
  has_key_ = true;
}

void JsonText::value(std::string_view text) {
  begin_item();
  put(text);
}

void JsonText::value(std::uint64_t number) {
  begin_item();
  std::array<char, 20> digits{};
  text_.append(digits.data(), std::to_chars(digits.begin(), digits.end(), number).ptr);
}

void JsonText::value(std::span<const std::uint64_t> numbers) {
  begin('[');
  for (const std::uint64_t number : numbers) value(number);
  end(']');
}

void JsonText::null() {
  begin_item();
  text_ += "null";
}

void JsonText::put(std::string_view text) {
  const bool is_plain =
      std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; });
  if (is_plain) {
    text_.append(1, '"').append(text).append(1, '"');
  } else {
    text_ += base::visible_json(base::json_quoted(text, kJsonFormat));
  }
}

void JsonText::finish() {
  output_.text(text_);
  text_.clear();
}

void print_json(Output& output, const base::Json& before, const JsonList& list, const base::Json& after) {
  if (before.empty() || after.empty()) throw base::internal_error("a list without keys on both sides");
  std::string text = text_of(before);
  text.resize(text.size() - std::string_view("\n}").size());
  output.text(text + ",\n  " + base::json_quoted(list.key, kJsonFormat) + ": ");
  JsonText values(output, 1);
  values.begin('[');
  list.put(values);
  values.end(']');
  values.finish();
  output.text(",");
  output.line(text_of(after).substr(std::string_view("{").size()));
}

base::Json messages_json(std::span<const std::string> messages) {
  return base::Json::array_of(messages,
                              [](const std::string& message) { return base::Json(in_words_of_command(message)); });
}

base::Json json_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "infinity" : "-infinity";
  return value;
}

}  // namespace cairn::cli
