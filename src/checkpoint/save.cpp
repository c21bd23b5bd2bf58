#include "checkpoint/save.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/units.hpp"
#include "cairn/error.hpp"
#include "checkpoint/call.hpp"
#include "checkpoint/file_writer.hpp"
#include "checkpoint/read_back.hpp"
#include "checkpoint/save_plan.hpp"
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

Saver::Saver(comm::Communicator& communicator, Options options, io::WindowStore& store)
    : communicator_(communicator), options_(std::move(options)), store_(store) {
  if (StateCoder::is_needed(options_.quantisation)) coder_ = std::make_unique<StateCoder>();
}

Saver::~Saver() = default;

// Between two collective calls nothing fails on one rank alone: what may fail is agreed on.
Report Saver::save(const fs::path& directory, std::uint64_t step, std::span<const Source> given, const Extras& extras,
                   RootLife* root) {
  Lease* const lease = root == nullptr ? nullptr : root->lease;
  if (root != nullptr) hold_root(communicator_, lease);
  Call call(communicator_);
  call.begin("plan");
  Report report;
  GivenState state = describe_given(given, extras);
  if (!choice_) choice_ = choose_engine(communicator_, {options_.engine, options_.aggregators_per_node}, directory);
  report.plan_reused = state.is_known;
  if (!state.is_known) plan_.reset();
  CodedState coded;
  DescribedState saved{state.sources(given), {}};
  if (coder_) {  // what is saved is then another state, which goes the same way
    call.begin("encode");
    coded = coder_->code(communicator_, saved.sources, options_.quantisation, state.is_known);
    add_coding_report(std::move(coded.errors), report);
    saved = {coded.sources, coded.codings};
    call.begin("plan");
  }
  DeviceMemory device;
  std::vector<plan::MemoryBox> memory;
  comm::agree(communicator_, "bring the state to the host", [&] {
    memory = memory_boxes(saved.sources);
    device.bring(memory);
  });
  if (!plan_) {
    plan_ = make_save_plan(communicator_, saved, memory, {options_, *choice_, store_});
    plan_->description = std::move(state.description);
  }
  CommitTarget target;
  CommitContent content;
  comm::agree(communicator_, "describe the checkpoint", [&] {
    target = {directory, options_.overwrite, root != nullptr, options_.read_back, lease, {}};
    content = content_of(step, extras);
    if (lease != nullptr) set_life(*root, target, content.manifest);
  });

  call.begin("commit");
  Commit commit(communicator_, std::move(target));  // removes what is unfinished when it goes
  io::Exchange& exchange = *plan_->exchange;
  FileWriter files(communicator_,
                   {plan_->layout, *plan_->extents, exchange.windows(), *plan_->buffers, exchange.rounds()});
  try {
    call.begin("open");
    files.open(choice_->name, options_.hints, commit.partial());
    if (choice_->straight) files.write_bypass(plan_->straight, memory, call);
    for (std::uint64_t round = 0; round < exchange.rounds(); ++round) {
      call.begin("write");
      const io::WindowBuffer window = files.wait_for_window(round);
      call.begin("exchange");
      const std::uint64_t arrived_bytes = exchange.gather(round, memory);
      call.add_bytes(arrived_bytes);
      files.finish_older_rounds();
      call.begin("checksum");
      call.add_bytes(files.checksum(window, arrived_bytes));
      call.begin("write");
      call.add_bytes(files.submit());
    }
    call.begin("checksum");
    call.add_bytes(files.checksum_headers());
    call.begin("write");
    files.write_headers();  // last: a file that was cut off has no valid header
    call.begin("fsync");
    files.sync_and_close();
    call.begin("checksum");
    content.blocks = files.reduce_checksums();
    std::string warning =
        read_back_data(communicator_, commit.partial(), content.blocks,
                       {options_.read_back, content.manifest.step, plan_->buffers->idle_memory()}, call);
    comm::agree(communicator_, "note hints", [&] {
      choice_->hints = files.hints();
      if (!warning.empty()) report.warnings.push_back(std::move(warning));
    });
    call.begin("commit");
    commit.finish(std::move(content));
  } catch (
      const comm::AgreedError& error) {  // all ranks are here; one that unwinds alone cannot close what all have open
    files.close_after_error();
    commit.name_new_holder(error);
    throw;
  }
  call.stop();
  comm::agree(communicator_, "report", [&] { describe_saved(directory, lease, report); });
  call.report(report);
  return report;
}

Saver::GivenState Saver::describe_given(std::span<const Source> given, const Extras& extras) const {
  GivenState state;
  const bool has_blobs = communicator_.max(extras.rank_blob.size()) != 0;
  std::uint64_t changed = 0;
  comm::agree(communicator_, "describe the state", [&] {
    if (has_blobs) state.with_blob = with_blob(given, extras.rank_blob, communicator_.rank());
    check_shards(state.sources(given));
    state.description = describe(state.sources(given), options_);
    changed = plan_ && plan_->description == state.description ? 0 : 1;
  });
  state.is_known = communicator_.max(changed) == 0;
  return state;
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

void Saver::describe_saved(const fs::path& directory, Lease* lease, Report& report) const {
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
}

}  // namespace cairn::checkpoint
