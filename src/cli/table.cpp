// Lays out tables of plain text.
#include "cli/table.hpp"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/internal_error.hpp"
#include "cairn/error.hpp"

namespace cairn::cli {
namespace {

constexpr std::string_view kGap = "  ";
constexpr std::size_t kLeastText = 16;
constexpr std::string_view kCut = "...";

// Whether a byte begins a character of UTF-8.
bool begins(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

// The width on a terminal, approximated by the number of characters.
std::size_t width_of(std::string_view text) {
  std::size_t width = text.size();
  std::size_t at = 0;
  for (; text.size() - at >= sizeof(std::uint64_t); at += sizeof(std::uint64_t)) {
    constexpr std::uint64_t kOnes = 0x0101010101010101ULL;
    std::uint64_t eight = 0;
    std::memcpy(&eight, text.data() + at, sizeof eight);
    // A 1 for each byte 10xxxxxx, which does not begin a character; the product has the number of 1s in its highest
    // byte.
    const std::uint64_t inside = eight >> 7 & ~(eight >> 6) & kOnes;
    width -= inside * kOnes >> 56;
  }
  for (; at < text.size(); ++at) width -= begins(text[at]) ? 0 : 1;
  return width;
}

/// Cuts out the middle: names differ at their ends.
std::string cut(std::string_view text, std::size_t width) {
  const std::size_t has = width_of(text);
  const std::size_t keep = width - kCut.size();
  std::string head;
  std::string tail;
  std::size_t at = 0;
  for (const char c : text) {
    at += begins(c) ? 1 : 0;  // number, from 1, of the character that has byte c
    if (at <= keep / 2) head += c;
    if (at > has - (keep - keep / 2)) tail += c;
  }
  return head + std::string(kCut) + tail;
}

bool is_of_numbers(std::string_view column) { return column.starts_with('>'); }

std::string_view title_of(std::string_view column) { return column.substr(is_of_numbers(column) ? 1 : 0); }

void append_cell(std::string& out, std::string_view text, std::size_t width, bool at_right) {
  std::size_t has = width_of(text);
  std::string shorter;
  if (has > width && width > kCut.size()) {
    text = shorter = cut(text, width);
    has = width_of(text);
  }
  const std::size_t spaces = width - std::min(width, has);
  if (at_right) out.append(spaces, ' ');
  out += text;
  if (!at_right) out.append(spaces, ' ');
}

/// Makes cells narrower, the widest first, until a line fits or, if that is impossible, until each part of a line fits.
void fit(const Columns& columns, std::vector<std::size_t>& widths, std::size_t width) {
  const auto sum = [](const auto& all) {
    return std::accumulate(all.begin(), all.end(), kGap.size() * (all.size() - 1));
  };
  std::vector<std::size_t> narrow = widths;
  while (sum(narrow) > width) {
    std::size_t* widest = nullptr;
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const std::size_t least = std::max(kLeastText, width_of(title_of(columns[c])));
      if (!is_of_numbers(columns[c]) && narrow[c] > least && (widest == nullptr || narrow[c] > *widest))
        widest = &narrow[c];
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
  for (std::size_t c = 0; c < columns.size(); ++c) {
    if (!is_of_numbers(columns[c])) widths[c] = std::min(widths[c], c == 0 ? first : room);
  }
}

/// Writes a table in pieces of many lines.
class TableWriter {
 public:
  TableWriter(const Columns& columns, const TableRows& rows, std::size_t shown,
              const std::function<void(std::string_view)>& write)
      : columns_(columns), rows_(rows), shown_(shown), write_(write) {}

  void write(std::size_t width) {
    find_widths(width);
    bool is_first = true;
    for (std::size_t next = columns_.empty() ? 0 : 1; next <= columns_.size();) {
      std::vector<std::size_t> part;
      if (!columns_.empty()) part.push_back(0);
      std::size_t used = widths_.empty() ? 0 : widths_[0];
      while (next < columns_.size() && (part.size() == 1 || used + kGap.size() + widths_[next] <= width)) {
        used += kGap.size() + widths_[next];
        part.push_back(next++);
      }
      if (!std::exchange(is_first, false)) out_ += "\n\n";
      write_part(part);
      if (next >= columns_.size()) break;
    }
    if (shown_ < rows_.count) out_ += fmt::format("\n... {} more (--all)", group_digits(rows_.count - shown_));
    write_(out_);
  }

 private:
  static constexpr std::size_t kPieceBytes = 64 << 10;

  template <class Visit>
  void for_each_row(const Visit& visit) const {
    std::size_t left = shown_;
    if (left == 0) return;
    rows_.walk([&](Cells cells) {
      visit(cells);
      return --left != 0;
    });
  }

  void find_widths(std::size_t width) {
    for (const std::string_view column : columns_) widths_.push_back(width_of(title_of(column)));
    for_each_row([&](Cells cells) {
      for (std::size_t c = 0; c < cells.size(); ++c) widths_[c] = std::max(widths_[c], width_of(cells[c]));
    });
    fit(columns_, widths_, width);
  }

  void write_part(const std::vector<std::size_t>& part) {
    std::vector<std::string_view> titles;
    for (const std::string_view column : columns_) titles.push_back(title_of(column));
    add_line(part, titles);
    for_each_row([&](Cells cells) {
      out_ += '\n';
      add_line(part, cells);
      if (out_.size() < kPieceBytes) return;
      write_(out_);
      out_.clear();
    });
  }

  void add_line(const std::vector<std::size_t>& part, Cells cells) {
    const std::size_t begin = out_.size();
    for (const std::size_t c : part) {
      if (c != part.front()) out_ += kGap;
      append_cell(out_, cells[c], widths_[c], is_of_numbers(columns_[c]));
    }
    while (out_.size() > begin && out_.back() == ' ') out_.pop_back();
  }

  const Columns& columns_;
  const TableRows& rows_;
  std::size_t shown_;
  const std::function<void(std::string_view)>& write_;
  std::vector<std::size_t> widths_;
  std::string out_;  ///< not yet written
};

}  // namespace

void Table::add(std::span<const std::string> cells) {
  if (cells.size() != columns_.size()) {
    throw base::internal_error(fmt::format("table row has {} cells for {} columns", cells.size(), columns_.size()));
  }
  cells_.insert(cells_.end(), cells.begin(), cells.end());
}

void write_table(const Columns& columns, const TableRows& rows, std::size_t limit, std::size_t width,
                 const std::function<void(std::string_view)>& write) {
  TableWriter(columns, rows, std::min(limit, rows.count), write).write(width);
}

std::string Table::text(std::size_t limit, std::size_t width) const {
  const auto walk = [&](const std::function<bool(Cells)>& visit) {
    std::vector<std::string_view> row(columns_.size());
    for (auto cell = cells_.begin(); cell != cells_.end(); cell += static_cast<std::ptrdiff_t>(row.size())) {
      std::copy_n(cell, row.size(), row.begin());
      if (!visit(row)) return;
    }
  };
  std::string out;
  write_table(columns_, {rows(), walk}, limit, width, [&](std::string_view piece) { out += piece; });
  return out;
}

std::size_t output_width() {
  winsize size{};
  if (::isatty(STDOUT_FILENO) != 1 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return kNoLimit;
  return size.ws_col;
}

}  // namespace cairn::cli
