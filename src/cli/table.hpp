// Tables of plain text: columns as wide as their widest cell, numbers to the right, two spaces between columns. On a
// terminal no line is wider than it: long texts are cut in the middle, and what is too wide even then is told in
// several tables, one below the other, each of which begins with the first column.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"

namespace cairn::cli {

inline constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();
inline constexpr std::size_t kTerminalRows = 20;  ///< rows of a long table on a terminal unless --all is given

/// Characters in a line of the terminal that standard output is; kNoLimit when it is none.
std::size_t output_width();

enum class Align { kLeft, kRight };

struct Column {
  std::string title;
  Align align = Align::kLeft;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// Requires: one cell per column. Cells are UTF-8 and hold no control characters (base::printable).
  void add(std::span<const std::string> cells);
  void add(std::initializer_list<std::string> cells) { add(std::span(cells.begin(), cells.size())); }
  /// Makes room for about so many rows.
  void reserve(std::size_t rows);
  [[nodiscard]] std::size_t rows() const { return columns_.empty() ? 0 : ends_.size() / columns_.size(); }

  /// Lines without a newline at the end. Above `limit` rows the rest is told in a last line "... N more (--all)".
  /// `width`: of a line, in characters.
  [[nodiscard]] std::string text(std::size_t limit = kNoLimit, std::size_t width = output_width()) const;

 private:
  void fit(std::vector<std::size_t>& widths, std::size_t width) const;
  [[nodiscard]] std::string part(const std::vector<std::size_t>& columns, const std::vector<std::size_t>& widths,
                                 std::size_t shown) const;

  [[nodiscard]] std::string_view cell(std::size_t row, std::size_t column) const {
    const std::size_t number = row * columns_.size() + column;
    const std::size_t begin = number == 0 ? 0 : ends_[number - 1];
    return std::string_view(text_).substr(begin, ends_[number] - begin);
  }

  std::vector<Column> columns_;
  std::string text_;               ///< of all cells, one behind the other: tables have 100,000 rows and more
  std::vector<std::size_t> ends_;  ///< of each cell in it
};

using base::counted;
using base::group_digits;

}  // namespace cairn::cli
