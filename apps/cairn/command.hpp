// The subcommands of `cairn`: each adds itself to the command line, with the function that runs it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "command_line.hpp"

namespace cairn {
enum class ReadBack;  // cairn/checkpoint.hpp
struct FileOptions;
namespace os {
struct OpenFileLimit;
}
}  // namespace cairn

namespace cairn::app {

void add_inspect(Subcommand program);
void add_verify(Subcommand program);
void add_convert(Subcommand program);
void add_diff(Subcommand program);
void add_list(Subcommand program);
void add_demo(Subcommand program);
/// `command_line`: as typed, for the record of the run.
void add_bench(Subcommand program, const std::string& command_line);
void add_plan(Subcommand program);
/// `user_mpi_io`: OMPI_MCA_io as the user set it; `open_files`: the limit when this program was started.
void add_doctor(Subcommand program, const std::optional<std::string>& user_mpi_io, const os::OpenFileLimit& open_files);

/// Adds an option that accepts a size ("4096", "5GB", "4MiB") and stores it in bytes.
CommandOption add_size(Subcommand command, const std::string& name, std::uint64_t& bytes, const std::string& help);

/// As add_size(), for a size that is 0 unless given and cannot be given as 0; also accepts a rate ("100GiB/s").
CommandOption add_wish(Subcommand command, const std::string& name, std::uint64_t& bytes, const std::string& help);

/// Adds --engine.
void add_engine(Subcommand command, std::string& engine);
void add_aggregators(Subcommand command, std::uint64_t& per_node);
void add_memory(Subcommand command, std::uint64_t& bytes);
/// Adds --read-back.
void add_read_back(Subcommand command, ReadBack& read_back);
/// Adds --mode and --group.
void add_access(Subcommand command, FileOptions& files);
/// Adds --follow-links.
void add_follow_links(Subcommand command, bool& follow);
/// Adds --paddle-reciprocals.
void add_reciprocals(Subcommand command, bool& reciprocals);

}  // namespace cairn::app
