#include "bench/svg_plot.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/text.hpp"

namespace cairn::bench {
namespace {

constexpr double kWidth = 760;
constexpr double kLeft = 180;  // left margin of stacked bars, for labels
constexpr double kRight = 20;
constexpr double kBarHeight = 22;
constexpr double kBarStep = 34;
constexpr double kAxisHeight = 26;
constexpr double kLineLeft = 56;
constexpr double kLineHeight = 260;
constexpr double kLineBottom = 46;
constexpr double kTop = 12;
constexpr std::size_t kManyPoints = 60;
constexpr double kTitleHeight = 18;  // height of the title of the y axis, above its highest tick

// About six round numbers from 0 up to `most` or just above it.
std::vector<double> ticks_to(double most) {
  if (!(most > 0)) return {0, 1};
  const double raw = most / 5;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = power;
  for (const double factor : {1.0, 2.0, 2.5, 5.0, 10.0}) {
    step = factor * power;
    if (step >= raw) break;
  }
  std::vector<double> ticks;
  for (int i = 0; i * step < most + step; ++i) ticks.push_back(i * step);
  return ticks;
}

std::string number(double value) { return fmt::format("{:.4g}", value); }

std::string text_at(double x, double y, const char* anchor, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, xml_text(text));
}

std::string line_at(double x1, double y1, double x2, double y2, const char* style) {
  return fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", style, x1, y1,
                     x2, y2);
}

std::string begin_svg(double height) {
  return fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\">\n", kWidth,
                     height);
}

double length_of(const Bar& bar) {
  double sum = 0;
  for (const BarPart& part : bar.parts) sum += part.value;
  return std::max(sum, bar.mark);
}

}  // namespace

std::string xml_text(std::string_view text) {
  const bool is_utf8 = base::is_utf8(text);
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default:
        if (static_cast<unsigned char>(c) >= 0x80 && !is_utf8) {
          out.push_back('?');
        } else if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) {
          out.push_back(c);
        }
    }
  }
  return out;
}

std::string stacked_bars(const std::vector<Bar>& bars, const std::string& unit) {
  double most = 0;
  for (const Bar& bar : bars) most = std::max(most, length_of(bar));
  const std::vector<double> ticks = ticks_to(most);
  const double bottom = kTop + kBarStep * static_cast<double>(bars.size());
  const auto x_of = [&](double value) { return kLeft + value / ticks.back() * (kWidth - kLeft - kRight); };
  std::string out = begin_svg(bottom + kAxisHeight);
  for (const double tick : ticks) {
    out += line_at(x_of(tick), kTop, x_of(tick), bottom, "grid");
    out += text_at(x_of(tick), bottom + 16, "middle", number(tick) + (tick == ticks.back() ? " " + unit : ""));
  }
  double y = kTop + (kBarStep - kBarHeight) / 2;
  for (const Bar& bar : bars) {
    out += text_at(kLeft - 8, y + kBarHeight * 0.7, "end", bar.label);
    double at = 0;
    for (const BarPart& part : bar.parts) {
      out += fmt::format(
          "<rect class=\"c{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"><title>{}: {} {}"
          "</title></rect>\n",
          part.colour % kPlotColours, x_of(at), y, x_of(at + part.value) - x_of(at), kBarHeight, xml_text(part.name),
          number(part.value), xml_text(unit));
      at += part.value;
    }
    out += line_at(x_of(bar.mark), y - 4, x_of(bar.mark), y + kBarHeight + 4, "ink");
    y += kBarStep;
  }
  return out + "</svg>\n";
}

std::string line_plot(const std::vector<Series>& series, const Axes& axes) {
  const auto place = [&](double x) { return axes.x_is_logarithmic ? std::log2(std::max(x, 1.0)) : x; };
  double most = 0;
  double first = HUGE_VAL;
  double last = -HUGE_VAL;
  for (const Series& one : series) {
    for (const auto& [x, y] : one.points) {
      most = std::max(most, y);
      first = std::min(first, place(x));
      last = std::max(last, place(x));
    }
  }
  if (axes.x_range) {
    first = std::min(first, place(axes.x_range->first));
    last = std::max(last, place(axes.x_range->second));
  }
  if (first > last) first = last = 0;
  const double margin = first == last ? 1 : (last - first) * 0.04;
  const std::vector<double> ticks = ticks_to(most);
  const double top = kTop + kTitleHeight;
  const double bottom = top + kLineHeight;
  const auto x_of = [&](double x) {
    return kLineLeft + (place(x) - first + margin) / (last - first + 2 * margin) * (kWidth - kLineLeft - kRight);
  };
  const auto y_of = [&](double y) { return bottom - y / ticks.back() * kLineHeight; };
  std::string out = begin_svg(bottom + kLineBottom);
  for (const double tick : ticks) {
    out += line_at(kLineLeft, y_of(tick), kWidth - kRight, y_of(tick), "grid");
    out += text_at(kLineLeft - 8, y_of(tick) + 4, "end", number(tick));
  }
  for (const auto& [x, label] : axes.x_ticks) out += text_at(x_of(x), bottom + 16, "middle", label);
  out += text_at(kWidth / 2, bottom + 36, "middle", axes.x_title);
  out += text_at(4, kTop, "start", axes.y_title);
  for (const Series& one : series) {
    const int colour = one.colour % kPlotColours;
    std::string path;
    for (const auto& [x, y] : one.points) path += fmt::format("{:.1f},{:.1f} ", x_of(x), y_of(y));
    if (one.points.size() > 1 && one.stroke != Stroke::kNone) {
      out += fmt::format("<polyline class=\"l{}{}\" points=\"{}\"/>\n", colour,
                         one.stroke == Stroke::kDashed ? " dashed" : "", path);
    }
    const int radius = one.points.size() > kManyPoints ? 2 : 4;
    for (const auto& [x, y] : one.points) {
      out += fmt::format("<circle class=\"c{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"><title>{}: {}</title></circle>\n",
                         colour, x_of(x), y_of(y), radius, xml_text(one.name), number(y));
    }
  }
  return out + "</svg>\n";
}

std::string legend(const std::vector<std::pair<std::string, int>>& names) {
  std::string out = "<p class=\"legend\">";
  for (const auto& [name, colour] : names) {
    out += fmt::format(
        "<span><svg viewBox=\"0 0 10 10\"><rect class=\"c{}\" width=\"10\" height=\"10\"/></svg> {}</span> ",
        colour % kPlotColours, xml_text(name));
  }
  return out + "</p>\n";
}

}  // namespace cairn::bench
