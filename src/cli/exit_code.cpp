// Which exit code a kind of error ends the program with.
#include "cli/exit_code.hpp"

namespace cairn::cli {

int exit_code_of(ErrorKind kind) { return kind == ErrorKind::kUsage ? kExitUsage : kExitFailed; }

}  // namespace cairn::cli
