// Tables of plain text: columns as wide as their widest cell, numbers aligned to the right, two spaces between columns.
// On a terminal, lines are fitted to its width: long cells of text are cut in the middle, and a table that is still too
// wide is split into several tables below each other, each with the first column.
#pragma once

#include <cstddef>
#include <functional>
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

/// Characters in a line of the terminal; kNoLimit if standard output is not a terminal.
std::size_t output_width();

/// Titles. A '>' before a title, which is not shown, marks a column of numbers, which are aligned to the right.
using Columns = std::vector<std::string_view>;

using Cells = std::span<const std::string_view>;

/// Rows that are made while they are printed, so that a table of 100,000 rows is not held in memory.
struct TableRows {
  std::size_t count = 0;
  /// Calls visit(cells) for each row, with a cell for each column, until visit() returns false. Called several times
  /// (for the widths, then for each part of the table); must give the same rows each time.
  std::function<void(const std::function<bool(Cells)>& visit)> walk;
};

/// Writes a table piece by piece, in the form of Table::text().
void write_table(const Columns& columns, const TableRows& rows, std::size_t limit, std::size_t width,
                 const std::function<void(std::string_view)>& write);

class Table {
 public:
  explicit Table(Columns columns) : columns_(std::move(columns)) {}

  /// Requires: one cell per column. Cells are UTF-8 and hold no control characters (base::printable).
  void add(std::span<const std::string> cells);
  void add(std::initializer_list<std::string> cells) { add(std::span(cells.begin(), cells.size())); }
  [[nodiscard]] std::size_t rows() const { return columns_.empty() ? 0 : cells_.size() / columns_.size(); }

  /// The table without a newline at the end. A last line "... N more (--all)" replaces rows beyond `limit`. `width`:
  /// largest width of a line, in characters.
  [[nodiscard]] std::string text(std::size_t limit = kNoLimit, std::size_t width = output_width()) const;

 private:
  Columns columns_;
  std::vector<std::string> cells_;  ///< row by row
};

using base::counted;
using base::group_digits;

}  // namespace cairn::cli
