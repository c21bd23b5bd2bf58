// Plots as inline SVG: text, no scripts. Colours are classes (c0 ... c9, l0 ... l9, ink, grid) that the page defines.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn::bench {

inline constexpr int kPlotColours = 10;

/// The string for XML: &, <, > and double quotes are escaped, and control characters removed. If the string is not
/// UTF-8, bytes above 127 become question marks.
std::string xml_text(std::string_view text);

struct BarPart {
  std::string name;
  double value = 0;
  int colour = 0;
};

/// A bar of parts end to end, with a mark at `mark`, the value of the whole. Overlapping parts can exceed the mark.
struct Bar {
  std::string label;
  std::vector<BarPart> parts;
  double mark = 0;
};

/// Horizontal stacked bars over a common axis from 0.
std::string stacked_bars(const std::vector<Bar>& bars, const std::string& unit);

enum class Stroke { kSolid, kDashed, kNone };

struct Series {
  std::string name;
  int colour = 0;
  std::vector<std::pair<double, double>> points;
  Stroke stroke = Stroke::kSolid;
};

struct Axes {
  std::string x_title;
  std::string y_title;
  bool x_is_logarithmic = false;
  std::vector<std::pair<double, std::string>> x_ticks;
  std::optional<std::pair<double, double>> x_range = {};  ///< at least this far, also without points there
};

/// Points, joined by lines unless the stroke is kNone; the y axis begins at 0. Series without points are left out.
std::string line_plot(const std::vector<Series>& series, const Axes& axes);

/// Coloured squares with names.
std::string legend(const std::vector<std::pair<std::string, int>>& names);

}  // namespace cairn::bench
