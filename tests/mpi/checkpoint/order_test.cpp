// The order in which a save becomes durable, with every engine: every rank that wrote data fsyncs it; then come carried
// files, blocks and manifest, each fsynced before the next; then the directory, the rename, its parent and the pointer
// file; only then are replaced files removed. The test records the file operations of all ranks (os/system_calls.hpp).
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "cairn/staging.hpp"
#include "comm/mpi.hpp"
#include "conversion/convert.hpp"
#include "faults.hpp"
#include "hdf5/library.hpp"
#include "os/system_calls.hpp"
#include "root/root.hpp"
#include "root/root_state.hpp"
#include "sharded_state.hpp"
#include "shared_temp_dir.hpp"
#include "soft_limit.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using os::Operation;

/// Operations of one kind on one or more paths.
struct Span {
  std::size_t count = 0;
  std::int64_t begin_ns = std::numeric_limits<std::int64_t>::max();  ///< time of the first operation
  std::int64_t end_ns = 0;                                           ///< time of the last operation

  void add(const Operation& operation) {
    ++count;
    begin_ns = std::min(begin_ns, operation.begin_ns);
    end_ns = std::max(end_ns, operation.end_ns);
  }
  void add(const Span& other) {
    count += other.count;
    begin_ns = std::min(begin_ns, other.begin_ns);
    end_ns = std::max(end_ns, other.end_ns);
  }
};

bool changes_content(const Operation& operation) { return operation.name == "write" || operation.name == "truncate"; }

/// The operations of all ranks, on rank 0; empty elsewhere.
class Story {
 public:
  explicit Story(std::vector<Operation> operations) : operations_(std::move(operations)) {}

  [[nodiscard]] Span find(const std::function<bool(const Operation&)>& is_meant) const {
    Span span;
    for (const Operation& operation : operations_) {
      if (is_meant(operation)) span.add(operation);
    }
    return span;
  }
  [[nodiscard]] Span find(const std::string& name, const fs::path& path) const {
    return find([&](const Operation& o) { return o.name == name && o.path == path; });
  }
  /// As find(), limited to operations that lie entirely between two times.
  [[nodiscard]] Span find_between(const std::string& name, const fs::path& path, std::int64_t after,
                                  std::int64_t before) const {
    return find([&](const Operation& o) {
      return o.name == name && o.path == path && o.begin_ns >= after && o.end_ns <= before;
    });
  }
  /// The opens by which the saver looked in the lease folder for another saver.
  [[nodiscard]] Span looks_between(const fs::path& root, std::int64_t after, std::int64_t before) const {
    const std::string look = (root / ".cairn" / "look.").native();
    return find([&](const Operation& o) {
      return o.name == "open" && o.path.native().starts_with(look) && o.begin_ns >= after && o.end_ns <= before;
    });
  }
  /// The path of the first operation `name` whose path begins with `begin`.
  [[nodiscard]] fs::path path_of(const std::string& name, const std::string& begin) const {
    for (const Operation& o : operations_) {
      if (o.name == name && o.path.native().starts_with(begin)) return o.path;
    }
    return {};
  }
  [[nodiscard]] fs::path made_directory(const std::string& begin, const std::string& end) const {
    for (const Operation& o : operations_) {
      if (o.name == "mkdir" && o.path.native().starts_with(begin) && o.path.native().ends_with(end)) return o.path;
    }
    return {};
  }

  /// The writes and fsyncs of a file. Expects every rank that wrote to have fsynced after its last write.
  [[nodiscard]] Span expect_durable(const fs::path& path) const {
    std::map<int, Span> writes;
    std::map<int, Span> last_sync;
    Span all;
    for (const Operation& o : operations_) {
      if (o.path != path) continue;
      if (changes_content(o)) writes[o.rank].add(o);
      if (o.name == "fsync" && (!last_sync.contains(o.rank) || last_sync[o.rank].begin_ns < o.begin_ns)) {
        last_sync[o.rank] = {};
        last_sync[o.rank].add(o);
      }
      if (changes_content(o) || o.name == "fsync") all.add(o);
    }
    EXPECT_FALSE(last_sync.empty()) << path << " was never fsynced";
    for (const auto& [rank, span] : writes) {
      EXPECT_TRUE(last_sync.contains(rank)) << path << " was written by rank " << rank << ", which did not fsync it";
      if (last_sync.contains(rank)) {
        EXPECT_LE(span.end_ns, last_sync.at(rank).begin_ns) << path << " was written after its fsync by rank " << rank;
      }
    }
    return all;
  }

 private:
  std::vector<Operation> operations_;
};

