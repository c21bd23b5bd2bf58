// Description of the machine that gave a result, so that results can be compared.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"

namespace cairn::bench {

struct Host {
  std::string name;
  int ranks = 0;
  std::uint64_t cores = 0;  ///< processors online
  std::uint64_t memory_bytes = 0;
  std::uint64_t free_memory_bytes = 0;  ///< available at the start
};

struct Mount {
  std::string type;     ///< the kernel's name for the file system, such as "ext4"
  std::string point;    ///< mount point
  std::string source;   ///< device or server
  std::string options;  ///< options of the mount and of the file system
};

struct Machine {
  std::vector<Host> hosts;  ///< in the order of their first rank
  std::string processor;    ///< model name on rank 0's host
  std::string kernel;       ///< name, release and architecture on rank 0's host
  std::string mpi_library;
  std::string tool;      ///< "cairn 0.1.0"
  std::string revision;  ///< source_revision()
  std::string compiler;
  std::string date;  ///< UTC, ISO 8601
  std::string job;   ///< "Slurm job 1234", or that of another batch system; empty outside a job
  Mount mount;       ///< mount of the measured directory

  std::vector<std::size_t> host_of_rank;  ///< index into hosts

  [[nodiscard]] std::uint64_t memory_bytes() const;
  /// Whether the rank is the lowest on its host.
  [[nodiscard]] bool is_host_leader(int rank) const;
};

/// The git revision of the sources, with "-dirty" if they were changed; "unknown" outside a git repository.
std::string source_revision();

/// Collective. The directory must exist.
Machine describe_machine(comm::Communicator& communicator, const std::filesystem::path& directory);

/// Collective: only the hosts.
Machine describe_hosts(comm::Communicator& communicator);

/// Collective. Throws Error(kUsage), which says how much and on which host, if the ranks of a host need more memory
/// together than it had available when `machine` was described. Call early: the kernel's out-of-memory killer ends a
/// program without a message. `needed_bytes`: of this rank. `what` needs the memory; `remedy` completes the message.
void check_memory(comm::Communicator& communicator, const Machine& machine, std::uint64_t needed_bytes,
                  const std::string& what, const std::string& remedy);

/// The mount of the absolute path, according to the content of /proc/self/mountinfo. Pure.
Mount mount_of(const std::string& mountinfo, const std::filesystem::path& path);

// The busy share of a host's processors. It counts everything that ran, because the kernel's work for storage, and
// other guests on a virtual machine's host, are not attributed to any process.

/// Processor time since the start of the system, in ticks; both members are 0 if unknown.
struct ProcessorTicks {
  double busy = 0;  ///< user, system, interrupts, and time taken by a virtual machine's host (steal)
  double all = 0;
};

/// Rank-local: the ticks of this host, from /proc/stat.
ProcessorTicks processor_ticks();
/// The ticks in the first line of /proc/stat.
ProcessorTicks parse_processor_ticks(std::string_view line);

/// The busy share from 0 to 1; 0 if no time has passed.
double busy_share(const ProcessorTicks& begin, const ProcessorTicks& end);

}  // namespace cairn::bench
