// The checks of `cairn doctor`, and what they found as text and JSON.
#include "cli/doctor.hpp"

#include <fmt/core.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "cli/output.hpp"
#include "cli/table.hpp"
#include "comm/agree.hpp"
#include "comm/launcher.hpp"
#include "comm/mpi.hpp"
#include "gpu/runtime.hpp"
#include "os/file.hpp"

namespace cairn::cli {

// Runs the checks and prints what they found.

namespace {

constexpr const char* kSharedMemory = "/dev/shm";

std::vector<Check> all_checks(const Context& context, const DoctorOptions& options) {
  std::vector<Check> checks = {check_mpi_io(),
                               check_mpi_io_of_others(options.user_mpi_io),
                               check_semaphores(kSharedMemory),
                               check_launcher(context.communicator.size()),
                               check_io_uring(),
                               check_cuda()};
  if (!options.path.empty()) {
    for (Check& check : check_file_system(options.path)) checks.push_back(std::move(check));
  }
  return checks;
}

void print_text(Output& output, const std::vector<Check>& checks, std::size_t dangers) {
  Table table({{"check"}, {"verdict"}, {"finding"}});
  for (const Check& check : checks) {
    table.add({check.name, name_of(check.level), one_line(check.finding)});
    if (!check.remedy.empty()) table.add({"", "", "-> " + one_line(check.remedy)});
  }
  output.line(table.text());
  output.line(dangers == 0 ? "nothing dangerous found"
                           : fmt::format("dangerous: {} of {} checks", dangers, checks.size()));
}

void print_document(Output& output, const std::vector<Check>& checks, std::size_t dangers) {
  base::Json document = json_document("doctor");
  document["dangerous"] = dangers != 0;
  document["checks"] = base::Json::array();
  for (const Check& check : checks) {
    document["checks"].push_back({{"name", check.name},
                                  {"verdict", name_of(check.level)},
                                  {"finding", check.finding},
                                  {"remedy", check.remedy}});
  }
  print_json(output, document);
}

}  // namespace

const char* name_of(Level level) {
  switch (level) {
    case Level::kGood: return "good";
    case Level::kNote: return "note";
    case Level::kWarning: return "warning";
    case Level::kDanger: return "danger";
  }
  return "unknown";
}

int run_doctor(Context& context, const DoctorOptions& options) {
  std::uint64_t dangers = 0;
  comm::agree_on_root(context.communicator, "doctor", 0, [&] {
    const std::vector<Check> checks = all_checks(context, options);
    dangers = static_cast<std::uint64_t>(
        std::count_if(checks.begin(), checks.end(), [](const Check& check) { return check.level == Level::kDanger; }));
    if (options.json) {
      print_document(context.output, checks, dangers);
    } else {
      print_text(context.output, checks, dangers);
    }
  });
  return context.communicator.max(dangers) == 0 ? kExitGood : kExitFailed;
}

// The checks of `cairn doctor`.

namespace {

constexpr const char* kUseRomio = "export OMPI_MCA_io=romio321";
constexpr std::uint64_t kLittleSpaceBytes = 10ULL << 30;

// Open MPI before 5 opens files with OMPIO unless told otherwise, and that OMPIO loses write errors.
bool defaults_to_losing_ompio(const std::string& library) {
  constexpr std::string_view kName = "Open MPI v";
  const std::size_t at = library.find(kName);
  return at != std::string::npos && std::atoi(library.c_str() + at + kName.size()) < 5;
}

std::filesystem::path nearest_existing(std::filesystem::path path) {
  std::error_code ignored;
  path = std::filesystem::absolute(path, ignored);
  while (!std::filesystem::exists(path, ignored) && path.has_parent_path() && path != path.parent_path()) {
    path = path.parent_path();
  }
  return path;
}

Check type_check(const os::FileSystemInfo& info, const std::string& where) {
  Check check{"file system", Level::kGood, fmt::format("{} at '{}'", info.type, where), ""};
  if (info.lives_in_memory()) {
    check.level = Level::kWarning;
    check.finding += ": memory, gone after a reboot or a job";
    check.remedy = "save to storage that outlives the node";
  } else if (info.type == "nfs") {
    check.level = Level::kWarning;
    check.finding += ": pages that two nodes write at once are lost without locks, and locks are slow";
    check.remedy = "save to a parallel or local file system where there is one";
  } else if (info.type == "overlay" || info.type == "overlayfs") {
    check.level = Level::kWarning;
    check.finding += ": the writable layer of a container, gone with it";
    check.remedy = "mount a volume for checkpoints";
  }
  return check;
}

}  // namespace

Check check_mpi_io() {
  const comm::MpiIoImplementation mpi = comm::mpi_io_implementation();
  Check check{"mpi-io", Level::kGood, fmt::format("{} of {}", mpi.io_component, mpi.library), ""};
  if (mpi.loses_write_errors) {
    check.level = Level::kDanger;
    check.finding += " loses write errors: a full disk can look like a good save, or hang";
    check.remedy = fmt::format("{} before mpirun", kUseRomio);
  }
  return check;
}

Check check_mpi_io_of_others(const std::optional<std::string>& user_mpi_io) {
  Check check{"mpi-io of other programs", Level::kGood, "", ""};
  if (user_mpi_io) {
    check.finding = fmt::format("OMPI_MCA_io={} is set", base::printable(*user_mpi_io));
    return check;
  }
  check.finding = "OMPI_MCA_io is not set";
  if (!defaults_to_losing_ompio(comm::mpi_io_implementation().library)) return check;
  check.level = Level::kNote;
  check.finding +=
      "; cairn chooses for itself, but programs that open MPI files first get OMPIO, which loses write errors in 4.1";
  check.remedy = kUseRomio;
  return check;
}

Check check_semaphores(const std::filesystem::path& shared_memory) {
  Check check{"semaphores", Level::kGood, "no semaphores of OMPIO are left in " + shared_memory.string(), ""};
  std::uint64_t count = 0;
  std::string first;
  std::error_code failed;
  for (std::filesystem::directory_iterator at(shared_memory, failed), end; !failed && at != end; at.increment(failed)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with("sem.OMPIO_")) continue;
    if (count++ == 0) first = name;
  }
  if (failed) {
    check.level = Level::kNote;
    check.finding = fmt::format("cannot look into {}: {}", shared_memory.string(), failed.message());
  } else if (count != 0) {
    check.level = Level::kDanger;
    check.finding = fmt::format(
        "{} left in {}, e.g. {}: with OMPIO, opening any file of that name on this node can hang for "
        "ever",
        count, shared_memory.string(), base::printable(first));
    check.remedy = fmt::format("when no MPI job runs on this node: rm {}/sem.OMPIO_*", shared_memory.string());
  }
  return check;
}

