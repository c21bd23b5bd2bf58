// Listings of a root and of a checkpoint: steps, tensors, carried files and the ranks' blobs,
// and the memory that reading them needs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "environment.hpp"
#include "expect_error.hpp"
#include "faults.hpp"
#include "format/manifest.hpp"
#include "moment_state.hpp"
#include "plan/catalog.hpp"
#include "process_growth.hpp"
#include "same_text.hpp"
#include "sharded_state.hpp"
#include "shared_temp_dir.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// Collective: `work` on rank 0, before any other rank continues.
template <class Work>
void on_rank_0(const World& world, Work work) {
  MPI_Barrier(MPI_COMM_WORLD);
  if (world.rank == 0) work();
  MPI_Barrier(MPI_COMM_WORLD);
}

std::vector<std::byte> pattern(std::uint64_t bytes, int salt) {
  std::vector<std::byte> content(bytes);
  for (std::uint64_t i = 0; i < bytes; ++i) {
    content[i] = static_cast<std::byte>(i + i / 251 + static_cast<std::uint64_t>(salt));
  }
  return content;
}

void write_pattern(const fs::path& path, std::uint64_t bytes) {
  const auto content = pattern(bytes, 1);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(content.data()), static_cast<std::streamsize>(bytes));
}

/// A checkpointer in its own directory, and a small state to save.
class Listing : public testing::Test {
 protected:
  Checkpointer make(const Options& options = options_for_small_state("posix")) const {
    return {MPI_COMM_WORLD, root_.path(), options};
  }
  void SetUp() override { state_.fill(1); }

  const World world_;
  SharedTempDir root_;
  SharedTempDir outside_;
  RankState state_{small_state(), Cut::kRows, world_.rank, world_.ranks};
};

using Steps = Listing;
using Tensors = Listing;
using RankBlobs = Listing;
using CarriedFiles = Listing;

TEST_F(Steps, AreInOrderWithWhatIsWrongWithThem) {
  {
    Checkpointer first = make();
    EXPECT_TRUE(first.steps().empty());
    for (const std::uint64_t step : {9, 10, 100, 20}) first.save(step, state_.sources());
  }
  Checkpointer second = make();
  RankState loaded(small_state(), Cut::kRows, world_.rank, world_.ranks);
  second.load(10, loaded.targets());
  const Report saved = second.save(30, state_.sources());  // 20 and 100 become void
  on_rank_0(world_, [&] {
    fs::remove(root_ / "checkpoint-9" / "cairn.blocks");
    fs::remove(root_ / "checkpoint-9" / "cairn.json");
    fs::create_directory(root_ / "checkpoint-10.0123456789abcdef.partial");
    fs::create_directory(root_ / "somebody's");
  });
  const std::vector<StepInfo> steps = second.steps();
  std::string text;
  for (const StepInfo& step : steps) {
    text += std::to_string(step.step) + ' ' + step.directory.filename().string() + (step.complete ? " complete" : "") +
            (step.is_void ? " void" : "") + (step.problem.empty() ? "" : " problem") +
            (step.bytes == saved.bytes  ? ""
             : step.bytes > saved.bytes ? " bytes"
                                        : " none") +
            '\n';
  }
  EXPECT_EQ(text,
            "9 checkpoint-9 problem none\n"
            "10 checkpoint-10 complete bytes\n"
            "10 checkpoint-10.0123456789abcdef.partial problem none\n"
            "20 checkpoint-20 complete void problem bytes\n"
            "30 checkpoint-30 complete bytes\n"
            "100 checkpoint-100 complete void problem bytes\n");
  expect_same_everywhere(text);
  ASSERT_EQ(steps.size(), 6U);
  EXPECT_EQ(steps[4].files, saved.files);
  EXPECT_EQ(steps[4].directory, saved.directory);
  EXPECT_THAT(steps[0].problem, HasSubstr("cairn.json"));
  EXPECT_THAT(steps[5].problem, HasSubstr("void"));
  on_rank_0(world_, [&] { fs::remove_all(root_.path()); });
  expect_error_everywhere(ErrorKind::kNotFound, root_.path().filename(), [&] { static_cast<void>(second.steps()); });
}

/// One line per tensor: "section/name dtype sizes (codec)".
std::string lines_of(const std::vector<TensorInfo>& tensors) {
  std::string text;
  for (const TensorInfo& tensor : tensors) {
    text += tensor.section + '/' + tensor.name + ' ' + std::string(name_of(tensor.dtype));
    for (const std::uint64_t size : tensor.shape) text += ' ' + std::to_string(size);
    text += tensor.codec.empty() ? "\n" : " (" + tensor.codec + ")\n";
  }
  return text;
}

