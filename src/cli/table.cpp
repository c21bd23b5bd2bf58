// Lays out tables of plain text.
#include "cli/table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cairn/error.hpp"

namespace cairn::cli {
namespace {

// Characters as a terminal counts them, near enough: bytes that do not continue a UTF-8 sequence.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string padded(const std::string& text, std::size_t width, Align align) {
  const std::string blanks(width - std::min(width, width_of(text)), ' ');
  return align == Align::kLeft ? text + blanks : blanks + text;
}

}  // namespace

void Table::add(std::vector<std::string> cells) {
  if (cells.size() != columns_.size()) {
    throw Error(ErrorKind::kInternal,
                fmt::format("table row has {} cells for {} columns", cells.size(), columns_.size()));
  }
  rows_.push_back(std::move(cells));
}

std::string Table::text(std::size_t limit) const {
  const std::size_t shown = std::min(limit, rows_.size());
  std::vector<std::size_t> widths;
  std::vector<std::string> titles;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t width = width_of(columns_[c].title);
    for (std::size_t r = 0; r < shown; ++r) width = std::max(width, width_of(rows_[r][c]));
    widths.push_back(width);
    titles.push_back(columns_[c].title);
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string out;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      if (c != 0) out += "  ";
      out += padded(cells[c], widths[c], columns_[c].align);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out;
  };
  std::string out = line(titles);
  for (std::size_t r = 0; r < shown; ++r) out += '\n' + line(rows_[r]);
  if (shown < rows_.size()) out += fmt::format("\n... {} more (--all)", group_digits(rows_.size() - shown));
  return out;
}

std::string group_digits(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string shape_text(const std::vector<std::uint64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace cairn::cli
