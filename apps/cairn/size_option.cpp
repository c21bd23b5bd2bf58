// Options that several subcommands have.
#include "base/text.hpp"
#include "cairn/checkpoint.hpp"
#include "cairn/error.hpp"
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

CommandOption add_size(Subcommand command, const std::string& name, std::uint64_t& bytes, const std::string& help) {
  const auto take = [&bytes](const std::string& text) { bytes = base::parse_size(text); };
  return command.option(name, take, help + " [" + default_text(bytes) + "]").type_name("SIZE");
}

CommandOption add_wish(Subcommand command, const std::string& name, std::uint64_t& bytes, const std::string& help) {
  const auto take = [&bytes](const std::string& text) {
    bytes = base::parse_size(text.ends_with("/s") ? text.substr(0, text.size() - 2) : text);
    if (bytes == 0) throw Error(ErrorKind::kUsage, "is 0; give a size of at least one byte");
  };
  return command.option(name, take, help).type_name("SIZE");
}

void add_engine(Subcommand command, std::string& engine) {
  command.option("--engine", &engine, "How bytes reach storage: auto, direct, mpiio or posix [auto]")
      .one_of({"auto", "direct", "mpiio", "posix"})
      .type_name("ENGINE");
}

void add_aggregators(Subcommand command, std::uint64_t& per_node) {
  command.option("--aggregators", &per_node, "Ranks per node that write and read [by the file system]").type_name("N");
}

void add_memory(Subcommand command, std::uint64_t& bytes) {
  add_size(command, "--memory", bytes, "Memory per rank for moving data");
}

void add_read_back(Subcommand command, ReadBack& read_back) {
  const auto take = [&read_back](const std::string& text) {
    read_back = text == "all" ? ReadBack::kAll : text == "sample" ? ReadBack::kSample : ReadBack::kOff;
  };
  command
      .option(
          "--read-back", take,
          "Read what was written past the page cache before it counts: off, sample (a 16th of the blocks) or all [off]")
      .one_of({"off", "sample", "all"})
      .type_name("HOW");
}

void add_follow_links(Subcommand command, bool& follow) {
  command.flag(
      "--follow-links", follow,
      "Read through symbolic links that lead out of the checkpoint (those of a Hugging Face cache need no flag)");
}

void add_paddle_reciprocals(Subcommand command, bool& reciprocals) {
  command.flag("--paddle-reciprocals", reciprocals,
               "Decode PaddlePaddle's O1 and O2 as paddlepaddle 2.6 to 3.2 did (differs in the last bit)");
}

}  // namespace cairn::app