TEST_F(Tensors, AreThoseThatALoadGives) {
  Options options;
  options.files.block_bytes = 4096;
  options.quantisation.codecs = {{"optimizer", "q8"}};
  options.quantisation.remove_master_weight = true;
  Checkpointer checkpointer = make(options);
  MomentRank state(Cut::kRows, world_.rank, world_.ranks);
  state.fill(1);
  Extras extras;
  extras.rank_blob = pattern(3, world_.rank);
  const Report saved = checkpointer.save(1, state.sources(), extras);
  const std::vector<TensorInfo> tensors = checkpointer.tensors(1);
  expect_same_everywhere(lines_of(tensors));
  EXPECT_EQ(tensors.size(), state.tensors().size());
  EXPECT_NE(tensors.size(), saved.tensors);
  std::map<std::string, std::size_t> per_codec;
  for (const StateTensor& tensor : state.tensors()) {
    const auto found = std::ranges::find_if(
        tensors, [&](const TensorInfo& info) { return info.section == tensor.section && info.name == tensor.name; });
    ASSERT_NE(found, tensors.end()) << tensor.section << ' ' << tensor.name;
    EXPECT_EQ(found->dtype, tensor.dtype);
    EXPECT_EQ(found->shape, tensor.shape);
    ++per_codec[found->codec];
  }
  EXPECT_EQ(per_codec.size(), 2U);
  EXPECT_GT(per_codec["q8"], 6U);
  EXPECT_EQ(per_codec["q8"] % 2, 0U);

  std::vector<std::vector<std::byte>> memory;
  std::vector<Target> targets;
  for (const TensorInfo& tensor : tensors) {
    Target target;
    static_cast<Shard&>(target) = {tensor.section, tensor.name, tensor.dtype, tensor.shape, {}};
    target.boxes = {{std::vector<std::uint64_t>(tensor.shape.size(), 0), tensor.shape}};
    memory.emplace_back(shard::elements_of(tensor.shape) * bits_of(tensor.dtype) / 8);
    target.data = memory.back().data();
    targets.push_back(std::move(target));
  }
  checkpointer.load(1, targets);
}

TEST_F(Tensors, AreInCatalogOrderAndSelected) {
  Checkpointer checkpointer = make();
  checkpointer.save(1, state_.sources());
  const std::vector<TensorInfo> all = checkpointer.tensors(1);
  EXPECT_EQ(all.size(), small_state().size());
  EXPECT_TRUE(std::ranges::is_sorted(all, [](const TensorInfo& a, const TensorInfo& b) {
    return plan::in_catalog_order(a.section, a.name, b.section, b.name);
  }));
  const auto selected = [&](const Selection& selection) { return lines_of(checkpointer.tensors(1, selection)); };
  const std::string one = lines_of({all.front()});
  EXPECT_EQ(selected({{all.front().section}, {all.front().name}}), one);
  EXPECT_EQ(selected({{"no*"}, {}}), "");
  // Each rank can have a separate selection.
  EXPECT_EQ(selected(world_.rank == 0 ? Selection{{}, {all.front().name}} : Selection{{"none"}, {}}),
            world_.rank == 0 ? one : "");
  expect_error_everywhere(ErrorKind::kNotFound, "checkpoint-2", [&] { static_cast<void>(checkpointer.tensors(2)); });
}

