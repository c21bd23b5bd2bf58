#include "checkpoint/save.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/units.hpp"
#include "cairn/error.hpp"
#include "checkpoint/data_writer.hpp"
#include "checkpoint/read_back.hpp"
#include "checkpoint/reports.hpp"
#include "checkpoint/save_plan.hpp"
#include "checkpoint/watched_call.hpp"
#include "codes/device_memory.hpp"
#include "codes/state_coder.hpp"
#include "comm/agree.hpp"
#include "directory/commit.hpp"
#include "directory/lease.hpp"
#include "directory/root.hpp"
#include "format/hf_index.hpp"
#include "format/rebuilt.hpp"
#include "interop/file_names.hpp"
#include "os/file.hpp"

namespace cairn::checkpoint {
namespace {

namespace fs = std::filesystem;

/// A carried file is held whole.
constexpr std::uint64_t kMaxCarriedBytes = 1ULL << 30;

bool is_reserved(const std::string& name, const plan::FileLayout& layout) {
  if (name == kManifestFile || name == kBlocksFile || name.ends_with(".safetensors")) return true;
  return layout.index_files.contains(name) || interop::set_of_index(name).has_value();
}

/// Rank 0's files to carry, checked and read before anything is written; indexes of the layout are among them.
std::map<std::string, base::ByteStream> carried_content(const Extras& extras, const plan::FileLayout& layout) {
  std::map<std::string, base::ByteStream> carried;
  const auto put = [&](const std::string& name, base::Bytes bytes) {
    format::check_relative_path(name, "a file to carry along");
    if (name.find('/') != std::string::npos || is_reserved(name, layout)) {
      throw Error(
          ErrorKind::kUsage,
          fmt::format("'{}' cannot be carried along: the name is Cairn's own or has a folder", base::printable(name)));
    }
    if (!carried.emplace(name, std::move(bytes)).second) {
      throw Error(ErrorKind::kUsage, fmt::format("'{}' is given twice to be carried along", base::printable(name)));
    }
  };
  for (const fs::path& path : extras.carry_files) {
    const std::string text = os::read_text(path, kMaxCarriedBytes);
    const auto bytes = base::as_bytes(text);
    put(path.filename().string(), {bytes.begin(), bytes.end()});
  }
  for (const auto& [name, text] : extras.carry_texts) {
    const auto bytes = base::as_bytes(text);
    put(name, {bytes.begin(), bytes.end()});
  }
  for (const auto& [name, text] : layout.index_files) {
    const auto bytes = base::as_bytes(text);
    carried.emplace(name, base::Bytes(bytes.begin(), bytes.end()));
  }
  return carried;
}

/// The state with this rank's blob as one more tensor.
std::vector<Source> with_blob(std::span<const Source> state, std::span<const std::byte> bytes, int rank) {
  std::vector<Source> all(state.begin(), state.end());
  Source blob;
  blob.section = kRankSection;
  blob.name = rank_blob_name(rank);
  blob.dtype = DType::kU8;
  blob.shape = {bytes.size()};
  blob.boxes = {{{0}, {bytes.size()}}};
  blob.data = bytes.data();
  all.push_back(std::move(blob));
  return all;
}

/// A step that is damaged, or void to this life, is no longer worth keeping.
void set_life(RootLife& life, CommitTarget& target, format::Manifest& manifest) {
  manifest.epoch = life.lease->epoch();
  manifest.counter = ++life.saves;  // of a save that fails, too: it only grows
  manifest.lineage = life.lineage;
  if (!life.lineage.empty()) manifest.parent = fmt::format("checkpoint-{}", life.lineage.back().step);
  target.may_replace = [descent = Descent{manifest.epoch, manifest.lineage},
                        step = manifest.step](const fs::path& existing) {
    const auto generation = generation_of(existing);
    return !generation || why_void(descent, step, generation->epoch).has_value();
  };
}

}  // namespace

struct Saver::WriteContent {
  CommitTarget target;
  CommitContent commit;
  io::EngineOptions engine;
};

Saver::Saver(comm::Communicator& communicator, Options options, io::WindowStore& store)
    : communicator_(communicator), options_(std::move(options)), store_(store) {
  if (StateCoder::is_needed(options_.quantisation)) coder_ = std::make_unique<StateCoder>();
}

Saver::~Saver() = default;

Report Saver::save(const fs::path& directory, std::uint64_t step, std::span<const Source> state, const Extras& extras,
                   RootLife* root) {
  Lease* const lease = root == nullptr ? nullptr : root->lease;
  if (root != nullptr) hold_root(communicator_, lease);
  PhaseClock clock;
  const WatchedCall watched(communicator_, clock);
  clock.begin("plan");
  std::vector<Source> more;
  const bool has_blobs = communicator_.max(extras.rank_blob.size()) != 0;
  base::Bytes description;
  std::uint64_t changed = 0;
  comm::agree(communicator_, "describe the state", [&] {
    if (has_blobs) {
      more = with_blob(state, extras.rank_blob, communicator_.rank());
      state = more;
    }
    check_shards(state);
    description = describe(state, options_);
    changed = plan_ && plan_->description == description ? 0 : 1;
  });
  if (!choice_) {
    const EngineWish wish{options_.engine, options_.aggregators_per_node};
    choice_ = choose_engine(communicator_, wish, directory);
  }
  Report report;
  report.plan_reused = communicator_.max(changed) == 0;
  if (!report.plan_reused) plan_.reset();
  CodedState coded;
  DescribedState saved{state, {}};
  if (coder_) {
    clock.begin("encode");
    coded = coder_->code(communicator_, state, options_.quantisation, report.plan_reused);
    add_coding_report(std::move(coded.errors), report);
    saved = {coded.sources, coded.codings};
    clock.begin("plan");
  }
  DeviceMemory device;
  std::vector<LocalBox> boxes;
  std::vector<std::span<const std::byte>> memory;
  comm::agree(communicator_, "bring the state to the host", [&] {
    boxes = local_boxes(saved.sources);
    device.bring(boxes);
    for (const LocalBox& box : boxes) memory.emplace_back(box.data, box.bytes);
  });
  if (!plan_) {
    plan_ = make_save_plan(communicator_, saved, boxes, {options_, *choice_, store_});
    plan_->description = std::move(description);
  }
  WriteContent content;
  comm::agree(communicator_, "describe the checkpoint", [&] {
    content.target = {directory, options_.overwrite, root != nullptr, options_.read_back, lease, {}};
    content.commit = content_of(step, extras);
    if (lease != nullptr) set_life(*root, content.target, content.commit.manifest);
    content.engine.hints = options_.hints;
  });
  std::string warning = write(std::move(content), memory, clock);
  clock.stop();
  comm::agree(communicator_, "report", [&] {
    if (!warning.empty()) report.warnings.push_back(std::move(warning));
    if (lease != nullptr) {
      for (std::string& text : lease->take_warnings()) report.warnings.push_back(std::move(text));
    }
    report.directory = directory;
    report.engine = choice_->name;
    report.engine_reason = choice_->reason;
    report.engine_hints = choice_->hints;
    report.bytes = plan_->tensor_bytes;
    report.tensors = plan_->tensors;
    report.files = plan_->layout.files.size();
  });
  add_times(communicator_, clock, clock, report);
  return report;
}

CommitContent Saver::content_of(std::uint64_t step, const Extras& extras) const {
  CommitContent content = make_content(plan_->layout);
  if (communicator_.rank() == 0) content.carried = carried_content(extras, plan_->layout);
  format::Manifest& manifest = content.manifest;
  manifest.has_step = true;
  manifest.step = step;
  manifest.run_id = options_.run_id;
  manifest.layout = extras.layout;
  manifest.ranks = static_cast<std::uint64_t>(communicator_.size());
  manifest.user_metadata = extras.metadata;
  if (coder_) {
    manifest.quantisation = coder_->quantisation();
    if (!coder_->rebuilt().empty()) manifest.extra[format::kRebuiltKey] = coder_->rebuilt();
  }
  manifest.extra[kEngineKey] = choice_->name;
  manifest.extra[kHintsKey] = options_.hints;
  return content;
}

std::string Saver::write(WriteContent given, std::span<const std::span<const std::byte>> memory, PhaseClock& clock) {
  clock.begin("commit");
  CommitContent& content = given.commit;
  Commit commit = begin_commit(communicator_, std::move(given.target));
  std::unique_ptr<io::Engine> engine;
  std::string warning;
  try {
    engine = io::make_engine_on_all(choice_->name, communicator_, std::move(given.engine));
    const WriteJob job{plan_->layout,   *plan_->extents,           plan_->exchange->windows(),
                       *plan_->buffers, plan_->exchange->rounds(), choice_->straight ? &plan_->straight : nullptr,
                       memory};
    content.blocks = write_data(
        communicator_, *engine, commit.partial, job,
        [&](std::uint64_t round, io::WindowBuffer) { return plan_->exchange->gather(round, memory); }, clock);
    comm::agree(communicator_, "note hints", [&] { choice_->hints = engine->hints(); });
    warning = read_back_data(communicator_, commit.partial, content.blocks,
                             {options_.read_back, content.manifest.step, plan_->buffers->idle_memory()}, clock);
    clock.begin("commit");
    finish_commit(communicator_, commit, std::move(content));
  } catch (const comm::AgreedError& error) {
    io::close_after_error(engine.get());
    if (communicator_.rank() == 0) abandon(commit);
    name_new_holder(communicator_, commit, error);
    throw;
  } catch (...) {
    if (communicator_.rank() == 0) abandon(commit);
    throw;
  }
  return warning;
}

}  // namespace cairn::checkpoint