/// Collective: runs `work`; rank 0 gets the operations of all ranks.
Story record(const std::function<void()>& work) {
  const World world;
  os::Recording recording;
  work();
  MPI_Barrier(MPI_COMM_WORLD);
  std::ostringstream out;
  for (const Operation& o : recording.take()) {
    out << o.name << '\t' << o.rank << '\t' << o.begin_ns << '\t' << o.end_ns << '\t' << o.path.native() << '\n';
  }
  const std::string mine = out.str();
  const int length = static_cast<int>(mine.size());
  std::vector<int> lengths(static_cast<std::size_t>(world.ranks));
  MPI_Gather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, 0, MPI_COMM_WORLD);
  std::vector<int> places;
  int total = 0;
  for (const int n : lengths) {
    places.push_back(total);
    total += n;
  }
  std::string text(static_cast<std::size_t>(total), '\0');
  MPI_Gatherv(mine.data(), length, MPI_CHAR, text.data(), lengths.data(), places.data(), MPI_CHAR, 0, MPI_COMM_WORLD);
  std::vector<Operation> all;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    Operation o;
    std::string path;
    fields >> o.name >> o.rank >> o.begin_ns >> o.end_ns >> path;
    o.path = path;
    all.push_back(std::move(o));
  }
  return Story(std::move(all));
}

enum class Place { kRoot, kAnywhere };
enum class Old { kNone, kExchanged, kMovedAside };

/// On rank 0: checks the operations of one save into `directory`.
void expect_durable_order(const Story& story, const fs::path& directory, Place place, Old old) {
  const fs::path parent = directory.parent_path();
  const fs::path partial = story.made_directory(directory.native() + ".", ".partial");
  ASSERT_FALSE(partial.empty());

  Span data;
  Span carried;
  std::size_t data_files = 0;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    if (name == format::kManifestFile || name == format::kBlocksFile) continue;
    const bool is_data = name.ends_with(".safetensors");
    data_files += is_data ? 1 : 0;
    (is_data ? data : carried).add(story.expect_durable(partial / name));
  }
  EXPECT_GT(data_files, 3U);
  EXPECT_GT(carried.count, 0U);
  const Span blocks = story.expect_durable(partial / format::kBlocksFile);
  const Span manifest = story.expect_durable(partial / format::kManifestFile);
  EXPECT_LE(data.end_ns, carried.begin_ns);
  EXPECT_LE(carried.end_ns, blocks.begin_ns);
  EXPECT_LE(blocks.end_ns, manifest.begin_ns);

  const Span content = story.find("fsync", partial);
  EXPECT_EQ(content.count, 1U) << "the directory was not fsynced";
  EXPECT_LE(manifest.end_ns, content.begin_ns);

  const Span name = story.find(old == Old::kExchanged ? "exchange" : "rename", directory);
  EXPECT_EQ(name.count, 1U);
  EXPECT_LE(content.end_ns, name.begin_ns);
  if (old == Old::kMovedAside) {
    const fs::path container = story.made_directory(directory.native() + ".", ".replaced");
    const Span aside = story.find("rename", container / directory.filename());
    EXPECT_EQ(aside.count, 1U);
    EXPECT_LE(content.end_ns, aside.begin_ns);
    EXPECT_LE(aside.end_ns, name.begin_ns);
    const Span made = story.find("mkdir", container);
    EXPECT_TRUE(place == Place::kAnywhere || story.looks_between(parent, made.end_ns, aside.begin_ns).count > 0)
        << "nobody looked for another saver between making the place to move to and moving";
  }

  const Span publish = story.find_between("fsync", parent, name.end_ns, std::numeric_limits<std::int64_t>::max());
  EXPECT_GT(publish.count, 0U) << "the new name was not made durable";
  const Span removed = story.find(
      [&](const Operation& o) { return o.name == "unlink" && o.path.native().starts_with(directory.native() + "."); });
  EXPECT_EQ(removed.count != 0, old != Old::kNone);
  if (removed.count != 0) {
    const Span before = story.find_between("fsync", parent, name.end_ns, removed.begin_ns);
    EXPECT_GT(before.count, 0U) << "what was replaced was removed before the new name was durable";
  }
  if (place == Place::kAnywhere) return;

  const Span temporary = story.find([&](const Operation& o) {
    return o.path.extension() == ".tmp" && o.path.native().starts_with((parent / root::kLatestFile).native()) &&
           (changes_content(o) || o.name == "fsync");
  });
  EXPECT_EQ(temporary.count, 2U) << "the pointer's next content is written and fsynced";
  EXPECT_LE(manifest.end_ns, temporary.begin_ns);
  EXPECT_LE(temporary.end_ns, name.begin_ns);
  const Span pointer = story.find("rename", parent / root::kLatestFile);
  EXPECT_EQ(pointer.count, 1U);
  EXPECT_GT(story.find_between("fsync", parent, name.end_ns, pointer.begin_ns).count, 0U)
      << "the pointer file was replaced before the new name was durable";
  const Span noted = story.find("rename", parent / ".cairn" / "state.json");
  EXPECT_EQ(noted.count, 1U);
  EXPECT_GT(story.find_between("fsync", parent, pointer.end_ns, noted.begin_ns).count, 0U)
      << "the pointer file was noted before it was durable";
  EXPECT_TRUE(removed.count == 0 || pointer.end_ns <= removed.begin_ns);

  // The lease is released last and durably; otherwise the next saver would wait for it after a power failure.
  const fs::path lease = story.path_of("write", (parent / ".cairn" / "epoch-").native());
  ASSERT_FALSE(lease.empty());
  EXPECT_LE(noted.end_ns, story.expect_durable(lease).end_ns);

  // The saver looks for another saver after everything to be renamed exists, and before each rename.
  EXPECT_GT(story.looks_between(parent, std::max(content.end_ns, temporary.end_ns), name.begin_ns).count, 0U)
      << "nobody looked for another saver before the rename";
  EXPECT_GT(story.looks_between(parent, name.end_ns, pointer.begin_ns).count, 0U)
      << "nobody looked for another saver before the pointer file was replaced";
}