/// All ranks save and the first half reads, and vice versa.
TEST_F(RankBlobs, AreHadByTheRanksThatAskForThem) {
  const bool is_early = world_.rank <= (world_.ranks - 1) / 2;
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, is_early ? 0 : 1, world_.rank, &half);
  const auto bytes_of = [](std::uint64_t rank) { return rank % 3 == 1 ? 0 : 20'000 * (rank + 1); };
  const auto save_and_load = [&](MPI_Comm saving, MPI_Comm loading, std::uint64_t step) {
    std::uint64_t saved = 0;
    if (saving != MPI_COMM_NULL) {
      const World savers(saving);
      Extras extras;
      extras.rank_blob = pattern(bytes_of(static_cast<std::uint64_t>(savers.rank)), savers.rank);
      RankState state(small_state(), Cut::kRows, savers.rank, savers.ranks);
      Checkpointer(saving, root_.path(), options_for_small_state("posix")).save(step, state.sources(), extras);
      saved = static_cast<std::uint64_t>(savers.ranks);
    }
    MPI_Bcast(&saved, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (loading == MPI_COMM_NULL) return;
    const World loaders(loading);
    const auto rank = static_cast<std::uint64_t>(loaders.rank);
    Checkpointer checkpointer(loading, root_.path(), options_for_small_state("posix"));
    const auto own = [&](std::uint64_t of) { return pattern(bytes_of(of), static_cast<int>(of)); };
    const bool is_same = saved == static_cast<std::uint64_t>(loaders.ranks);
    if (is_same) {
      EXPECT_EQ(checkpointer.load_extras(step).rank_blob, own(rank));
    } else {
      expect_error(ErrorKind::kState, [&] { static_cast<void>(checkpointer.load_extras(step)); },
                   {"by_rank(), all_to_rank_0() or chosen()"});
    }
    const Checkpointer::LoadedExtras extras = checkpointer.load_extras(step, BlobMapping::by_rank());
    EXPECT_EQ(extras.ranks, saved);
    EXPECT_EQ(extras.rank_blobs, saved);
    EXPECT_EQ(extras.rank_blob, rank < saved ? own(rank) : std::vector<std::byte>());
    EXPECT_TRUE(extras.blobs.empty());
    const auto all = checkpointer.load_extras(step, BlobMapping::all_to_rank_0()).blobs;
    EXPECT_EQ(all.size(), loaders.rank == 0 ? saved : 0);
    for (const auto& [of, blob] : all) EXPECT_EQ(blob, own(of));
    const auto spread = [&](std::uint64_t saving_ranks) {  // round robin, each blob twice
      std::vector<std::uint64_t> wanted;
      for (std::uint64_t of = rank; of < saving_ranks; of += static_cast<std::uint64_t>(loaders.ranks)) {
        wanted.insert(wanted.end(), {of, of});
      }
      return wanted;
    };
    const auto chosen = checkpointer.load_extras(step, BlobMapping::chosen(spread));
    EXPECT_TRUE(chosen.rank_blob.empty());
    EXPECT_EQ(chosen.blobs.size(), spread(saved).size() / 2);
    for (const auto& [of, blob] : chosen.blobs) EXPECT_EQ(blob, own(of));
    const auto refuse = [&](ErrorKind kind, const BlobMapping& mapping, const char* part) {
      expect_error(kind, [&] { static_cast<void>(checkpointer.load_extras(step, mapping)); }, {part});
    };
    refuse(ErrorKind::kState, BlobMapping::chosen([](std::uint64_t ranks) { return std::vector{ranks}; }),
           "none of them was rank");
    refuse(ErrorKind::kUsage, BlobMapping::chosen({}), "empty function");
    refuse(ErrorKind::kNotFound, BlobMapping::chosen([](std::uint64_t) -> std::vector<std::uint64_t> {
             throw Error(ErrorKind::kNotFound, "no such rank here");
           }),
           "no such rank here");
    if (loaders.ranks > 1) {
      refuse(ErrorKind::kUsage, rank == 0 ? BlobMapping() : BlobMapping::by_rank(), "argument 'mapping' differs");
    }
    const std::uint64_t other = (rank + 1) % saved;
    EXPECT_EQ(checkpointer.load_rank_blob(step, other), pattern(bytes_of(other), static_cast<int>(other)));
    const auto last_only = loaders.rank + 1 == loaders.ranks ? std::optional<std::uint64_t>(0) : std::nullopt;
    EXPECT_EQ(checkpointer.load_rank_blob(step, last_only),
              last_only ? pattern(bytes_of(0), 0) : std::vector<std::byte>());
    expect_error(
        ErrorKind::kState,
        [&] { static_cast<void>(checkpointer.load_rank_blob(step, last_only ? std::optional(saved) : last_only)); },
        {"none of them was rank " + std::to_string(saved), "BlobMapping"});
  };
  save_and_load(MPI_COMM_WORLD, is_early ? half : MPI_COMM_NULL, 1);
  MPI_Barrier(MPI_COMM_WORLD);
  save_and_load(is_early ? half : MPI_COMM_NULL, MPI_COMM_WORLD, 2);
  MPI_Comm_free(&half);
}

TEST_F(RankBlobs, ThereAreNoneWithoutABlobOfAnyRank) {
  Checkpointer checkpointer = make();
  checkpointer.save(1, state_.sources());
  const Checkpointer::LoadedExtras extras = checkpointer.load_extras(1);
  EXPECT_EQ(extras.rank_blobs, 0U);
  EXPECT_TRUE(extras.rank_blob.empty());
  EXPECT_TRUE(checkpointer.load_rank_blob(1, std::nullopt).empty());
  expect_error_everywhere(ErrorKind::kNotFound, "has no blobs of ranks",
                          [&] { static_cast<void>(checkpointer.load_rank_blob(1, 0)); });
}

TEST_F(RankBlobs, AreAsManyAsTheManifestSays) {
  Checkpointer checkpointer = make();
  Extras extras;
  extras.rank_blob = pattern(3, world_.rank);
  checkpointer.save(1, state_.sources(), extras);
  on_rank_0(world_, [&] {
    const fs::path path = root_ / "checkpoint-1/cairn.json";
    auto manifest = format::parse_manifest(read_file(path), path.string());
    EXPECT_EQ(manifest.rank_blobs, static_cast<std::uint64_t>(world_.ranks));
    ++manifest.rank_blobs;  // one more than the checkpoint has
    write_file(path, format::encode_manifest(manifest));
  });
  for (const BlobMapping& mapping : {BlobMapping(), BlobMapping::by_rank(), BlobMapping::all_to_rank_0()}) {
    expect_error_everywhere(ErrorKind::kFormat, "cairn.json names the blobs of",
                            [&] { static_cast<void>(checkpointer.load_extras(1, mapping)); });
  }
}

TEST_F(RankBlobs, TakeNoMemoryOfOtherRanksAndNoNewPlan) {
  constexpr std::uint64_t kBlobBytes = 6 << 20;
  Options options = options_for_small_state("posix");
  options.files.block_bytes = 64 << 10;
  options.limits.memory_budget_bytes = 1 << 20;
  Checkpointer checkpointer = make(options);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    Extras extras;
    extras.rank_blob = pattern(step == 3 ? kBlobBytes : 1000 * step, world_.rank);
    EXPECT_EQ(checkpointer.save(step, state_.sources(), extras).plan_reused, step > 1);
  }
  Checkpointer::LoadedExtras extras;
  const std::uint64_t grown = growth_bytes([&] { extras = checkpointer.load_extras(3); });
  EXPECT_EQ(extras.rank_blobs, static_cast<std::uint64_t>(world_.ranks));
  EXPECT_TRUE(extras.rank_blob == pattern(kBlobBytes, world_.rank));
  EXPECT_LT(grown, 2 * kBlobBytes) << "of " << world_.ranks << " blobs of " << kBlobBytes;
}

