#include "bench/machine.hpp"

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <numeric>
#include <sstream>
#include <utility>

#include "base/bytes.hpp"
#include "base/text.hpp"
#include "base/version.hpp"
#include "bench/git_revision.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "comm/mpi.hpp"
#include "os/limits.hpp"
#include "os/process.hpp"

namespace cairn::bench {
namespace {

constexpr double kFreeShare = 0.95;  // share of a host's available memory that a run may use

// Content of a file in /proc, whose size is unknown before reading; empty if the file cannot be read.
std::string proc_text(const char* path) {
  const std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string processor_name() {
  std::ifstream lines("/proc/cpuinfo");
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos && line.starts_with("model name")) return line.substr(colon + 2);
  }
  return "unknown";
}

// mountinfo writes special characters of paths in octal: \040 for a space.
std::string unescape(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\\' && at + 3 < text.size()) {
      out.push_back(static_cast<char>(std::stoi(text.substr(at + 1, 3), nullptr, 8)));
      at += 3;
    } else {
      out.push_back(text[at]);
    }
  }
  return out;
}

bool holds(const std::filesystem::path& point, const std::filesystem::path& path) {
  const auto [rest, ignored] = std::mismatch(point.begin(), point.end(), path.begin(), path.end());
  return rest == point.end() || (std::next(rest) == point.end() && rest->empty());
}

// Collects the hosts from all ranks; element r of the result is the host of rank r.
std::vector<std::size_t> gather_hosts(comm::Communicator& communicator, std::vector<Host>& hosts) {
  base::ByteWriter mine;
  const std::string name = os::host_name();
  mine.text(name.empty() ? "unknown" : name);
  mine.u64(static_cast<std::uint64_t>(std::max(::sysconf(_SC_NPROCESSORS_ONLN), 1L)));
  mine.u64(os::proc_bytes("/proc/meminfo", "MemTotal:"));
  mine.u64(os::proc_bytes("/proc/meminfo", "MemAvailable:"));
  std::vector<std::size_t> host_of_rank;
  for (const base::Bytes& bytes : communicator.all_gather(mine.bytes())) {
    base::ByteReader reader(bytes);
    Host host;
    host.name = reader.text();
    host.cores = reader.u64();
    host.memory_bytes = reader.u64();
    host.free_memory_bytes = reader.u64();
    auto known = std::find_if(hosts.begin(), hosts.end(), [&](const Host& h) { return h.name == host.name; });
    if (known == hosts.end()) known = hosts.insert(hosts.end(), host);
    ++known->ranks;
    host_of_rank.push_back(static_cast<std::size_t>(known - hosts.begin()));
  }
  return host_of_rank;
}

std::string job_of_environment() {
  constexpr std::array<std::pair<const char*, const char*>, 4> kSystems = {
      {{"SLURM_JOB_ID", "Slurm"}, {"PBS_JOBID", "PBS"}, {"LSB_JOBID", "LSF"}, {"FLUX_JOB_ID", "Flux"}}};
  for (const auto& [variable, system] : kSystems) {
    const char* const job = std::getenv(variable);
    if (job != nullptr && *job != '\0') return fmt::format("{} job {}", system, job);
  }
  return {};
}

}  // namespace

std::uint64_t Machine::memory_bytes() const {
  return std::accumulate(hosts.begin(), hosts.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Host& host) { return sum + host.memory_bytes; });
}

bool Machine::is_host_leader(int rank) const {
  const auto me = host_of_rank.begin() + rank;
  return std::find(host_of_rank.begin(), me, *me) == me;
}

Mount mount_of(const std::string& mountinfo, const std::filesystem::path& path) {
  Mount best{"unknown", "", "", ""};
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string id, parent, device, root, point, options, word;
    words >> id >> parent >> device >> root >> point >> options;
    while (words >> word && word != "-") {
    }
    Mount mount;
    std::string super_options;
    if (!(words >> mount.type >> mount.source >> super_options)) continue;
    mount.point = unescape(point);
    mount.source = unescape(mount.source);
    mount.options = options + "," + super_options;
    // A later mount hides an earlier one at the same point.
    if (holds(mount.point, path) && mount.point.size() >= best.point.size()) best = std::move(mount);
  }
  return best;
}

std::string source_revision() { return kGitRevision; }

Machine describe_machine(comm::Communicator& communicator, const std::filesystem::path& directory) {
  Machine machine = describe_hosts(communicator);
  machine.processor = processor_name();
  utsname system{};
  ::uname(&system);
  machine.kernel = fmt::format("{} {} {}", system.sysname, system.release, system.machine);
  machine.mpi_library = comm::mpi_library().c_str();  // cut at the NUL that Open MPI includes in the string
  machine.tool = base::tool_version();
  machine.revision = source_revision();
  machine.compiler = __VERSION__;
  machine.job = job_of_environment();
  machine.date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  comm::agree(communicator, "look up the file system", [&] {
    machine.mount = mount_of(proc_text("/proc/self/mountinfo"), std::filesystem::canonical(directory));
  });
  return machine;
}

Machine describe_hosts(comm::Communicator& communicator) {
  Machine machine;
  machine.host_of_rank = gather_hosts(communicator, machine.hosts);
  return machine;
}

void check_memory(comm::Communicator& communicator, const Machine& machine, std::uint64_t needed_bytes,
                  const std::string& what, const std::string& remedy) {
  std::vector<std::uint64_t> of_host(machine.hosts.size(), 0);
  of_host[machine.host_of_rank[static_cast<std::size_t>(communicator.rank())]] = needed_bytes;
  communicator.all_reduce(of_host, comm::ReduceOp::kSum);
  for (std::size_t h = 0; h < of_host.size(); ++h) {
    const Host& host = machine.hosts[h];
    if (host.free_memory_bytes == 0) continue;  // unknown
    if (static_cast<double>(of_host[h]) <= kFreeShare * static_cast<double>(host.free_memory_bytes)) continue;
    throw Error(ErrorKind::kUsage, fmt::format("{} needs {} of memory on host {}, which has {} available; {}", what,
                                               base::format_size(of_host[h]), base::printable(host.name),
                                               base::format_size(host.free_memory_bytes), remedy));
  }
}

ProcessorTicks parse_processor_ticks(std::string_view line) {
  std::istringstream in{std::string(line)};
  std::string name;
  in >> name;
  if (name != "cpu") return {};
  // user nice system idle iowait irq softirq steal; user already includes guests (proc(5)).
  std::array<double, 8> ticks{};
  for (double& value : ticks) in >> value;
  ProcessorTicks out;
  for (const double value : ticks) out.all += value;
  out.busy = out.all - ticks[3] - ticks[4];
  return out;
}

ProcessorTicks processor_ticks() {
  std::ifstream in("/proc/stat");
  std::string line;
  std::getline(in, line);
  return parse_processor_ticks(line);
}

double busy_share(const ProcessorTicks& begin, const ProcessorTicks& end) {
  return end.all > begin.all ? (end.busy - begin.busy) / (end.all - begin.all) : 0;
}

}  // namespace cairn::bench
