// The plan of a save: everything between the ranks' descriptions and the first byte; kept for the next save.
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
  base::Bytes description;  ///< of the state, to compare with the next save; filled in by the caller
  plan::FileLayout layout;  ///< with the headers that this rank writes, on rank 0 with the indexes; without tensors
  std::optional<io::BypassWay> bypass_way;  ///< empty: no bypass runs
  io::BypassRuns bypass;                    ///< of this rank; in no extent
  std::unique_ptr<plan::ExtentMap> extents;
  std::uint64_t buffer_bytes = 0;            ///< of a window of this rank
  std::weak_ptr<io::WindowPool> buffers;     ///< of `exchange`; the store may have larger ones by now
  std::unique_ptr<io::DeviceCopies> device;  ///< null: this rank has no boxes in device memory
  std::optional<io::Exchange> exchange;      ///< refers to buffers and device
  std::uint64_t tensors = 0;
  std::uint64_t tensor_bytes = 0;                        ///< of all tensors
  std::vector<plan::Replica> replicas;                   ///< of this rank's boxes
  bool has_replicas = false;                             ///< on any rank, moments that are coded included
  std::optional<plan::SampleRule> sample_rule;           ///< of the replicas, from the first comparison on
  std::vector<std::string> changing_sections;            ///< with tensors that Options::frozen does not select
  std::vector<std::string> idle;                         ///< warnings about Options::frozen that select no tensor
  std::vector<FloatsInFile> floats;                      ///< in files that this rank writes to, for Checks::non_finite
  plan::PackedCatalog catalog;                           ///< on rank 0, for the names of these
  std::unique_ptr<const interop::CheckedState> checked;  ///< by the form that is written; null for the ranks' blobs
};

struct SavePlanOptions {
  const Options& options;
  const EngineChoice& choice;
  io::WindowStore& store;
  std::optional<io::BypassWay> bypass_way;
  const io::WindowPool* beside = nullptr;  ///< windows of a plan that stays alive; reused where they are large enough
  std::uint64_t largest_message_bytes = io::ExchangeOptions().largest_message_bytes;
};

/// Collective: catalog, file layout, extents, coverage check and transfers. Throws kState for holes, overlaps and
/// contradictions, kUsage for impossible options and for a state that Options::files.form refuses.
std::unique_ptr<SavePlan> make_save_plan(comm::Communicator& communicator, const planning::DescribedState& state,
                                         std::span<const plan::MemoryBox> boxes, const SavePlanOptions& how);

/// Collective: the plan of the ranks' blobs, with the size of rank r's blob in `sizes[r]`. As make_save_plan() for
/// tensors, but without an exchange of claims. `boxes`: this rank's blob, whose MemoryBox::tensor is the rank, or none.
std::unique_ptr<SavePlan> make_blob_plan(comm::Communicator& communicator, std::span<const std::uint64_t> sizes,
                                         std::span<const plan::MemoryBox> boxes, const SavePlanOptions& how);

}  // namespace cairn::checkpoint
