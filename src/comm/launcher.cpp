// Reads the environment variables that mpirun, mpiexec and srun set for the programs they start, and looks into /proc.
#include "comm/launcher.hpp"

#include <fmt/core.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/exit_codes.hpp"
#include "base/log.hpp"
#include "cairn/error.hpp"
#include "comm/mpi_call.hpp"
#include "comm/watchdog.hpp"
#include "os/file.hpp"
#include "os/process.hpp"

namespace cairn::comm {
namespace {

struct Launcher {
  const char* size;
  const char* rank;
  // A variable that must also be set, or null. A job script has SLURM_NTASKS, but is a single process outside any step.
  const char* needs;
};

constexpr Launcher kLaunchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", nullptr}, {"PMI_SIZE", "PMI_RANK", nullptr},
    {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", nullptr},   {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", nullptr},
    {"SLURM_NTASKS", "SLURM_PROCID", "SLURM_STEP_ID"},
};
/// PMIx launchers put the rank into this variable; only the PMIx library can tell the number of processes.
constexpr const char* kPmixRank = "PMIX_RANK";

int number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
}

/// Variables of PMIx, Open MPI, MPICH and PMI that identify a process's rank and its job.
constexpr const char* kRankVariables[] = {"PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"};
constexpr const char* kJobVariables[] = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID", "PMI_PORT"};
constexpr int kMostAncestors = 16;
/// Variables of Open MPI and MPICH that contain the number of ranks on the node.
constexpr const char* kRanksOfNode[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"};
/// Time for the ranks of one node to start one after another; less if their number is unknown and no other is seen.
constexpr std::chrono::seconds kPatience(5);
constexpr std::chrono::seconds kPatienceForUnknown(1);

/// Prefixes of the launchers' variables. Variables set by users (OMPI_MCA_io, OMPI_ALLOW_RUN_AS_ROOT) stay.
constexpr std::string_view kOfLaunchers[] = {
    "PMIX_",
    "PMI_",
    "PRTE_",
    "HYDI_",
    "HYDRA_",
    "MPI_LOCAL",
    "OMPI_COMM_WORLD_",
    "OMPI_UNIVERSE_SIZE",
    "OMPI_APP_CTX_",
    "OMPI_NUM_APP_CTX",
    "OMPI_FIRST_RANKS",
    "OMPI_COMMAND",
    "OMPI_ARGV",
    "OMPI_FILE_LOCATION",
    "OMPI_MCA_ess",
    "OMPI_MCA_orte_",
    "OMPI_MCA_pmix",
    "OMPI_MCA_initial_wdir",
    "SLURM_STEP",
    "SLURM_PROCID",
    "SLURM_NODELIST",
    "SLURM_JOBID",
};

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

/// "NAME=value" of this process; empty if the variable is not set.
std::string own(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : fmt::format("{}={}", variable, value);
}

enum class Place { kOutside, kSameRank, kOtherRank };

/// Another process, seen through /proc.
class Process {
 public:
  explicit Process(std::uint64_t number)
      : folder_(fmt::format("/proc/{}/", number)), environment_('\0' + content_of(folder_ + "environ")) {}
  /// Whether that process was started for the rank of the calling process, for a different rank, or outside the job.
  [[nodiscard]] Place place() const {
    const auto is_alike = [&](const char* variable) { return own(variable).empty() || was_given(own(variable)); };
    const auto has_some = [&](const char* variable) {
      return !own(variable).empty() && environment_.find('\0' + fmt::format("{}=", variable)) != std::string::npos;
    };
    if (!std::ranges::all_of(kJobVariables, is_alike)) return Place::kOutside;
    if (!std::ranges::any_of(kRankVariables, has_some)) return Place::kOutside;
    return std::ranges::all_of(kRankVariables, is_alike) ? Place::kSameRank : Place::kOtherRank;
  }
  /// Whether "NAME=value" was in the process's environment at its start.
  [[nodiscard]] bool was_given(const std::string& variable) const {
    return environment_.find('\0' + variable + '\0') != std::string::npos;
  }
  [[nodiscard]] bool has_mpi() const { return content_of(folder_ + "maps").find("/libmpi") != std::string::npos; }
  [[nodiscard]] bool runs(const std::filesystem::path& program) const {
    std::error_code failed;
    return std::filesystem::read_symlink(folder_ + "exe", failed) == program && !failed;
  }

 private:
  std::string folder_;
  std::string environment_;
};

/// The number of ranks on this node; 0: unknown.
int ranks_of_node() {
  for (const char* variable : kRanksOfNode) {
    if (const int ranks = number_in(variable); ranks > 0) return ranks;
  }
  return 0;
}

/// Whether the job has, or had, other ranks on this node, but no other rank runs this program within kPatience. Then
/// one rank alone has started the program; a launcher's script would start it on all ranks. Other ranks may have ended
/// already. Without `sees_launcher` other ranks may be invisible, for example in separate containers.
bool is_run_by_no_other_rank(bool sees_launcher) {
  const int ranks = ranks_of_node();
  if (ranks == 1) return false;  // no other rank to compare with
  const bool may_have_ended = ranks > 1 && sees_launcher;
  std::error_code failed;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed) return false;
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    bool has_others = false;
    for (const os::DirectoryEntry& entry : os::list_directory("/proc")) {
      const std::uint64_t number = std::strtoull(entry.name.c_str(), nullptr, 10);
      if (number == 0) continue;
      const Process process(number);
      if (process.place() != Place::kOtherRank) continue;
      if (process.runs(program)) return false;
      has_others = true;
    }
    const auto waited = std::chrono::steady_clock::now() - start;
    if (waited >= kPatience) return has_others || may_have_ended;
    if (ranks == 0 && !has_others && waited >= kPatienceForUnknown) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

constexpr double kSlowStartSeconds = 30;

}  // namespace

