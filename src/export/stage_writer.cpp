#include "export/stage_writer.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/units.hpp"
#include "cairn/error.hpp"
#include "checkpoint/progress.hpp"
#include "checkpoint/read_back.hpp"
#include "checkpoint/reports.hpp"
#include "checkpoint/window_io.hpp"
#include "comm/agree.hpp"
#include "directory/open_wire.hpp"
#include "directory/root.hpp"
#include "format/safetensors.hpp"
#include "os/file.hpp"
#include "os/interrupt.hpp"

namespace cairn::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Without its first bytes, the signature among them, no reader takes a file for HDF5.
constexpr std::uint64_t kHeadBytes = 4096;

std::vector<format::StoredTensor> tensors_of(const plan::Catalog& catalog) {
  std::vector<format::StoredTensor> tensors;
  for (const auto& tensor : catalog.tensors)
    tensors.push_back({tensor.section, tensor.name, tensor.dtype, tensor.shape, {}});
  return tensors;
}

}  // namespace

StageWriter::StageWriter(comm::Communicator& communicator, const fs::path& file, const plan::Catalog& catalog,
                         hdf5::StageContent content, const Options& options, PhaseClock& clock)
    : communicator_(communicator),
      file_(file),
      options_(options),
      clock_(clock),
      engine_(choose_engine(communicator, {options.engine, options.aggregators_per_node}, file)) {
  comm::agree(communicator_, "plan the staging file",
              [&] { budget_ = split_budget(options_.memory_budget_bytes, options_.block_bytes); });
  clock_.begin("commit");
  leftovers_.commit = begin_commit(communicator_, {file, options.overwrite, false, ReadBack::kOff, nullptr, {}});
  leftovers_.is_mine = communicator_.rank() == 0;
  make_skeleton(catalog, std::move(content));
  clock_.begin("plan");
  std::vector<std::uint32_t> groups;
  std::vector<plan::FileRange> ranges;
  comm::agree(communicator_, "plan the staging file", [&] {
    groups = plan::section_groups(layout_.stored);
    ranges = plan::whole_files(file_sizes(layout_.stored));
  });
  plan::ExtentMap extents =
      deal_extents(communicator_, std::move(groups), std::move(ranges), options_.block_bytes, engine_, Access::kWrite);
  budget_ = budget_.fitted_to(extents);
  comm::agree(communicator_, "plan the staging file", [&] {
    extents_ = std::make_unique<plan::ExtentMap>(std::move(extents));
    windows_ = plan::cut_windows(extents_->of(communicator_.rank()), budget_.window_bytes, options_.block_bytes);
    find_gaps();
  });
  pool_ = std::make_unique<io::WindowPool>(communicator_, largest_buffer(windows_));
}

StageWriter::~StageWriter() = default;

/// The skeleton lies beside the file to be written, under a name of its own.
void StageWriter::make_skeleton(const plan::Catalog& catalog, hdf5::StageContent content) {
  const fs::path partial = leftovers_.commit.partial;
  base::Bytes bytes;
  commit_step(communicator_, "stage.skeleton", partial, [&] {
    content.tensors = tensors_of(catalog);
    content.align_bytes = options_.align_bytes;
    OpenCheckpoint placed;
    placed.stored = hdf5::write_skeleton(skeleton_path(), content);
    placed.stored.files.at(0).name = file_.filename().string();
    bytes = encode_open(placed, {});
  });
  communicator_.share(bytes, 0);
  comm::agree(communicator_, "plan the staging file", [&] {
    layout_.stored = decode_open(bytes).stored;
    layout_.files = {{layout_.stored.files.at(0).name, "", "", layout_.stored.files.at(0).size_bytes}};
  });
}

fs::path StageWriter::skeleton_path() const { return leftovers_.commit.partial / "skeleton"; }

