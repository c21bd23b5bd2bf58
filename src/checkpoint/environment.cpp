#include "checkpoint/environment.hpp"

#include <fmt/core.h>
#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>

#include "base/text.hpp"
#include "base/version.hpp"
#include "cairn/error.hpp"
#include "comm/mpi.hpp"
#include "gpu/runtime.hpp"
#include "hdf5/library.hpp"
#include "opening/carried.hpp"
#include "os/file.hpp"
#include "os/process.hpp"

namespace cairn::checkpoint {
namespace {

constexpr std::uint64_t kFileBytes = 4ULL << 20;  ///< of cairn.environment.json
constexpr std::size_t kCommandLineBytes = 64ULL << 10;

#if defined(__clang__)
constexpr const char* kCompiler = "Clang " __clang_version__;
#elif defined(__GNUC__)
constexpr const char* kCompiler = "GCC " __VERSION__;
#else
constexpr const char* kCompiler = "";
#endif

std::string cuda_version() {
  constexpr std::string_view kWord = "CUDA ";
  const std::string built = gpu::built_with();
  return built.starts_with(kWord) ? built.substr(kWord.size()) : std::string();
}

/// Empty without the driver.
std::string nvidia_driver() {
  std::ifstream file("/sys/module/nvidia/version");
  std::string version;
  file >> version;
  return version;
}

std::string kernel() {
  utsname system{};
  if (::uname(&system) != 0) return {};
  return fmt::format("{} {} {}", system.sysname, system.release, system.machine);
}

std::string file_system_at(const std::filesystem::path& directory) {
  try {
    return os::file_system_of(os::nearest_existing(directory)).type;
  } catch (const Error&) {
    return {};
  }
}

/// The arguments of this process, the first 64 KiB of them.
std::vector<std::string> command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  std::size_t bytes = 0;
  for (std::string argument; std::getline(file, argument, '\0'); arguments.push_back(std::move(argument))) {
    bytes += argument.size();
    if (bytes > kCommandLineBytes) break;
  }
  return arguments;
}

void add_hosts(const comm::Communicator& communicator, format::Environment& environment) {
  environment.ranks = static_cast<std::uint64_t>(communicator.size());
  std::map<std::string, std::uint64_t, std::less<>> ranks_of;
  for (int rank = 0; rank < communicator.size(); ++rank) {
    const std::string_view known = communicator.host_of(rank);  // empty where all ranks are on one host
    std::string host = known.empty() ? os::host_name() : std::string(known);
    if (ranks_of[host]++ == 0 && environment.hosts.size() < format::kEnvironmentHosts) {
      environment.hosts.push_back(std::move(host));
    }
  }
  environment.nodes = ranks_of.size();
  environment.fewest_ranks_per_node = environment.ranks;
  for (const auto& node : ranks_of) {
    environment.fewest_ranks_per_node = std::min(environment.fewest_ranks_per_node, node.second);
    environment.most_ranks_per_node = std::max(environment.most_ranks_per_node, node.second);
  }
}

}  // namespace

format::Environment environment_of(const comm::Communicator& communicator, const EnvironmentOptions& options,
                                   const std::filesystem::path& directory) {
  format::Environment environment;
  environment.tool = base::tool_version();
  environment.mpi = comm::mpi_library();
  environment.cuda = cuda_version();
  environment.nvidia_driver = nvidia_driver();
  environment.hdf5 = hdf5::version();
  environment.compiler = kCompiler;
  environment.kernel = kernel();
  environment.file_system = file_system_at(directory);
  add_hosts(communicator, environment);
  environment.git_revision = options.git_revision;
  environment.values = options.values;
  if (options.command_line) environment.command_line = command_line();
  return environment;
}

namespace {

/// lines_of(environment of the save), if there is one.
template <class LinesOf>
std::vector<std::string> about_save(const opening::OpenCheckpoint& opened, LinesOf lines_of) {
  const std::string name = format::kEnvironmentFile;
  if (!std::ranges::binary_search(opened.carried, name)) return {};
  try {
    return lines_of(format::parse_environment(opening::read_carried(opened, name, kFileBytes), name));
  } catch (const Error& error) {
    return {fmt::format("unknown: {}", base::one_line(error.what()))};
  }
}

}  // namespace

std::vector<std::string> environment_of_save(const opening::OpenCheckpoint& opened) {
  return about_save(opened, [](const format::Environment& saved) { return format::environment_lines(saved); });
}

std::vector<std::string> environment_changes_since(const comm::Communicator& communicator,
                                                   const opening::OpenCheckpoint& opened,
                                                   const EnvironmentOptions& options) {
  if (communicator.rank() != 0) return {};
  return about_save(opened, [&](const format::Environment& saved) {
    return format::environment_changes(saved, environment_of(communicator, options, opened.directory));
  });
}

}  // namespace cairn::checkpoint
