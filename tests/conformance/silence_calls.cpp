#include "silence_calls.hpp"

#include <mpi.h>

#include <iterator>
#include <utility>

#include "checkpoint/call.hpp"
#include "checkpoint/verify.hpp"
#include "comm/mpi.hpp"
#include "conversion/convert.hpp"
#include "conversion/diff.hpp"
#include "conversion/stage.hpp"
#include "hdf5/library.hpp"

namespace cairn::test {
namespace {

constexpr std::size_t kTensors = 5;
constexpr std::uint64_t kRows = 96;
constexpr std::uint64_t kColumns = 4096;
constexpr std::uint64_t kBlobBytes = 512 << 10;
constexpr std::uint64_t kMemoryBytes = 2 << 20;
constexpr const char* kCarried = "notes.txt";

}  // namespace

Trial::Trial(std::string engine, std::filesystem::path root, double waiting_s)
    : engine_(std::move(engine)), root_(std::move(root)), values_(kTensors * (kRows / 3) * kColumns, 1.0F) {
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  Extras extras;
  extras.carry_texts = {{kCarried, "carried"}};
  extras.rank_blob.resize(kBlobBytes);
  Checkpointer(MPI_COMM_WORLD, root_, options(kLongSeconds)).save(1, sources(), extras);
  checkpointer.emplace(MPI_COMM_WORLD, root_, options(waiting_s));
  communicator = comm::duplicate_mpi(MPI_COMM_WORLD, {waiting_s, OnSilence::kError, {}});
}

template <class Shard>
std::vector<Shard> Trial::shards() {
  std::vector<Shard> all(kTensors);
  for (std::size_t n = 0; n < all.size(); ++n) {
    all[n].name = "tensor." + std::to_string(n);
    all[n].shape = {kRows, kColumns};
    all[n].boxes = {{{kRows / 3 * static_cast<std::uint64_t>(rank_), 0}, {kRows / 3, kColumns}}};
    all[n].data = values_.data() + n * (kRows / 3) * kColumns;
  }
  return all;
}
std::vector<Source> Trial::sources() { return shards<Source>(); }
std::vector<Target> Trial::targets() { return shards<Target>(); }

Options Trial::options(double waiting_s) const {
  Options options;
  options.engine.name = engine_;
  if (engine_ == "posix") options.engine.aggregators_per_node = static_cast<std::uint64_t>(ranks_);  // through windows
  options.files.max_bytes = 4 << 20;
  options.files.block_bytes = 64 << 10;
  options.limits.memory_budget_bytes = kMemoryBytes;
  options.overwrite = true;
  options.lease.seconds = kLongSeconds;  // no other job saves here
  options.waiting.limit_s = waiting_s;
  return options;
}

checkpoint::ReadOptions Trial::reading() const {
  return {engine_, kMemoryBytes, {}, options(0).engine.aggregators_per_node, opening::Links::kInside};
}

void Trial::save() { phases = checkpointer->save(2, sources()).phases; }
void Trial::save_async() {
  SaveTicket ticket = checkpointer->save_async(2, sources());
  phases = ticket.wait().phases;
}
void Trial::prepare_async() { checkpointer->prepare_async(sources()); }
void Trial::load() { phases = checkpointer->load(1, targets()).phases; }
void Trial::load_latest() { phases = checkpointer->load_latest(targets()).phases; }
void Trial::load_extras() { static_cast<void>(checkpointer->load_extras(1)); }
void Trial::load_carried() { checkpointer->load_carried(1, kCarried, {}); }
void Trial::tensors() { static_cast<void>(checkpointer->tensors(1)); }
void Trial::steps() { static_cast<void>(checkpointer->steps()); }
void Trial::latest() { static_cast<void>(checkpointer->latest()); }

void Trial::verify() {
  apart([&] { phases = checkpoint::verify(*communicator, step()).phases; });
}
void Trial::convert() {
  conversion::ConvertOptions how;
  how.write = options(0);
  how.read = reading();
  apart([&] { phases = conversion::convert(*communicator, step(), root_ / "converted", how).report.phases; });
}
void Trial::stage() {
  apart(
      [&] { phases = conversion::stage_state(*communicator, root_ / "staged.h5", sources(), options(0), {}).phases; });
}
void Trial::diff() {
  apart([&] { static_cast<void>(conversion::diff(*communicator, step(), step(), {reading(), {}, false})); });
}

void Trial::apart(const std::function<void()>& work) {
  checkpoint::run_call(*communicator, std::nullopt, "apart", work);
}

namespace {

constexpr StoppedCall kPrepare{"prepare_async", &Trial::prepare_async};
constexpr StoppedCall kLoad{"load", &Trial::load};
constexpr StoppedCall kLoadLatest{"load_latest", &Trial::load_latest};
constexpr StoppedCall kLoadExtras{"load_extras", &Trial::load_extras};
constexpr StoppedCall kLoadCarried{"load_carried", &Trial::load_carried};
constexpr StoppedCall kListTensors{"tensors", &Trial::tensors};
constexpr StoppedCall kSteps{"steps", &Trial::steps};
constexpr StoppedCall kLatest{"latest", &Trial::latest};
constexpr StoppedCall kVerify{"verify", &Trial::verify, false};
constexpr StoppedCall kConvert{"convert", &Trial::convert, false};
constexpr StoppedCall kStage{"stage", &Trial::stage, false};
constexpr StoppedCall kDiff{"diff", &Trial::diff, false};

constexpr StoppingPoint kPoints[] = {
    {kPrepare, "call.phase:path=plan"},
    {kLoad, "open:path=.safetensors"},
    {kLoad, "read:path=.safetensors"},
    {kLoadLatest, "open:path=.safetensors"},
    {kLoadLatest, "read:path=.safetensors"},
    {kLoadLatest, "open:path=cairn.json", true},
    {kLoadExtras, "call.phase:path=plan"},
    {kLoadExtras, "call.phase:path=read"},
    {kLoadExtras, "open:path=.safetensors"},
    {kLoadExtras, "read:path=.safetensors"},
    {kLoadCarried, "read:path=notes.txt", true},
    {kListTensors, "open:path=.safetensors"},
    {kSteps, "open:path=cairn.json", true},
    {kLatest, "open:path=cairn.json", true},
    {kVerify, "open:path=.safetensors"},
    {kVerify, "read:path=.safetensors"},
    {kVerify, "read:path=cairn.blocks", true},
    {kConvert, "open:path=.safetensors"},
    {kConvert, "read:path=.safetensors"},
    {kConvert, "fsync:path=.safetensors"},
    {kConvert, "commit.manifest"},
    {kDiff, "call.phase:path=read"},
    {kDiff, "open:path=.safetensors"},
    {kDiff, "read:path=.safetensors"},
};

}  // namespace

std::vector<StoppedCall> reporting_calls() {
  std::vector<StoppedCall> calls = {kSave, kSaveAsync, kLoad, kLoadLatest, kVerify, kConvert};
  if (hdf5::is_available()) calls.push_back(kStage);
  return calls;
}

std::vector<StoppingPoint> stopping_points(const std::string& engine) {
  std::vector<StoppingPoint> points(std::begin(kPoints), std::end(kPoints));
  if (engine == "mpiio") {  // saves synchronously and prepares nothing
    std::erase_if(points, [](const StoppingPoint& point) { return point.call.run == kPrepare.run; });
  }
  return points;
}

}  // namespace cairn::test