std::optional<LauncherMismatch> launcher_mismatch(int world_size) {
  if (world_size > 1) return std::nullopt;
  for (const Launcher& launcher : kLaunchers) {
    const int started = number_in(launcher.size);
    if (started <= 1 || (launcher.needs != nullptr && std::getenv(launcher.needs) == nullptr)) continue;
    return LauncherMismatch{launcher.size, started, number_in(launcher.rank) == 0};
  }
  // The first of several processes cannot be told from a single process.
  if (number_in(kPmixRank) > 0) return LauncherMismatch{kPmixRank, 0, false};
  return std::nullopt;
}

std::string describe(const LauncherMismatch& mismatch) {
  return fmt::format(
      "{}={} but MPI sees one rank: every process works alone on the same files; start it with the mpirun of the MPI "
      "library that it was built with (cairn --version names it), or with srun --mpi=pmix",
      mismatch.variable, number_in(mismatch.variable.c_str()));
}

void refuse_lonely_process() {
  int size = 1;
  internal::check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  const auto mismatch = launcher_mismatch(size);
  if (!mismatch) return;
  throw Error(ErrorKind::kUsage, fmt::format("not saved: {}; to save from each process on purpose, to roots of their "
                                             "own, unset {}",
                                             describe(*mismatch), mismatch->variable));
}

bool is_child_of_rank() {
  const char* alone = std::getenv("CAIRN_ALONE");
  if (alone != nullptr && *alone != '\0' && std::string_view(alone) != "0") return true;
  // Open MPI 4 sets this variable in a process that calls MPI_Init. Programs in some languages start children without
  // it, because they pass on the environment in which they were started themselves.
  constexpr const char* kMark = "OMPI_MCA_ess=pmi";
  const bool is_marked = own("OMPI_MCA_ess") == kMark;
  auto number = static_cast<std::uint64_t>(::getppid());
  bool has_parent_in_job = false;
  bool sees_launcher = false;
  for (int n = 0; n < kMostAncestors && number > 1; ++n) {
    const Process ancestor(number);
    sees_launcher = ancestor.place() != Place::kSameRank;  // the launcher, or a shell outside the job
    if (sees_launcher) break;
    if (ancestor.has_mpi() || (is_marked && !ancestor.was_given(kMark))) return true;
    has_parent_in_job = true;
    number = os::parent_of(number);
  }
  if (!has_parent_in_job || !is_run_by_no_other_rank(sees_launcher)) return false;
  base::log_warning(
      "no other rank of this job's node runs this program: it works as a process of its own; CAIRN_ALONE=1 says so at "
      "once");
  return true;
}

void leave_job() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const bool is_of_launcher = std::ranges::any_of(kOfLaunchers, [&](auto begin) { return text.starts_with(begin); });
    if (is_of_launcher) names.emplace_back(text.substr(0, text.find('=')));
  }
  for (const std::string& name : names) ::unsetenv(name.c_str());
}

SlowStart::SlowStart() {
  constexpr double kLimitSeconds = 1800;
  const double limit_s = Watchdog::seconds_from_environment(kLimitSeconds);
  if (limit_s > 0) thread_ = os::start_thread([this, limit_s] { watch(limit_s); });
}

SlowStart::~SlowStart() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void SlowStart::watch(double limit_s) {
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  std::unique_lock lock(mutex_);
  const double first_s = std::min(kSlowStartSeconds, limit_s);
  if (changed_.wait_for(lock, std::chrono::duration_cast<Clock::duration>(Seconds(first_s)), [&] { return is_over_; }))
    return;
  const auto told = [](double seconds) {
    return fmt::format(
        "MPI_Init has waited {:g} s for the other processes of this MPI job; look for processes that did not start, "
        "or, where a rank of the job runs this program for itself, set CAIRN_ALONE=1",
        seconds);
  };
  if (limit_s > first_s) {
    base::log_warning(told(first_s));
    if (changed_.wait_for(lock, std::chrono::duration_cast<Clock::duration>(Seconds(limit_s - first_s)),
                          [&] { return is_over_; }))
      return;
  }
  base::log_error(told(limit_s));
  std::_Exit(base::kExitSilent);
}

}  // namespace cairn::comm
