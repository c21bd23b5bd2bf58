// Lays out tables of plain text.
#include "cli/table.hpp"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "cairn/error.hpp"

namespace cairn::cli {
namespace {

constexpr std::string_view kGap = "  ";
constexpr std::size_t kLeastText = 16;
constexpr std::string_view kCut = "...";

// Whether a byte begins a character of UTF-8.
bool begins(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

// Characters as a terminal counts them, near enough.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins));
}

/// Without the middle of what is too long: names differ at their ends.
std::string cut(const std::string& text, std::size_t width) {
  const std::size_t has = width_of(text);
  if (has <= width || width <= kCut.size()) return text;
  const std::size_t keep = width - kCut.size();
  std::string head;
  std::string tail;
  std::size_t at = 0;
  for (const char c : text) {
    at += begins(c) ? 1 : 0;  // counts the character that c is of
    if (at <= keep / 2) head += c;
    if (at > has - (keep - keep / 2)) tail += c;
  }
  return head + std::string(kCut) + tail;
}

std::string padded(const std::string& text, std::size_t width, Align align) {
  const std::string spaces(width - std::min(width, width_of(text)), ' ');
  return align == Align::kLeft ? text + spaces : spaces + text;
}

}  // namespace

void Table::add(std::vector<std::string> cells) {
  if (cells.size() != columns_.size()) {
    throw Error(ErrorKind::kInternal,
                fmt::format("table row has {} cells for {} columns", cells.size(), columns_.size()));
  }
  rows_.push_back(std::move(cells));
}

std::string Table::part(const std::vector<std::size_t>& columns, const std::vector<std::size_t>& widths,
                        std::size_t shown) const {
  const auto line = [&](const auto& cell_of) {
    std::string out;
    for (const std::size_t c : columns) {
      if (c != columns.front()) out += kGap;
      out += padded(cut(cell_of(c), widths[c]), widths[c], columns_[c].align);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out;
  };
  std::string out = line([&](std::size_t c) { return columns_[c].title; });
  for (std::size_t r = 0; r < shown; ++r) out += '\n' + line([&](std::size_t c) { return rows_[r][c]; });
  return out;
}

/// Makes texts narrower, the widest first, until a line fits; where that is not enough, each part of the line shall.
void Table::fit(std::vector<std::size_t>& widths, std::size_t width) const {
  const auto sum = [](const auto& all) {
    return std::accumulate(all.begin(), all.end(), kGap.size() * (all.size() - 1));
  };
  std::vector<std::size_t> narrow = widths;
  while (sum(narrow) > width) {
    std::size_t* widest = nullptr;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const bool is_text = columns_[c].align == Align::kLeft;
      const std::size_t least = std::max(kLeastText, width_of(columns_[c].title));
      if (is_text && narrow[c] > least && (widest == nullptr || narrow[c] > *widest)) widest = &narrow[c];
    }
    if (widest == nullptr) break;
    --*widest;
  }
  if (sum(narrow) <= width) {
    widths = std::move(narrow);
    return;
  }
  const std::size_t first = std::min(widths[0], std::max(width / 2, kLeastText));
  const std::size_t room = width > first + kGap.size() + kLeastText ? width - first - kGap.size() : kLeastText;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    if (columns_[c].align == Align::kLeft) widths[c] = std::min(widths[c], c == 0 ? first : room);
  }
}

std::string Table::text(std::size_t limit, std::size_t width) const {
  const std::size_t shown = std::min(limit, rows_.size());
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t widest = width_of(columns_[c].title);
    for (std::size_t r = 0; r < shown; ++r) widest = std::max(widest, width_of(rows_[r][c]));
    widths.push_back(widest);
  }
  fit(widths, width);
  std::string out;
  for (std::size_t next = columns_.empty() ? 0 : 1; next <= columns_.size();) {
    std::vector<std::size_t> columns;
    if (!columns_.empty()) columns.push_back(0);
    std::size_t used = widths.empty() ? 0 : widths[0];
    while (next < columns_.size() && (columns.size() == 1 || used + kGap.size() + widths[next] <= width)) {
      used += kGap.size() + widths[next];
      columns.push_back(next++);
    }
    out += (out.empty() ? "" : "\n\n") + part(columns, widths, shown);
    if (next >= columns_.size()) break;
  }
  if (shown < rows_.size()) out += fmt::format("\n... {} more (--all)", group_digits(rows_.size() - shown));
  return out;
}

std::size_t output_width() {
  winsize size{};
  if (::isatty(STDOUT_FILENO) != 1 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return kNoLimit;
  return size.ws_col;
}

}  // namespace cairn::cli
