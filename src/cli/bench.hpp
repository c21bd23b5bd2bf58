// `cairn bench`: measures saves and loads of a made-up training state against the raw speed of the machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bench/raw_file.hpp"
#include "cairn/options.hpp"
#include "cli/output.hpp"

namespace cairn::cli {

struct BenchOptions {
  std::filesystem::path directory;  ///< on the file system to be measured; the run makes its own directory there

  // The state to save: one of model, size, sweep and mlperf; a model may have a sweep, and mlperf a size.
  std::string model;  ///< a name, or @config.json; by default smollm2-135m
  std::optional<std::uint64_t> layers;
  std::optional<std::uint64_t> size_bytes;
  std::vector<std::uint64_t> sweep_bytes;
  std::string mlperf;
  std::string sections = "all";

  std::optional<int> save_ranks;  ///< all by default
  std::string layout;             ///< layout of the save
  std::vector<int> load_ranks;
  std::vector<std::string> load_layouts;  ///< if this and load_ranks are empty: one load in the save's layout
  bool no_load = false;

  bool async = false;         ///< measure asynchronous saves instead
  std::string program_cores;  ///< processors of the program that saves

  std::uint64_t repeats = 5;
  std::uint64_t warm_up = 1;
  bool reuse_plan = false;
  bool drop_caches = false;
  bool scattered_memory = false;
  bool keep = false;
  bench::RawOptions raw;
  std::vector<std::string> hints;
  Options checkpointer;

  bool json = false;
  std::filesystem::path record_file;
  std::filesystem::path csv_file;
  std::filesystem::path html_file;
  std::string command_line;  ///< the command line as typed, for the record
};

/// Collective. Throws Error(kIntegrity), without printing any figures, if a byte differs after reading.
int run_bench(Context& context, const BenchOptions& options);

}  // namespace cairn::cli
