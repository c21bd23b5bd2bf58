// Tables of plain text: columns as wide as their widest cell, numbers to the right, two blanks between columns.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace cairn::cli {

inline constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();
inline constexpr std::size_t kTerminalRows = 20;  ///< rows of a long table on a terminal unless --all is given

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
  [[nodiscard]] std::string text(std::size_t limit = kNoLimit) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// "134,515,008".
std::string group_digits(std::uint64_t number);

/// "[576, 1536]"; "[]" for a scalar.
std::string shape_text(const std::vector<std::uint64_t>& shape);

}  // namespace cairn::cli
