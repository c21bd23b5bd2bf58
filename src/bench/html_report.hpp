// A record as one page of HTML: tables and plots inline, no scripts, nothing from the network. It is well-formed XML too.
#pragma once

#include <string>

#include "bench/record.hpp"

namespace cairn::bench {

std::string html_report(const Record& record);

}  // namespace cairn::bench
