// Makes engines by name.
#include "io/engine.hpp"

#include <exception>
#include <utility>

#include "base/log.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "io/direct_engine.hpp"
#include "io/mpiio_engine.hpp"

namespace cairn::io {

EngineTraits engine_traits(std::string_view name) {
  for (const EngineTraits& engine : {EngineTraits{"direct", false, true}, {"mpiio", true, false}, {"posix"}}) {
    if (engine.name == name) return engine;
  }
  return {};
}

void check_engine_name(std::string_view name) {
  if (!engine_traits(name).name.empty()) return;
  throw Error(ErrorKind::kUsage, "no engine '" + base::printable(name) +
                                     "' (Options::engine.name); there are 'auto', 'direct', 'mpiio' and 'posix'");
}

std::unique_ptr<Engine> make_engine(std::string_view name, comm::Communicator& communicator, EngineOptions options) {
  check_engine_name(name);
  const EngineTraits traits = engine_traits(name);
  if (traits.uses_mpi_io) return std::make_unique<MpiioEngine>(communicator, std::move(options));
  return std::make_unique<DirectEngine>(communicator, options, traits);
}

std::unique_ptr<Engine> make_engine_on_all(std::string_view name, comm::Communicator& communicator,
                                           EngineOptions options) {
  std::unique_ptr<Engine> engine;
  comm::agree(communicator, "make an engine", [&] { engine = make_engine(name, communicator, std::move(options)); });
  return engine;
}

void close_after_error(Engine* engine) noexcept {
  try {
    if (engine != nullptr) engine->close();
  } catch (const std::exception& error) {
    base::log_debug(std::string("closing after an error: ") + error.what());
  }
}

}  // namespace cairn::io
