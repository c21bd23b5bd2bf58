#include "conversion/stage_writer.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "base/internal_error.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "checkpoint/read_back.hpp"
#include "checkpoint/window_io.hpp"
#include "comm/agree.hpp"
#include "format/safetensors.hpp"
#include "opening/carried.hpp"
#include "opening/open.hpp"
#include "os/file.hpp"
#include "os/interrupt.hpp"

namespace cairn::conversion {
namespace {

namespace fs = std::filesystem;

/// Bytes that are written last: the start of the file, by whose signature readers recognise HDF5.
constexpr std::uint64_t kHeadBytes = 4096;

std::vector<format::StoredTensor> tensors_of(const plan::Catalog& catalog) {
  std::vector<format::StoredTensor> tensors;
  for (const auto& tensor : catalog.tensors)
    tensors.push_back({tensor.section, tensor.name, tensor.dtype, tensor.shape, {}});
  return tensors;
}

/// Rank-local: throws for an existing file that must not be replaced.
void check_name(const fs::path& file, const Options& options) {
  if (os::is_name_taken(file))
    root::check_replaceable_stage(file, {options.overwrite, options.overwrite_foreign}, opening::open_stage);
}

}  // namespace

StageWriter::StageWriter(comm::Communicator& communicator, const fs::path& file, const plan::Catalog& catalog,
                         hdf5::StageContent content, const Options& options, checkpoint::Call& call)
    : communicator_(communicator),
      file_(file),
      options_(options),
      call_(call),
      engine_(
          checkpoint::choose_engine(communicator, {options.engine.name, options.engine.aggregators_per_node}, file)) {
  comm::agree(communicator_, "plan the staging file", [&] {
    budget_ = checkpoint::split_budget(options_.limits.memory_budget_bytes, options_.files.block_bytes);
  });
  call_.begin("commit");
  comm::agree_on_root(communicator_, "look for the file", 0, [&] { check_name(file, options_); });
  root::CommitTarget target{file};
  target.may_replace.overwrite_foreign = true;  // check_name() has checked the file
  commit_.emplace(communicator_, std::move(target));
  make_skeleton(catalog, std::move(content));
  call_.begin("plan");
  std::vector<std::uint32_t> groups;
  std::vector<plan::FileRange> ranges;
  comm::agree(communicator_, "plan the staging file", [&] {
    groups = plan::section_groups(layout_.stored);
    ranges = plan::whole_files(checkpoint::file_sizes(layout_.stored));
  });
  plan::ExtentMap extents = checkpoint::assign_extents(communicator_, std::move(groups), std::move(ranges),
                                                       options_.files.block_bytes, engine_, checkpoint::Access::kWrite);
  budget_ = budget_.fitted_to(extents);
  comm::agree(communicator_, "plan the staging file", [&] {
    extents_ = std::make_unique<plan::ExtentMap>(std::move(extents));
    windows_ = plan::cut_windows(extents_->of(communicator_.rank()), budget_.window_bytes, options_.files.block_bytes);
    find_gaps();
    read_head();
  });
  pool_ = std::make_unique<io::WindowPool>(communicator_, checkpoint::largest_buffer(windows_));
}

StageWriter::~StageWriter() = default;

/// Makes the skeleton in the partial directory, under a name different from that of the file to be written.
void StageWriter::make_skeleton(const plan::Catalog& catalog, hdf5::StageContent content) {
  const fs::path partial = commit_->partial();
  base::Bytes bytes;
  root::commit_step(communicator_, "stage.skeleton", partial, [&] {
    content.tensors = tensors_of(catalog);
    content.align_bytes = options_.files.align_bytes;
    opening::OpenCheckpoint placed;
    placed.stored = plan::packed(hdf5::write_skeleton(skeleton_path(), content));
    placed.stored.files.at(0).name = file_.filename().string();
    bytes = opening::encode_open(placed);
  });
  communicator_.share(bytes, 0);
  comm::agree(communicator_, "plan the staging file", [&] {
    layout_.stored = opening::decode_open(bytes).stored.unpacked();
    layout_.files = {{layout_.stored.files.at(0).name, "", "", layout_.stored.files.at(0).size_bytes}};
  });
}

fs::path StageWriter::skeleton_path() const { return commit_->partial() / "skeleton"; }

void StageWriter::find_gaps() {
  std::vector<plan::FileRange> covered;
  for (const auto& tensor : layout_.stored.tensors) {
    const std::uint64_t bytes = format::tensor_bytes(tensor.dtype, tensor.shape, tensor.name);
    const std::uint64_t begin = tensor.boxes.at(0).offset_bytes;
    if (bytes != 0) covered.push_back({0, begin, begin + bytes});
  }
  std::sort(covered.begin(), covered.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  std::uint64_t at = 0;
  for (const plan::FileRange& range : covered) {
    if (range.begin < at) throw base::internal_error("HDF5 placed two tensors on the same bytes");
    if (range.begin > at) gaps_.push_back({0, at, range.begin});
    at = range.end;
  }
  const std::uint64_t size = layout_.files.at(0).size_bytes;
  if (at < size) gaps_.push_back({0, at, size});
}

/// Reads the first bytes of the file, which are written last, if this rank writes some of them.
void StageWriter::read_head() {
  const std::vector<plan::Extent> mine = extents_->of(communicator_.rank());
  if (mine.empty() || mine.front().begin >= kHeadBytes) return;
  std::string& head = layout_.files.at(0).header;
  head.resize(std::min(layout_.files[0].size_bytes, kHeadBytes));
  os::File(skeleton_path(), os::OpenMode::kRead).read_at(std::as_writable_bytes(std::span(head)), 0);
}

/// Rank-local: copies the metadata between the tensors from the skeleton. Returns the number of bytes.
std::uint64_t StageWriter::fill_gaps(const io::WindowBuffer& window) const {
  os::File skeleton;
  std::uint64_t copied = 0;
  std::vector<io::ReadOp> parts;
  checkpoint::put_read_ops(window, parts);
  for (const io::ReadOp& part : parts) {
    const std::uint64_t part_begin = std::max(part.offset, kHeadBytes);
    const std::uint64_t part_end = part.offset + part.data.size();
    if (part_begin >= part_end) continue;
    auto gap = std::upper_bound(gaps_.begin(), gaps_.end(), part_begin,
                                [](std::uint64_t offset, const plan::FileRange& range) { return offset < range.end; });
    for (; gap != gaps_.end() && gap->begin < part_end; ++gap) {
      const std::uint64_t begin = std::max(gap->begin, part_begin);
      const std::uint64_t end = std::min(gap->end, part_end);
      if (!skeleton.is_open()) skeleton = os::File(skeleton_path(), os::OpenMode::kRead);
      skeleton.read_at(part.data.subspan(begin - part.offset, end - begin), begin);
      copied += end - begin;
    }
  }
  return copied;
}

void StageWriter::write_data(const checkpoint::FillWindow& fill) {
  const bool reads_back = options_.read_back != ReadBack::kOff;  // a staging file holds no checksums
  const auto fill_all = [&](std::uint64_t round, const io::WindowBuffer& window) {
    const std::uint64_t tensor_bytes = fill(round, window);
    call_.add_bytes(tensor_bytes);
    std::uint64_t other_bytes = 0;
    comm::agree(communicator_, "fill the window", [&] { other_bytes = fill_gaps(window); });
    return tensor_bytes + other_bytes;
  };
  checkpoint::FileWriter files(
      communicator_, {engine_.name, options_.engine.hints, commit_->partial(), layout_, *extents_, windows_, *pool_,
                      communicator_.max(windows_.size()), reads_back});
  const format::BlockTable blocks = files.write(std::ref(fill_all), call_);
  comm::agree(communicator_, "note hints", [&] { engine_.hints = files.hints(); });
  if (!reads_back) return;
  warning_ = checkpoint::read_back_data(communicator_, commit_->partial(), blocks,
                                        {options_.read_back, 0, pool_->idle_memory()}, call_);
}

void StageWriter::publish() {
  call_.begin("commit");
  const fs::path parent = file_.has_parent_path() ? file_.parent_path() : fs::path(".");
  root::commit_step(communicator_, "stage.rename", file_, [&] {
    const auto no_end = os::hold_end();
    const fs::path written = commit_->partial() / file_.filename();
    if (os::rename_to_new(written, file_)) return;
    if (options_.overwrite || options_.overwrite_foreign) {
      check_name(file_, options_);  // the file can have been replaced since the first check
      return os::rename(written, file_);
    }
    throw Error(
        ErrorKind::kUsage,
        fmt::format("'{}' appeared while it was written; nothing was replaced", base::printable(file_.string())),
        {0, file_.native()});
  });
  try {
    root::commit_step(communicator_, "stage.publish", file_, [&] { os::sync_directory(parent); });
  } catch (const Error& error) {
    throw error.with_message(fmt::format("'{}' is complete, but it may not survive a power failure: {}",
                                         base::printable(file_.string()), error.what()));
  }
}

void StageWriter::write(const checkpoint::FillWindow& fill) {
  write_data(fill);
  publish();
  call_.stop();
}

Report StageWriter::report() const {
  Report report = checkpoint::report_of(layout_.stored, engine_);
  report.directory = file_;
  report.files = 1;
  if (!warning_.empty()) report.warnings.push_back(warning_);
  call_.report(report);
  return report;
}

}  // namespace cairn::conversion
