// The subcommands of `cairn`: each adds itself to the parser and says what is to run when it is chosen.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "cairn/checkpoint.hpp"
#include "cli/output.hpp"

namespace cairn::app {

/// Collective: does the work and gives the exit code.
using Command = std::function<int(cli::Context&)>;

void add_inspect(CLI::App& app, Command& chosen);
void add_verify(CLI::App& app, Command& chosen);
void add_convert(CLI::App& app, Command& chosen);
void add_diff(CLI::App& app, Command& chosen);
void add_list(CLI::App& app, Command& chosen);
void add_demo(CLI::App& app, Command& chosen);
/// `command_line`: what was typed, for the record of the run.
void add_bench(CLI::App& app, Command& chosen, const std::string& command_line);
void add_plan(CLI::App& app, Command& chosen);
/// `user_mpi_io`: OMPI_MCA_io as the user set it.
void add_doctor(CLI::App& app, Command& chosen, const std::optional<std::string>& user_mpi_io);

/// Adds an option that takes a size ("4096", "5GB", "4MiB") and stores bytes.
CLI::Option* add_size(CLI::App& command, const std::string& name, std::uint64_t& bytes, const std::string& help);

/// The same for a size that is 0 unless it is given, and must not be 0 then; a rate ("100GiB/s") is taken too.
CLI::Option* add_wish(CLI::App& command, const std::string& name, std::uint64_t& bytes, const std::string& help);

/// Adds --engine, and --memory.
void add_engine(CLI::App& command, std::string& engine);
void add_aggregators(CLI::App& command, std::uint64_t& per_node);
void add_memory(CLI::App& command, std::uint64_t& bytes);
/// Adds --paddle-reciprocals.
void add_paddle_reciprocals(CLI::App& command, bool& reciprocals);

}  // namespace cairn::app
