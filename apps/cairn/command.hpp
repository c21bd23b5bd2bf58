// The subcommands of `cairn`: their options, with the function that runs each of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "os/limits.hpp"

namespace cairn {
enum class ReadBack;  // cairn/checkpoint.hpp
struct FileOptions;
}  // namespace cairn

namespace cairn::app {

inline constexpr const char* kDescription = "Parallel checkpoints of large training jobs, in plain safetensors files";

/// Facts from the start of the program that some commands show.
struct Start {
  std::string command_line;                ///< as typed
  std::optional<std::string> user_mpi_io;  ///< OMPI_MCA_io as the user set it
  os::OpenFileLimit user_open_files;       ///< the limit when this program was started
};

/// Adds --version, the end of --help and every subcommand.
void set_up(CommandLine& command_line, const Start& start);

/// Adds every subcommand.
void add_commands(Subcommand program, const Start& start);

void add_demo(Subcommand program);
/// Adds `cairn help`, which offers the names of the commands that were added before.
void add_help(Subcommand program);
void add_bench(Subcommand program, const std::string& command_line);
void add_advise(Subcommand program);
void add_report(Subcommand program);
void add_prune(Subcommand program);
/// `cairn pin`, or `cairn unpin`.
void add_pin(Subcommand program, bool is_to_unpin);
void add_repair(Subcommand program);

/// Adds an option that accepts a size ("4096", "5GB", "4MiB") and stores it in bytes; the help shows the default.
CommandOption add_size(Subcommand command, const std::string& name, std::uint64_t& bytes, const std::string& help);

/// Adds --engine and --hint.
void add_engine(Subcommand command, std::string& engine, std::vector<std::string>& hints);
/// Adds --engine to a command that has no --hint.
void add_engine(Subcommand command, std::string& engine);
void add_aggregators(Subcommand command, std::uint64_t& per_node);
/// Adds --align.
void add_alignment(Subcommand command, std::uint64_t& bytes);
void add_memory(Subcommand command, std::uint64_t& bytes);
/// Adds --read-back.
void add_read_back(Subcommand command, ReadBack& read_back);
/// Adds --mode and --group.
void add_access(Subcommand command, FileOptions& files);
/// Adds --follow-links.
void add_follow_links(Subcommand command, bool& follow);
/// Adds --quiet. `left`: what is printed all the same, like "faults".
void add_quiet(Subcommand command, const std::string& left = {});
/// Adds --paddle-reciprocals.
void add_reciprocals(Subcommand command, bool& reciprocals);

}  // namespace cairn::app
