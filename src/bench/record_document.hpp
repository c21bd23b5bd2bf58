// A record as JSON, as CSV and as a page of HTML.
#pragma once

#include <string>

#include "base/json.hpp"
#include "bench/record.hpp"

namespace cairn::bench {

// A record as JSON and as CSV. Keys and columns are explained in bench/README.md.

/// {"median", "min", "max", "values"}, each divided by `unit`.
base::Json summary_json(const Summary& summary, double unit = 1);

/// The whole record, without the envelope of the command line's documents.
base::Json record_json(const Record& record);

/// A first line with the columns, then lines for each repeat: one per phase, one for the whole ("total"), and one per
/// ceiling. Fields with a comma, a quote or a line break are quoted (RFC 4180).
std::string record_csv(const Record& record);

// A record as one page of HTML, which is also well-formed XML: tables and plots inline, no scripts, no network.

std::string html_report(const Record& record);

}  // namespace cairn::bench