TEST_F(CarriedFiles, GoThroughInPieces) {
  constexpr std::uint64_t kBytes = (24 << 20) + 5;
  on_rank_0(world_, [&] { write_pattern(outside_ / "large.bin", kBytes); });
  Checkpointer checkpointer = make();
  checkpointer.save(1, state_.sources());  // makes the allocations that only the first save makes
  Extras extras;
  extras.carry_files = {outside_ / "large.bin"};
  extras.carry_texts = {{"empty.txt", ""}, {"trainer_state.json", "{\"step\": 1}"}};
  extras.metadata = {{"loss", "2.5"}};
  extras.layout = "fsdp=4";
  EXPECT_LT(growth_bytes([&] { checkpointer.save(2, state_.sources(), extras); }), kBytes / 2);
  const Checkpointer::LoadedExtras loaded = checkpointer.load_extras(2);
  EXPECT_EQ(loaded.metadata, extras.metadata);
  EXPECT_EQ(loaded.layout, extras.layout);
  EXPECT_EQ(loaded.carried, (std::map<std::string, std::uint64_t>{
                                {"empty.txt", 0}, {"large.bin", kBytes}, {"trainer_state.json", 11}}));

  const auto expected = pattern(kBytes, 1);
  std::uint64_t at = 0;
  std::uint64_t wrong = 0;
  const auto compare = [&](std::span<const std::byte> piece) {
    EXPECT_LE(piece.size(), std::size_t{4} << 20);
    EXPECT_FALSE(piece.empty());
    wrong += std::ranges::equal(piece, std::span(expected).subspan(at, piece.size())) ? 0 : 1;
    at += piece.size();
  };
  EXPECT_LT(growth_bytes([&] { checkpointer.load_carried(2, "large.bin", compare); }), kBytes / 2);
  EXPECT_EQ(at, kBytes);
  EXPECT_EQ(wrong, 0U);

  std::string text;
  const CarriedSink append = [&](std::span<const std::byte> piece) {
    text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  };
  checkpointer.load_carried(2, "trainer_state.json", append);
  EXPECT_EQ(text, "{\"step\": 1}");
  checkpointer.load_carried(2, "empty.txt", append);
  EXPECT_EQ(text.size(), 11U);
  // One rank at a time.
  for (int rank = 0; rank < world_.ranks; ++rank) {
    text.clear();
    checkpointer.load_carried(2, "trainer_state.json", world_.rank == rank ? append : CarriedSink());
    EXPECT_EQ(text.size(), world_.rank == rank ? 11U : 0U);
  }
}

