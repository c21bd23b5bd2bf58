// The checks of `cairn doctor`, and their findings as text and JSON.
#include "cli/doctor.hpp"

#include <fmt/core.h>
#include <sys/utsname.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/bytes.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "cli/json_output.hpp"
#include "cli/table.hpp"
#include "comm/agree.hpp"
#include "comm/launcher.hpp"
#include "comm/mpi.hpp"
#include "format/save_rate.hpp"
#include "gpu/runtime.hpp"
#include "os/file.hpp"
#include "os/neighbour.hpp"
#include "os/process.hpp"
#include "os/storage.hpp"
#include "planning/preflight.hpp"
#include "root/run_log.hpp"
#include "root/views.hpp"

namespace cairn::cli {
namespace {

constexpr const char* kSharedMemory = "/dev/shm";
constexpr const char* kFreeSpace = "free space";
constexpr const char* kFreeFiles = "free inodes";
constexpr const char* kQuota = "quota";
constexpr const char* kNextSave = "next save";
constexpr std::uint64_t kFewFiles = 1000;

enum class Level { kGood, kNote, kWarning, kDanger };

struct Check {
  std::string name;  ///< "mpi-io", "semaphores", "launcher", "file system" ...
  Level level = Level::kGood;
  std::string finding;                  ///< one line
  std::string remedy;                   ///< one line; empty: nothing to do
  std::vector<std::string> hosts = {};  ///< hosts with this finding; empty: all hosts, or the job
};

const char* name_of(Level level) {
  switch (level) {
    case Level::kGood: return "good";
    case Level::kNote: return "note";
    case Level::kWarning: return "warning";
    case Level::kDanger: return "danger";
  }
  return "unknown";
}

std::filesystem::path nearest_existing(std::filesystem::path path) {
  std::error_code ignored;
  path = std::filesystem::absolute(path, ignored);
  while (!std::filesystem::exists(path, ignored) && path.has_parent_path() && path != path.parent_path()) {
    path = path.parent_path();
  }
  return path;
}

constexpr const char* kUseRomio = "export OMPI_MCA_io=romio321";
constexpr std::uint64_t kLittleSpaceBytes = 10ULL << 30;

// Whether this is Open MPI before version 5, in which OMPIO is the default and loses write errors.
bool defaults_to_losing_ompio(const std::string& library) {
  constexpr std::string_view kName = "Open MPI v";
  const std::size_t at = library.find(kName);
  return at != std::string::npos && std::atoi(library.c_str() + at + kName.size()) < 5;
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
    check.finding =
        fmt::format("{} left in {}, e.g. {}: with OMPIO, opening any file of that name on this node can hang for ever",
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

Check check_limits(const os::OpenFileLimit& open_files) {
  // A rank with more files than its limit opens them in turns, which MPI-IO cannot do.
  constexpr std::uint64_t kFew = 4096;
  Check check{"limits", Level::kGood, fmt::format("{} open files (ulimit -n)", open_files.soft), ""};
  if (open_files.soft < kFew) {
    check.level = Level::kNote;
    check.finding += "; ranks that open a thousand files at a time (engine mpiio) need more";
    check.remedy = fmt::format("ulimit -n {} before a program starts; cairn raises it by itself",
                               std::min<std::uint64_t>(open_files.hard, 1 << 16));
  }
  if (const auto most = os::largest_file_bytes()) {
    check.level = Level::kWarning;
    check.finding += fmt::format("; files may have {} (ulimit -f): saves of larger ones fail, and so do loads",
                                 base::format_size(*most));
    check.remedy = "ulimit -f unlimited before a program starts";
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

Check inodes_check(std::uint64_t free, const std::string& where) {
  Check check{kFreeFiles, Level::kGood, fmt::format("{} free at '{}'", base::group_digits(free), where), ""};
  if (free >= kFewFiles) return check;
  check.level = Level::kWarning;
  check.remedy = "remove files: a save needs an inode for each of its files";
  return check;
}

Check quota_check(const os::QuotaLeft& quota, const std::string& where) {
  Check check{kQuota, Level::kGood, fmt::format("{} at '{}' has", quota.of, where), ""};
  if (quota.bytes) check.finding += fmt::format(" {}", base::format_size(*quota.bytes));
  if (quota.files) {
    check.finding += fmt::format("{} {} files", quota.bytes ? " and" : "", base::group_digits(*quota.files));
  }
  check.finding += " left";
  if (quota.bytes.value_or(kLittleSpaceBytes) < kLittleSpaceBytes || quota.files.value_or(kFewFiles) < kFewFiles) {
    check.level = Level::kWarning;
    check.remedy = "have the quota raised, or remove files";
  }
  return check;
}

/// The room and the time of a save like the last one, by the root's log. Nothing without such a log.
std::optional<Check> next_save_check(const std::filesystem::path& root, const os::StorageFacts& facts) {
  const format::RunLog log = root::read_run_log(root);
  const auto last = format::last_save(log);
  if (!last || last->bytes == 0) return std::nullopt;
  const format::SaveRates rates(log);
  Check check{kNextSave, Level::kGood, "", ""};
  check.finding = fmt::format("{}, as step {} has", base::format_size(last->bytes), last->step.value_or(0));
  if (const auto rate = rates.median()) {
    check.finding +=
        fmt::format(": about {:.1f} s at {}/s, the median of the last {}", rates.seconds_for(last->bytes),
                    base::format_size(static_cast<std::uint64_t>(*rate)), base::counted(rates.saves(), "save"));
  }
  constexpr std::uint64_t kFilesBeside = 4;  // directory, manifest, checksums, latest file
  if (const auto want = planning::want_of_room(
          {.bytes = last->bytes, .files = last->files + kFilesBeside, .largest_file_bytes = 0, .largest_file = {}},
          facts, root)) {
    check.level = want->is_certain ? Level::kDanger : Level::kWarning;
    check.finding += "; " + want->text;
    check.remedy = "make room before the job starts";
  }
  return check;
}

/// Checks the path, or the nearest existing path above it. Throws Error(kUsage) if that path is not a directory.
std::vector<Check> check_file_system(const std::filesystem::path& path) {
  const std::filesystem::path existing = nearest_existing(path);
  std::error_code ignored;
  if (!std::filesystem::is_directory(existing, ignored)) {
    throw Error(ErrorKind::kUsage,
                fmt::format("'{}' is not a directory; give the one that checkpoints go to", os::shown(existing)),
                {0, existing.native()});
  }
  const std::string where = base::printable(existing.string());
  const os::FileSystemInfo info = os::file_system_of(existing);
  std::vector<Check> checks = {type_check(info, where)};
  if (!std::filesystem::exists(path, ignored)) {
    const std::filesystem::path neighbour = os::neighbour_of(path);
    const std::string meant = neighbour.empty() ? "" : fmt::format(" (did you mean '{}'?)", os::shown(neighbour));
    checks.insert(
        checks.begin(),
        {"path", Level::kWarning,
         fmt::format("'{}' does not exist: what follows is of '{}'", base::printable(path.string()), where),
         fmt::format("check the spelling{}, and that the file system is mounted; a save would create the folders",
                     meant)});
  }
  const os::StorageFacts facts = os::storage_facts(existing);
  Check space{kFreeSpace, Level::kGood, fmt::format("{} free at '{}'", base::format_size(info.free_bytes), where), ""};
  if (info.free_bytes < kLittleSpaceBytes) {
    space.level = Level::kWarning;
    space.remedy = "a save writes the new checkpoint whole before an old one may go; make room";
  }
  checks.push_back(std::move(space));
  if (facts.free_files) checks.push_back(inodes_check(*facts.free_files, where));
  for (const os::QuotaLeft& quota : facts.quotas) checks.push_back(quota_check(quota, where));
  if (facts.type == "lustre") {
    const planning::StripeAdvice advice = planning::advise_on_stripes(os::stripes_of(existing));
    checks.push_back(
        {"stripes", advice.remedy.empty() ? Level::kGood : Level::kWarning, advice.finding, advice.remedy});
    checks.push_back({kQuota, Level::kNote, "the kernel does not tell the quotas of Lustre",
                      fmt::format("lfs quota -u $USER {}", where)});
  }
  Check writable{"permission", Level::kGood, fmt::format("'{}' can be written", where), ""};
  if (const os::NoAccess problem = os::access_problem(existing); problem.error != 0) {
    writable = {"permission", Level::kDanger, fmt::format("'{}' {}", where, problem.why), problem.remedy};
  }
  checks.push_back(std::move(writable));
  if (auto next = next_save_check(existing, facts)) checks.push_back(std::move(*next));
  return checks;
}

std::vector<Check> checks_of_node(const DoctorOptions& options) {
  std::vector<Check> checks = {check_semaphores(kSharedMemory), check_io_uring(), check_limits(options.user_open_files),
                               check_cuda()};
  if (!options.path.empty()) {
    for (Check& check : check_file_system(options.path)) checks.push_back(std::move(check));
  }
  const std::string host = os::host_name();
  for (Check& check : checks) check.hosts = {host};
  return checks;
}

base::Bytes pack(const std::vector<Check>& checks) {
  base::ByteWriter out;
  for (const Check& check : checks) {
    out.text(check.name);
    out.u64(static_cast<std::uint64_t>(check.level));
    out.text(check.finding);
    out.text(check.remedy);
    out.text(check.hosts.front());
  }
  return out.take();
}

std::vector<Check> unpack(const base::Bytes& packed) {
  base::ByteReader in(packed);
  std::vector<Check> checks;
  while (!in.done()) {
    Check check;
    check.name = in.text();
    check.level = static_cast<Level>(in.u64());
    check.finding = in.text();
    check.remedy = in.text();
    check.hosts = {in.text()};
    checks.push_back(std::move(check));
  }
  return checks;
}

/// Collective; the result is for rank 0.
Check check_that_all_see(comm::Communicator& communicator, const std::filesystem::path& path) {
  // A node's cached view may be a minute old, which is harmless and not worth a minute's wait.
  constexpr std::chrono::seconds kPatience{15};
  Check check{"shared directory", Level::kGood, "", ""};
  try {
    std::string existing;
    comm::agree_on_root(communicator, "doctor", 0, [&] { existing = nearest_existing(path).string(); });
    communicator.share(existing, 0);
    const bool is_told = root::check_all_nodes_see(communicator, existing, kPatience);
    check.level = is_told ? Level::kGood : Level::kNote;
    check.finding = is_told ? "all nodes of this job see" : "nothing can be said: no file can be made, to be seen, in";
    check.finding += fmt::format(" '{}'", base::printable(existing));
  } catch (const comm::AgreedError& error) {
    check.level = Level::kDanger;
    check.finding = error.what();
    check.remedy = "choose a directory that all nodes share";
  }
  return check;
}

std::string on_hosts(const Check& check) {
  constexpr std::size_t kNamed = 3;
  if (check.hosts.empty()) return {};
  std::string names = base::joined(std::span(check.hosts).first(std::min(check.hosts.size(), kNamed)));
  if (check.hosts.size() > kNamed) names += fmt::format(" and {} more", check.hosts.size() - kNamed);
  return fmt::format(" (on {})", names);
}

void print_text(Output& output, const std::vector<Check>& checks, std::size_t dangers) {
  Table table({"check", "verdict", "finding"});
  for (const Check& check : checks) {
    if (output.is_quiet() && (check.level == Level::kGood || check.level == Level::kNote)) continue;
    table.add({check.name, name_of(check.level), one_line(check.finding + on_hosts(check))});
    if (!check.remedy.empty()) table.add({"", "", "-> " + one_line(check.remedy)});
  }
  if (table.rows() != 0) output.line(table.text());
  output.summary(dangers == 0 ? "nothing dangerous found"
                              : fmt::format("dangerous: {} of {} checks", dangers, checks.size()));
}

void print_document(Output& output, const std::vector<Check>& checks, std::size_t dangers) {
  base::Json document = json_document("doctor");
  document["dangerous"] = dangers != 0;
  document["checks"] = base::Json::array_of(checks, [](const Check& check) -> base::Json {
    return {{"name", check.name},
            {"verdict", name_of(check.level)},
            {"finding", check.finding},
            {"remedy", check.remedy},
            {"hosts", check.hosts}};
  });
  print_json(output, document);
}

/// Joins the checks of several hosts: equal findings appear once, and checks with the same name are consecutive.
std::vector<Check> join_checks(const std::vector<std::vector<Check>>& of_hosts) {
  std::vector<Check> joined;
  const auto is_same = [](const Check& a, const Check& b) {
    // The free rest changes between checks.
    constexpr std::string_view kChanging[] = {kFreeSpace, kFreeFiles, kNextSave};
    const bool is_changing = std::find(std::begin(kChanging), std::end(kChanging), a.name) != std::end(kChanging);
    return a.name == b.name && a.level == b.level && (a.finding == b.finding || is_changing);
  };
  for (const std::vector<Check>& checks : of_hosts) {
    for (const Check& check : checks) {
      const auto known = std::find_if(joined.begin(), joined.end(), [&](const Check& j) { return is_same(j, check); });
      if (known != joined.end()) {
        known->hosts.insert(known->hosts.end(), check.hosts.begin(), check.hosts.end());
      } else {
        joined.push_back(check);
      }
    }
  }
  // Checks with the same name are consecutive, in the order of the first host that made them.
  for (auto at = joined.begin(); at != joined.end(); ++at) {
    std::stable_partition(at, joined.end(), [&, name = at->name](const Check& check) { return check.name == name; });
    if (at->hosts.size() == of_hosts.size()) at->hosts.clear();
  }
  return joined;
}

}  // namespace

int run_doctor(Context& context, const DoctorOptions& options) {
  comm::Communicator& communicator = context.communicator;
  const bool looks = root::is_first_of_view(communicator);
  const bool are_several = communicator.sum(looks ? 1 : 0) > 1;
  base::Bytes mine;
  comm::agree(communicator, "doctor", [&] {
    if (looks) mine = pack(checks_of_node(options));
  });
  const std::vector<base::Bytes> packed = communicator.gather(mine, 0);
  std::optional<Check> seen;
  if (are_several && !options.path.empty()) seen = check_that_all_see(communicator, options.path);
  std::uint64_t dangers = 0;
  comm::agree_on_root(communicator, "doctor", 0, [&] {
    std::vector<std::vector<Check>> of_hosts;
    for (const base::Bytes& bytes : packed) {
      if (!bytes.empty()) of_hosts.push_back(unpack(bytes));
    }
    std::vector<Check> checks = {check_mpi_io(), check_mpi_io_of_others(options.user_mpi_io),
                                 check_launcher(communicator.size())};
    if (seen) checks.push_back(*seen);
    for (Check& check : join_checks(of_hosts)) checks.push_back(std::move(check));
    dangers = static_cast<std::uint64_t>(
        std::count_if(checks.begin(), checks.end(), [](const Check& check) { return check.level == Level::kDanger; }));
    if (options.json) {
      print_document(context.output, checks, dangers);
    } else {
      print_text(context.output, checks, dangers);
    }
  });
  return communicator.max(dangers) == 0 ? kExitGood : kExitFailed;
}

}  // namespace cairn::cli
