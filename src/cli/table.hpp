// Tables of plain text: columns as wide as their widest cell, numbers to the right, two spaces between columns. On a
// terminal no line is wider than it: long texts are cut in the middle, and what is too wide even then is told in
// several tables, one below the other, each of which begins with the first column.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
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
  void add(std::vector<std::string> cells);
  [[nodiscard]] std::size_t rows() const { return rows_.size(); }

  /// Lines without a newline at the end. Above `limit` rows the rest is told in a last line "... N more (--all)".
  /// `width`: of a line, in characters.
  [[nodiscard]] std::string text(std::size_t limit = kNoLimit, std::size_t width = output_width()) const;

 private:
  void fit(std::vector<std::size_t>& widths, std::size_t width) const;
  [[nodiscard]] std::string part(const std::vector<std::size_t>& columns, const std::vector<std::size_t>& widths,
                                 std::size_t shown) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

using base::counted;
using base::group_digits;

}  // namespace cairn::cli
