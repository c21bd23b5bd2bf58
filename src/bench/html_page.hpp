// The frame of a report: one page of HTML, which is also well-formed XML. Styles inline, no scripts, no network.
#pragma once

#include <string>
#include <string_view>

namespace cairn::bench {

/// The page with a title, also its first heading, and a body of HTML, whose plots are those of svg_plot.hpp.
std::string html_page(std::string_view title, std::string_view body);

/// A row of a table of class "facts": a name and its value, both plain text.
std::string fact_row(std::string_view name, std::string_view value);

}  // namespace cairn::bench
