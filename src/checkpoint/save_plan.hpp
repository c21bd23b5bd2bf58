// The plan of a save: everything between the ranks' descriptions and the first byte. Kept for the next save.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "cairn/checkpoint.hpp"
#include "checkpoint/engine_choice.hpp"
#include "checkpoint/non_finite.hpp"
#include "comm/communicator.hpp"
#include "interop/form.hpp"
#include "io/bypass_runs.hpp"
#include "io/device_copies.hpp"
#include "io/exchange.hpp"
#include "io/window_pool.hpp"
#include "plan/catalog.hpp"
#include "plan/coverage.hpp"
#include "plan/extents.hpp"
#include "plan/file_layout.hpp"
#include "plan/pieces.hpp"
#include "plan/samples.hpp"
#include "planning/catalog_steps.hpp"

namespace cairn::checkpoint {

struct SavePlan {
  base::Bytes description;  ///< what it was made of, for the comparison with the next save; filled by the caller
  plan::FileLayout layout;  ///< with the headers that this rank writes, and on rank 0 with the indexes; no tensors
  std::optional<io::BypassWay> bypass_way;  ///< none: there are no such runs
  io::BypassRuns bypass;                    ///< of this rank; in no extent
  std::unique_ptr<plan::ExtentMap> extents;
  std::uint64_t buffer_bytes = 0;            ///< of a window of this rank
  std::weak_ptr<io::WindowPool> buffers;     ///< those that `exchange` uses: the store may need larger ones meanwhile
  std::unique_ptr<io::DeviceCopies> device;  ///< for boxes in device memory; null: this rank has none
  std::optional<io::Exchange> exchange;      ///< refers to buffers and device
  std::uint64_t tensors = 0;
  std::uint64_t tensor_bytes = 0;                        ///< of all tensors
  std::vector<plan::Replica> replicas;                   ///< of this rank's boxes
  bool has_replicas = false;                             ///< some rank has, moments that are coded included
  std::optional<plan::SampleRule> sample_rule;           ///< of them, from the first comparison on
  std::vector<std::string> changing_sections;            ///< that have tensors which Options::frozen does not select
  std::vector<std::string> idle;                         ///< what to say of Options::frozen that select no tensor
  std::vector<FloatsInFile> floats;                      ///< that this rank writes bytes of, for Checks::non_finite
  plan::PackedCatalog catalog;                           ///< on rank 0, for their names
  std::unique_ptr<const interop::CheckedState> checked;  ///< by the form that is written; null: of the ranks' blobs
};

struct SavePlanOptions {
  const Options& options;
  const EngineChoice& choice;
  io::WindowStore& store;
  std::optional<io::BypassWay> bypass_way;
  const io::WindowPool* beside = nullptr;  ///< of a plan that is kept meanwhile: to do with its windows where they can
  std::uint64_t largest_message_bytes = io::ExchangeOptions().largest_message_bytes;
};

/// Collective. Catalog, file layout, extents, coverage check and transfers. Throws kState for holes, overlaps and
/// contradictions, kUsage for options that cannot work, and for what Options::files.form refuses.
std::unique_ptr<SavePlan> make_save_plan(comm::Communicator& communicator, const planning::DescribedState& state,
                                         std::span<const plan::MemoryBox> boxes, const SavePlanOptions& how);

/// Collective. Of the ranks' blobs, `sizes[r]` being the size of rank r's: the plan that make_save_plan() makes of them
/// as tensors, without asking who has what. `boxes`: this rank's, whose MemoryBox::tensor is the rank; or none.
std::unique_ptr<SavePlan> make_blob_plan(comm::Communicator& communicator, std::span<const std::uint64_t> sizes,
                                         std::span<const plan::MemoryBox> boxes, const SavePlanOptions& how);

}  // namespace cairn::checkpoint