void StageWriter::find_gaps() {
  std::vector<plan::ByteRange> covered;
  for (const auto& tensor : layout_.stored.tensors) {
    const std::uint64_t bytes = format::tensor_bytes(tensor.dtype, tensor.shape, tensor.name);
    const std::uint64_t begin = tensor.boxes.at(0).offset_bytes;
    if (bytes != 0) covered.push_back({begin, begin + bytes});
  }
  std::sort(covered.begin(), covered.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  std::uint64_t at = 0;
  for (const plan::ByteRange& range : covered) {
    if (range.begin < at) throw Error(ErrorKind::kInternal, "HDF5 placed two tensors on the same bytes");
    if (range.begin > at) gaps_.push_back({at, range.begin});
    at = range.end;
  }
  const std::uint64_t size = layout_.files.at(0).size_bytes;
  if (at < size) gaps_.push_back({at, size});
}

/// Rank-local: metadata between the tensors, from the skeleton; `arrived` must be all the rest of the window.
void StageWriter::fill_gaps(const io::WindowBuffer& window, std::uint64_t arrived) const {
  os::File skeleton;
  std::uint64_t copied = 0;
  std::vector<io::ReadOp> parts;
  put_read_ops(window, parts);
  for (const io::ReadOp& part : parts) {
    const std::uint64_t part_end = part.offset + part.data.size();
    auto gap = std::upper_bound(gaps_.begin(), gaps_.end(), part.offset,
                                [](std::uint64_t offset, const plan::ByteRange& range) { return offset < range.end; });
    for (; gap != gaps_.end() && gap->begin < part_end; ++gap) {
      const std::uint64_t begin = std::max(gap->begin, part.offset);
      const std::uint64_t end = std::min(gap->end, part_end);
      if (!skeleton.is_open()) skeleton = os::File(skeleton_path(), os::OpenMode::kRead);
      skeleton.read_at(part.data.subspan(begin - part.offset, end - begin), begin);
      copied += end - begin;
    }
  }
  const std::uint64_t expected = window.window == nullptr ? 0 : window.window->bytes;
  if (arrived + copied == expected) return;
  throw Error(ErrorKind::kInternal,
              fmt::format("{} bytes of tensors and {} others arrived for a window of {}", arrived, copied, expected));
}

void StageWriter::write_data(const FillWindow& fill) {
  clock_.begin("open");
  const auto engine = io::make_engine_on_all(engine_.name, communicator_, {options_.hints});
  try {
    write_file(*engine, fill);
  } catch (const comm::AgreedError&) {
    io::close_after_error(engine.get());
    throw;
  }
}

void StageWriter::write_file(io::Engine& engine, const FillWindow& fill) {
  engine.open_for_write(engine_files(leftovers_.commit.partial, layout_.stored), *extents_);
  engine_.hints = engine.hints();
  const std::uint64_t rounds = communicator_.max(windows_.size());
  const std::uint64_t total = extents_->total_bytes();
  std::optional<format::BlockAccumulator> checksums;  // a staging file has none of its own
  comm::agree(communicator_, "make room for checksums", [&] {
    if (options_.read_back != ReadBack::kOff) checksums.emplace(file_sizes(layout_.stored), options_.block_bytes);
  });
  const auto add = [&](const std::vector<io::WriteOp>& ops) {
    if (!checksums) return;
    for (const io::WriteOp& op : ops) checksums->add(op.file, op.offset, op.data);
  };
  std::vector<io::WriteOp> ops;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    report_progress("writing", total * round / rounds, total);
    const io::WindowBuffer window = pool_->of(windows_, round);
    clock_.begin("write");
    engine.finish_rounds(io::WindowPool::kAhead);  // of which the window of this round was the last
    clock_.begin("exchange");
    const std::uint64_t arrived = fill(round, window);
    clock_.add_bytes(arrived);
    comm::agree(communicator_, "fill the window", [&] {
      fill_gaps(window, arrived);
      put_write_ops(
          window, [](std::uint32_t) { return kHeadBytes; }, ops);
    });
    clock_.begin("write");
    add(ops);
    engine.begin_write(ops);
    for (const io::WriteOp& op : ops) clock_.add_bytes(op.data.size());
  }
  engine.finish_rounds(0);
  write_head(engine, add);
  clock_.begin("fsync");
  report_progress("fsync", total, total);
  engine.sync();
  engine.close();
  if (checksums) read_back(*checksums);
}

void StageWriter::read_back(format::BlockAccumulator& checksums) {
  communicator_.all_reduce(checksums.raw_words(), comm::ReduceOp::kXor);
  format::BlockTable table;
  comm::agree(communicator_, "finish the checksums", [&] {
    const std::string name[] = {layout_.files.at(0).name};
    table = checksums.finish(name);
  });
  warning_ = read_back_data(communicator_, leftovers_.commit.partial, table,
                            {options_.read_back, 0, pool_->idle_memory()}, clock_);
}

/// This rank's share of the file's first bytes.
void StageWriter::write_head(io::Engine& engine,
                             const std::function<void(const std::vector<io::WriteOp>&)>& add) const {
  std::vector<std::byte> head;
  std::vector<io::WriteOp> ops;
  comm::agree(communicator_, "read the skeleton", [&] {
    const std::vector<plan::Extent> mine = extents_->of(communicator_.rank());
    if (mine.empty() || mine.front().begin >= kHeadBytes) return;
    head.resize(std::min(mine.front().end, kHeadBytes) - mine.front().begin);
    os::File(skeleton_path(), os::OpenMode::kRead).read_at(head, mine.front().begin);
    ops.push_back({0, mine.front().begin, head});
  });
  add(ops);
  engine.write_round(ops);
}

void StageWriter::publish() {
  clock_.begin("commit");
  const fs::path parent = file_.has_parent_path() ? file_.parent_path() : fs::path(".");
  commit_step(communicator_, "stage.rename", file_, [&] {
    const auto no_end = os::hold_end();
    const fs::path written = leftovers_.commit.partial / file_.filename();
    if (options_.overwrite) return os::rename(written, file_);
    if (os::rename_to_new(written, file_)) return;
    throw Error(ErrorKind::kUsage, fmt::format("'{}' has come into being while it was written; nothing was replaced",
                                               base::printable(file_.string())));
  });
  try {
    commit_step(communicator_, "stage.publish", file_, [&] { os::sync_directory(parent); });
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("'{}' is complete, but it may not survive a power failure: {}",
                                          base::printable(file_.string()), error.what()));
  }
}

void StageWriter::write(const FillWindow& fill) {
  write_data(fill);
  publish();
  clock_.stop();
}

Report StageWriter::report() const {
  Report report = report_of(layout_.stored, engine_);
  report.directory = file_;
  report.files = 1;
  if (!warning_.empty()) report.warnings.push_back(warning_);
  add_times(communicator_, clock_, clock_, report);
  return report;
}

}  // namespace cairn::checkpoint