Check check_launcher(int world_size) {
  Check check{"launcher", Level::kGood, fmt::format("{} {}", world_size, world_size == 1 ? "rank" : "ranks"), ""};
  if (const auto mismatch = comm::launcher_mismatch(world_size)) {
    check.level = Level::kDanger;
    check.finding = describe(*mismatch);
    check.remedy = "use the mpirun of the MPI library above";
  }
  return check;
}

Check check_io_uring() {
  utsname system{};
  ::uname(&system);
  int major = 0;
  int minor = 0;
  // NOLINTNEXTLINE(cert-err34-c): an unreadable version counts as 0.0
  if (std::sscanf(system.release, "%d.%d", &major, &minor) != 2) major = minor = 0;
  Check check{"io_uring", Level::kGood, fmt::format("kernel {}", system.release), ""};
  std::string disabled;
  if (os::exists("/proc/sys/kernel/io_uring_disabled"))
    disabled = os::read_text("/proc/sys/kernel/io_uring_disabled", 64);
  if (major < 5 || (major == 5 && minor < 1)) {
    check.level = Level::kNote;
    check.finding += ": io_uring needs 5.1";
  } else if (!disabled.empty() && disabled.front() != '0') {
    check.level = Level::kNote;
    check.finding += ": io_uring is switched off (kernel.io_uring_disabled=" + disabled.substr(0, 1) + ")";
  }
  return check;
}

Check check_cuda() {
  const bool present = os::exists("/dev/nvidiactl");
  return {"cuda", Level::kGood,
          fmt::format("{}; this build has {}",
                      present ? "an NVIDIA driver is loaded" : "no NVIDIA driver: tensors come from host memory",
                      gpu::built_with()),
          ""};
}

std::vector<Check> check_file_system(const std::filesystem::path& path) {
  const std::filesystem::path existing = nearest_existing(path);
  const std::string where = base::printable(existing.string());
  const os::FileSystemInfo info = os::file_system_of(existing);
  std::vector<Check> checks = {type_check(info, where)};
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    checks.insert(checks.begin(),
                  {"path", Level::kWarning,
                   fmt::format("'{}' does not exist: what follows is of '{}'", base::printable(path.string()), where),
                   "check the spelling, and that the file system is mounted; a save would create the folders"});
  }
  Check space{"free space", Level::kGood, fmt::format("{} free at '{}'", base::format_size(info.free_bytes), where),
              ""};
  if (info.free_bytes < kLittleSpaceBytes) {
    space.level = Level::kWarning;
    space.remedy = "a save writes the new checkpoint whole before an old one may go; make room";
  }
  checks.push_back(std::move(space));
  Check writable{"permission", Level::kGood, fmt::format("'{}' can be written", where), ""};
  if (::access(existing.c_str(), W_OK) != 0) {
    writable.level = Level::kDanger;
    writable.finding = fmt::format("'{}' cannot be written by this user", where);
    writable.remedy = "choose another directory or have its permissions changed";
  }
  checks.push_back(std::move(writable));
  return checks;
}

}  // namespace cairn::cli
