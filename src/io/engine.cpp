// Engines by name.
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

void check_engine_name(std::string_view name) {
  if (name == "mpiio" || name == "direct" || name == "posix") return;
  throw Error(ErrorKind::kUsage, "no engine '" + base::printable(name) +
                                     "' (Options::engine.name); there are 'auto', 'direct', 'mpiio' and 'posix'");
}

std::unique_ptr<Engine> make_engine(std::string_view name, comm::Communicator& communicator, EngineOptions options) {
  check_engine_name(name);
  if (name == "mpiio") return std::make_unique<MpiioEngine>(communicator, std::move(options));
  if (name == "direct") return std::make_unique<DirectEngine>(communicator, options, DirectEngine::Way::kDirect);
  return std::make_unique<DirectEngine>(communicator, options, DirectEngine::Way::kPageCache);
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
