#include "cli/demo_state.hpp"

#include "cli/arguments.hpp"

namespace cairn::cli {

DemoState demo_state(comm::Communicator& communicator, const std::string& argument,
                     std::optional<std::uint64_t> layers) {
  if (!argument.starts_with('@')) return demo_state_by_name(argument, layers);
  return demo_state_of_config(text_or_file(communicator, argument), layers);
}

}  // namespace cairn::cli
