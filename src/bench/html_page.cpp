#include "bench/html_page.hpp"

#include <fmt/core.h>

#include "bench/svg_plot.hpp"

namespace cairn::bench {
namespace {

// The style sheet of a report, with one set of colours for light pages and one for dark pages. People with common
// forms of colour blindness can distinguish the ten hues (after Okabe and Ito, and Tol).

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --page: #ffffff; --ink: #1d2329; --soft: #5b6670; --grid: #dde2e7; --card: #f5f7f9;
  --c0: #0072b2; --c1: #e69f00; --c2: #009e73; --c3: #cc79a7; --c4: #56b4e9; --c5: #d55e00; --c6: #8c8c8c; --c7: #b8a800;
  --c8: #332288; --c9: #882255; }
@media (prefers-color-scheme: dark) { :root { --page: #14181c; --ink: #e6eaee; --soft: #9aa5af; --grid: #333b43; --card: #1d2329;
  --c0: #4aa8e0; --c1: #f0b429; --c2: #2fc79a; --c3: #e39cc4; --c4: #8fd0f5; --c5: #f08a4b; --c6: #a9b0b7; --c7: #d8cb3c;
  --c8: #9488e8; --c9: #d873a8; } }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem; background: var(--page); color: var(--ink);
  font: 14px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin-bottom: 0.2rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; } h3 { font-size: 1rem; }
p.note, td.note { color: var(--soft); }
div.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.25rem 0.5rem; text-align: right; vertical-align: top; border-bottom: 1px solid var(--grid); }
th { color: var(--soft); font-weight: 600; } th.left, td.left { text-align: left; }
h2, p, li, td.left { overflow-wrap: anywhere; } td.left { min-width: 6rem; } span.range { color: var(--soft); display: block; white-space: nowrap; }
table.facts td.left:first-child { white-space: nowrap; }
svg { max-width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.grid { stroke: var(--grid); stroke-width: 1; } .ink { stroke: var(--ink); stroke-width: 2; }
p.legend span { margin-right: 1rem; white-space: nowrap; } p.legend svg { width: 0.8em; height: 0.8em; }
polyline { fill: none; stroke-width: 2; } polyline.dashed { stroke-dasharray: 6 4; }
@page { size: A4; margin: 12mm; }
@media print { body { max-width: none; padding: 0; font-size: 9pt; } table { font-size: 7.5pt; } div.wide { overflow: visible; }
  th, td { padding: 0.1rem 0.25rem; } h2, h3 { break-after: avoid; } svg, tr, p.legend { break-inside: avoid; }
  svg { max-height: 9cm; } }
)";

}  // namespace

std::string html_page(std::string_view title, std::string_view body) {
  std::string style = kStyle;
  for (int c = 0; c < kPlotColours; ++c) {
    style += fmt::format(".c{0} {{ fill: var(--c{0}); }} .l{0} {{ stroke: var(--c{0}); }}\n", c);
  }
  const std::string name = xml_text(title);
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n"
      "<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" content=\"width=device-width\"/>\n"
      "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n<h1>{}</h1>\n{}</body>\n</html>\n",
      name, style, name, body);
}

std::string fact_row(std::string_view name, std::string_view value) {
  return fmt::format("<tr><td class=\"left\">{}</td><td class=\"left\">{}</td></tr>\n", xml_text(name),
                     xml_text(value));
}

}  // namespace cairn::bench
