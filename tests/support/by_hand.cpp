#include "by_hand.hpp"

#include <mpi.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>

namespace cairn::test {
namespace {

std::string shell_word(std::string_view word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

/// The same variables as in scripts/lib.sh: Open MPI asks twice before it runs as root, and counts cores.
std::string launcher_variables() {
#ifdef OPEN_MPI
  std::string out = "OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 ";
  if (::geteuid() == 0) out += "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ";
  return out;
#else
  return "";
#endif
}

}  // namespace

std::string commands_by_hand(int ranks, const std::vector<std::string>& command) {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  std::string start = "CAIRN_TEST_RANKS=" + std::to_string(ranks) + " " + launcher_variables() + CAIRN_LAUNCHER " " +
                      std::to_string(ranks) + " " + program.string();
  for (std::size_t i = 1; i < command.size(); ++i) start += " " + shell_word(command[i]);
  std::string_view name = program.filename().native();
  constexpr std::string_view kPrefix = "mpi_test_";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  return start + "\nctest --test-dir " CAIRN_BUILD_DIR " -N -R '^" + std::string(name) + "(_.*)?\\.np'\n";
}

}  // namespace cairn::test