class DurableOrder : public testing::TestWithParam<const char*> {
 protected:
  void save(std::uint64_t step) {
    Extras extras;
    extras.carry_texts = {{"trainer_state.json", "{\"step\": 1}"}};
    state_.fill(static_cast<int>(step));
    Checkpointer(MPI_COMM_WORLD, root_.path(), options_).save(step, state_.sources(), extras);
  }
  void judge(const Story& story, const fs::path& directory, Place place, Old old) const {
    if (world_.rank == 0) expect_durable_order(story, directory, place, old);
  }

  World world_;
  SharedTempDir root_;
  Options options_ = options_for_small_state(GetParam());
  RankState state_{small_state(), Cut::kMixed, world_.rank, world_.ranks};
};

TEST_P(DurableOrder, OfANewStep) {
  const Story story = record([&] { save(1); });
  judge(story, root_ / "checkpoint-1", Place::kRoot, Old::kNone);
}

/// Files that were closed to make room for other files are durable too.
TEST_P(DurableOrder, OfFilesThatAreOpenByTurns) {
  if (GetParam() == std::string("mpiio")) return;  // keeps all of them open
  options_.files.max_bytes = 4096;
  Checkpointer checkpointer(MPI_COMM_WORLD, root_.path(), options_);
  state_.fill(1);
  const Story story = record([&] {
    const SoftLimit limit = descriptors_left(48);
    checkpointer.save(1, state_.sources(), Extras{});
  });
  if (world_.rank != 0) return;
  const fs::path partial = story.made_directory((root_ / "checkpoint-1.").native(), ".partial");
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(root_ / "checkpoint-1")) {
    if (entry.path().extension() != ".safetensors") continue;
    static_cast<void>(story.expect_durable(partial / entry.path().filename()));
    ++files;
  }
  EXPECT_GT(files, 48U);
}

TEST_P(DurableOrder, OfANewRoot) {
  const fs::path root = root_ / "run" / "checkpoints";
  const Story story = record([&] { Checkpointer(MPI_COMM_WORLD, root, options_).save(1, state_.sources(), Extras{}); });
  if (world_.rank != 0) return;
  const Span name = story.find("rename", root / "checkpoint-1");
  EXPECT_EQ(name.count, 1U);
  for (const fs::path& made : {root.parent_path(), root}) {
    const Span mkdir = story.find("mkdir", made);
    EXPECT_GT(story.find_between("fsync", made.parent_path(), mkdir.end_ns, name.begin_ns).count, 0U)
        << made << " was not made durable";
  }
}

TEST_P(DurableOrder, OfAStepThatIsReplaced) {
  save(1);
  options_.overwrite = true;
  const Story exchanged = record([&] { save(1); });
  judge(exchanged, root_ / "checkpoint-1", Place::kRoot, Old::kExchanged);
  const Faults faults("exchange:errno=EINVAL");
  const Story moved = record([&] { save(1); });
  judge(moved, root_ / "checkpoint-1", Place::kRoot, Old::kMovedAside);
}

TEST_P(DurableOrder, OfAConversion) {
  save(1);
  conversion::ConvertOptions options;
  options.write = options_;
  const auto communicator = comm::duplicate_mpi(MPI_COMM_WORLD);
  const Story story =
      record([&] { conversion::convert(*communicator, root_ / "checkpoint-1", root_ / "converted", options); });
  judge(story, root_ / "converted", Place::kAnywhere, Old::kNone);
}

TEST_P(DurableOrder, OfAStagingFile) {
  if (!hdf5::is_available()) GTEST_SKIP() << "this build has no HDF5";
  state_.fill(1);
  const fs::path file = root_ / "state.h5";
  const Story story = record([&] { stage(MPI_COMM_WORLD, file, state_.sources(), options_); });
  if (world_.rank != 0) return;
  const fs::path partial = story.made_directory(file.native() + ".", ".partial");
  ASSERT_FALSE(partial.empty());
  const Span data = story.expect_durable(partial / "state.h5");
  const Span name = story.find("rename", file);
  EXPECT_EQ(name.count, 1U);
  EXPECT_LE(data.end_ns, name.begin_ns);
  const Span publish = story.find("fsync", root_.path());
  EXPECT_EQ(publish.count, 1U) << "the new name was not made durable";
  EXPECT_LE(name.end_ns, publish.begin_ns);
}

INSTANTIATE_TEST_SUITE_P(Engines, DurableOrder, testing::Values("auto", "posix", "direct", "mpiio"));

}  // namespace
}  // namespace cairn::test