TEST_F(CarriedFiles, ErrorsAreThoseOfAllRanks) {
  constexpr std::uint64_t kBytes = 9 << 20;
  on_rank_0(world_, [&] { write_pattern(outside_ / "large.bin", kBytes); });
  Checkpointer checkpointer = make();
  Extras extras;
  extras.carry_files = {outside_ / "large.bin"};
  checkpointer.save(1, state_.sources(), extras);
  for (const char* name : {"none.bin", "cairn.json", "model.safetensors.index.json", "../checkpoint-1/large.bin", ""}) {
    expect_error_everywhere(ErrorKind::kNotFound, std::string("carries no file '") + name + "'",
                            [&] { checkpointer.load_carried(1, name, {}); });
  }
  const int last = world_.ranks - 1;
  int pieces = 0;
  const auto fail_at_second = [&](auto error) {
    pieces = 0;
    return [&pieces, this, last, error](std::span<const std::byte>) {
      if (++pieces == 2 && world_.rank == last) throw error;
    };
  };
  expect_error_everywhere(ErrorKind::kState, "the disk of this rank is full", [&] {
    checkpointer.load_carried(1, "large.bin",
                              fail_at_second(Error(ErrorKind::kState, "the disk of this rank is full")));
  });
  EXPECT_EQ(pieces, 2);
  expect_error_everywhere(ErrorKind::kInternal, "sink of a carried file: what happened", [&] {
    checkpointer.load_carried(1, "large.bin", fail_at_second(std::runtime_error("what happened")));
  });
  on_rank_0(world_, [&] {
    std::fstream file(root_ / "checkpoint-1" / "large.bin", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(kBytes - 1).put('\0');
  });
  std::uint64_t given = 0;
  expect_error_everywhere(ErrorKind::kIntegrity, "large.bin", [&] {
    checkpointer.load_carried(1, "large.bin", [&](std::span<const std::byte> piece) { given += piece.size(); });
  });
  EXPECT_EQ(given, kBytes);
  extras.carry_files = {outside_ / "gone.bin"};
  expect_error_everywhere(ErrorKind::kNotFound, "gone.bin", [&] { checkpointer.save(2, state_.sources(), extras); });
}

/// Another saver replaces the checkpoint while its file is opened, or after the first piece: the whole content comes
/// from one of the two checkpoints.
TEST_F(CarriedFiles, AreOfOneCheckpointThoughItIsReplaced) {
  constexpr std::uint64_t kBytes = 9 << 20;
  on_rank_0(world_, [&] { write_pattern(outside_ / "large.bin", kBytes); });
  Checkpointer checkpointer = make();
  Extras extras;
  extras.carry_texts = {{"large.bin", "another one"}};
  for (const std::uint64_t step : {2, 4}) checkpointer.save(step, state_.sources(), extras);
  extras.carry_texts = {};
  extras.carry_files = {outside_ / "large.bin"};
  for (const std::uint64_t step : {1, 3}) checkpointer.save(step, state_.sources(), extras);
  const auto replace = [&](const std::string& step, const std::string& by) {
    fs::remove_all(root_ / ("checkpoint-" + step));
    fs::rename(root_ / ("checkpoint-" + by), root_ / ("checkpoint-" + step));
  };
  std::vector<std::byte> found;
  const auto append = [&](std::span<const std::byte> piece) { found.insert(found.end(), piece.begin(), piece.end()); };
  checkpointer.load_carried(1, "large.bin", [&](std::span<const std::byte> piece) {
    if (found.empty() && world_.rank == 0) replace("1", "2");
    append(piece);
  });
  EXPECT_TRUE(found == pattern(kBytes, 1));

  const fs::path go = root_ / "go";
  std::thread other;
  if (world_.rank == 0) {
    other = std::thread([&] {
      wait_until_paused(go);
      replace("3", "4");
      std::ofstream(go).close();
    });
  }
  found.clear();
  {
    const Faults faults("open:path=large.bin:rank=0:times=1:pause=" + go.string());
    EXPECT_NO_THROW(checkpointer.load_carried(3, "large.bin", append));
  }
  if (other.joinable()) other.join();
  EXPECT_EQ(found.size(), 11U);
}

}  // namespace
}  // namespace cairn::test
