// Options that several subcommands have.
#include "base/units.hpp"
#include "command.hpp"

namespace cairn::app {
namespace {

// Sizes that were chosen in decimal units are shown in them.
std::string default_text(std::uint64_t bytes) {
  constexpr std::uint64_t kMegabyte = 1'000'000;
  if (bytes % (1000 * kMegabyte) == 0) return std::to_string(bytes / (1000 * kMegabyte)) + " GB";
  if (bytes % kMegabyte == 0) return std::to_string(bytes / kMegabyte) + " MB";
  return base::format_size(bytes);
}

}  // namespace

CLI::Option* add_size(CLI::App& command, const std::string& name, std::uint64_t& bytes, const std::string& help) {
  const auto parse = [&bytes, name](const std::string& text) {
    try {
      bytes = base::parse_size(text);
    } catch (const Error& error) {
      throw CLI::ValidationError(name, error.what());
    }
  };
  return command.add_option_function<std::string>(name, parse, help + " [" + default_text(bytes) + "]")
      ->type_name("SIZE");
}

CLI::Option* add_wish(CLI::App& command, const std::string& name, std::uint64_t& bytes, const std::string& help) {
  const auto parse = [&bytes, name](const std::string& text) {
    const std::string size = text.ends_with("/s") ? text.substr(0, text.size() - 2) : text;
    try {
      bytes = base::parse_size(size);
    } catch (const Error& error) {
      throw CLI::ValidationError(name, error.what());
    }
    if (bytes == 0) throw CLI::ValidationError(name, "is 0; give a size of at least one byte");
  };
  return command.add_option_function<std::string>(name, parse, help)->type_name("SIZE");
}

void add_engine(CLI::App& command, std::string& engine) {
  command.add_option("--engine", engine, "How bytes reach storage: auto, direct, mpiio, posix or hdf5 [auto]")
      ->check(CLI::IsMember({"auto", "direct", "mpiio", "posix", "hdf5"}))
      ->type_name("ENGINE");
}

void add_aggregators(CLI::App& command, std::uint64_t& per_node) {
  command.add_option("--aggregators", per_node, "Ranks per node that write and read [by the file system]")
      ->type_name("N");
}

void add_memory(CLI::App& command, std::uint64_t& bytes) {
  add_size(command, "--memory", bytes, "Memory per rank for moving data");
}

void add_paddle_reciprocals(CLI::App& command, bool& reciprocals) {
  command.add_flag("--paddle-reciprocals", reciprocals,
                   "Decode PaddlePaddle's O1 and O2 as paddlepaddle 2.6 to 3.2 did (differs in the last bit)");
}

}  // namespace cairn::app
