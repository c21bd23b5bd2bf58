#include "checkpoint/watched_call.hpp"

#include <exception>
#include <new>
#include <string>

#include "base/units.hpp"
#include "cairn/error.hpp"

namespace cairn::checkpoint {
namespace {

constexpr std::size_t kForeignTextBytes = 300;

[[noreturn]] void fail_alone(comm::Communicator& communicator, const std::string& why) {
  if (const auto liveness = communicator.liveness()) throw Error(ErrorKind::kState, liveness->fail(why));
  throw Error(ErrorKind::kInternal, why);
}

}  // namespace

void run_call(comm::Communicator& communicator, const char* phase, comm::Work work) {
  if (const auto liveness = communicator.liveness()) liveness->check();
  const WatchedCall watched(communicator);
  try {
    communicator.progress(phase);
    work();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    fail_alone(communicator, "out of memory (std::bad_alloc)");
  } catch (const std::exception& error) {
    fail_alone(communicator, base::printable(error.what(), kForeignTextBytes));
  }
}

}  // namespace cairn::checkpoint
