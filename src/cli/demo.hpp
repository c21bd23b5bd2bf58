// `cairn demo`: saves the training state of a real model and loads it in another layout, checking every byte.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cairn/options.hpp"
#include "cli/output.hpp"

namespace cairn::cli {

struct DemoOptions {
  std::filesystem::path directory;  ///< root of checkpoints
  std::string model;   ///< a name, or @config.json; empty: smollm2-135m to save, the checkpoint's model to load
  std::string layout;  ///< empty: tp=2,pp=2 on four ranks, otherwise fsdp=N
  std::optional<std::uint64_t> layers;  ///< number of layers; by default the model's
  std::uint64_t step = 100;             ///< save only
  Selection select;                     ///< save only: the tensors to save; empty: all
  std::string base;                     ///< save only: a step, or the path of the checkpoint that has the others
  std::vector<std::string> frozen;      ///< save only: patterns of sections
  std::string reuse;                    ///< save only: "reflink", "hard-link", or empty
  std::vector<std::string> hints;       ///< key=value
  bool json = false;
  Options checkpointer;
};

/// Collective. Each rank makes the boxes that the layout gives it; all boxes are saved as one checkpoint.
int run_demo_save(Context& context, const DemoOptions& options);

/// Collective. Loads the newest whole checkpoint, as load_latest() does, resharded to the layout, and compares every
/// byte with the saved state.
/// Returns kExitFailed after naming the first element that differs.
int run_demo_load(Context& context, const DemoOptions& options);

}  // namespace cairn::cli
