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
std::size_t width_of(std::string_view text) {
  std::size_t width = 0;
  for (const char c : text) width += begins(c) ? 1 : 0;
  return width;
}

/// Without the middle of what is too long: names differ at their ends.
std::string cut(std::string_view text, std::size_t width) {
  const std::size_t has = width_of(text);
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

void append_cell(std::string& out, std::string_view text, std::size_t width, Align align) {
  std::size_t has = width_of(text);
  std::string shorter;
  if (has > width && width > kCut.size()) {
    text = shorter = cut(text, width);
    has = width_of(text);
  }
  const std::size_t spaces = width - std::min(width, has);
  if (align == Align::kRight) out.append(spaces, ' ');
  out += text;
  if (align == Align::kLeft) out.append(spaces, ' ');
}

}  // namespace

void Table::reserve(std::size_t rows) {
  constexpr std::size_t kCellBytes = 20;
  ends_.reserve(rows * columns_.size());
  text_.reserve(rows * columns_.size() * kCellBytes);
}

void Table::add(std::span<const std::string> cells) {
  if (cells.size() != columns_.size()) {
    throw Error(ErrorKind::kInternal,
                fmt::format("table row has {} cells for {} columns", cells.size(), columns_.size()));
  }
  for (const std::string& cell : cells) {
    text_ += cell;
    ends_.push_back(text_.size());
  }
}

std::string Table::part(const std::vector<std::size_t>& columns, const std::vector<std::size_t>& widths,
                        std::size_t shown) const {
  std::string out;
  std::size_t line_bytes = 1;
  for (const std::size_t c : columns) line_bytes += widths[c] + kGap.size();
  out.reserve(line_bytes * (shown + 1));
  const auto add_line = [&](const auto& cell_of) {
    const std::size_t begin = out.size();
    for (const std::size_t c : columns) {
      if (c != columns.front()) out += kGap;
      append_cell(out, cell_of(c), widths[c], columns_[c].align);
    }
    while (out.size() > begin && out.back() == ' ') out.pop_back();
  };
  add_line([&](std::size_t c) -> std::string_view { return columns_[c].title; });
  for (std::size_t r = 0; r < shown; ++r) {
    out += '\n';
    add_line([&](std::size_t c) { return cell(r, c); });
  }
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
  const std::size_t shown = std::min(limit, rows());
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t widest = width_of(columns_[c].title);
    for (std::size_t r = 0; r < shown; ++r) widest = std::max(widest, width_of(cell(r, c)));
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
    if (out.empty()) {
      out = part(columns, widths, shown);
    } else {
      out += "\n\n" + part(columns, widths, shown);
    }
    if (next >= columns_.size()) break;
  }
  if (shown < rows()) out += fmt::format("\n... {} more (--all)", group_digits(rows() - shown));
  return out;
}

std::size_t output_width() {
  winsize size{};
  if (::isatty(STDOUT_FILENO) != 1 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return kNoLimit;
  return size.ws_col;
}

}  // namespace cairn::cli
