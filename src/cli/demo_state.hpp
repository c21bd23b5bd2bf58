// The made-up training state (bench/demo_state.hpp) as the command line names it: by a model's name or its config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bench/demo_state.hpp"
#include "comm/communicator.hpp"

namespace cairn::cli {

using bench::demo_state_by_name;
using bench::demo_state_of_config;
using bench::DemoState;
using bench::HeldState;

/// Collective: by name, or by the config.json of a "@file" argument.
DemoState demo_state(comm::Communicator& communicator, const std::string& argument,
                     std::optional<std::uint64_t> layers);

}  // namespace cairn::cli
