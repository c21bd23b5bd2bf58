// A record as JSON, as CSV and as a page of HTML.
#pragma once

#include <string>

#include "base/json.hpp"
#include "bench/record.hpp"

namespace cairn::bench {

// A record as JSON and as CSV. Keys and columns are explained in bench/README.md.

/// All of the record, without the envelope that every document of the command line has.
base::Json record_json(const Record& record);

/// One line per phase of each repeat, one for the whole ("total"), one per ceiling; a first line with the columns.
/// Fields with a comma or a quote stand in quotes (RFC 4180).
std::string record_csv(const Record& record);

// A record as one page of HTML: tables and plots inline, no scripts, nothing from the network. It is well-formed XML
// too.

std::string html_report(const Record& record);

}  // namespace cairn::bench
