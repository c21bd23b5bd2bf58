// Staging files of many ranks: written and read in every cut and with any number of ranks, and as an independent check
// of checkpoints.
#include "cairn/staging.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <fstream>
#include <iterator>
#include <string>

#include "comm/mpi.hpp"
#include "environment.hpp"
#include "expect_converted.hpp"
#include "expect_error.hpp"
#include "faults.hpp"
#include "os/fault.hpp"
#include "same_text.hpp"
#include "sharded_state.hpp"
#include "shared_temp_dir.hpp"
#include "with_gaps.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

using testing::HasSubstr;

constexpr Cut kCuts[] = {Cut::kReplicated, Cut::kRows,    Cut::kColumns, Cut::kFlat,
                         Cut::kGrid,       Cut::kOneRank, Cut::kMixed};

/// The first `ranks` of the world; MPI_COMM_NULL on the others.
class FirstRanks {
 public:
  explicit FirstRanks(int ranks) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank < ranks ? 0 : MPI_UNDEFINED, rank, &comm_);
    if (comm_ != MPI_COMM_NULL) MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  }
  ~FirstRanks() {
    if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
  }
  FirstRanks(const FirstRanks&) = delete;
  FirstRanks& operator=(const FirstRanks&) = delete;
  [[nodiscard]] bool has_me() const { return comm_ != MPI_COMM_NULL; }
  [[nodiscard]] MPI_Comm get() const { return comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

class Staging : public testing::Test {
 protected:
  Report stage_in(Cut cut, int version, MPI_Comm comm = MPI_COMM_WORLD) {
    RankState state = state_of(cut, comm);
    state.fill(version);
    return stage(comm, file_, state.sources(), options_, {{"purpose", "reference"}});
  }
  /// Loads the file in `cut` and compares every byte with the expected bytes of `version`.
  void expect_in(Cut cut, int version, MPI_Comm comm = MPI_COMM_WORLD) {
    RankState state = state_of(cut, comm);
    state.clear();
    const Report report = load_from(comm, file_, state.targets(), options_);
    EXPECT_EQ(report.engine, "hdf5");
    EXPECT_EQ(state.matching_bytes(version), state.bytes());
    EXPECT_GT(report.bytes, 500'000U);
  }
  static RankState state_of(Cut cut, MPI_Comm comm) {
    const World world(comm);
    return {small_state(), cut, world.rank, world.ranks};
  }

  const World world_;
  SharedTempDir directory_;
  std::filesystem::path file_ = directory_ / "state.h5";
  Options options_ = options_for_small_state();
};

TEST_F(Staging, MemoryWithGaps) {
  const World world;
  RankState state = state_of(Cut::kGrid, MPI_COMM_WORLD);
  state.fill(3);
  stage(MPI_COMM_WORLD, file_, Gapped<Source>(state.sources(), world.rank).entries(), options_);
  expect_in(Cut::kColumns, 3);
  for (const Cut cut : {Cut::kFlat, Cut::kMixed}) {
    RankState loaded = state_of(cut, MPI_COMM_WORLD);
    const Gapped<Target> targets(loaded.targets(), world.rank);
    const Report report = load_from(MPI_COMM_WORLD, file_, targets.entries(), options_);
    EXPECT_EQ(report.engine, "hdf5");
    targets.finish_load();
    EXPECT_EQ(loaded.matching_bytes(3), loaded.bytes());
  }
}

TEST_F(Staging, EveryCutInAndEveryCutOut) {
  options_.overwrite = true;
  int version = 0;
  for (const Cut in : kCuts) {
    const Report report = stage_in(in, ++version);
    EXPECT_EQ(report.tensors, small_state().size());
    EXPECT_EQ(report.files, 1U);
    expect_in(kCuts[static_cast<std::size_t>(version) % 7], version);
    expect_in(kCuts[static_cast<std::size_t>(version + 3) % 7], version);
  }
}

TEST_F(Staging, BlocksMayEndWithinElements) {
  options_.overwrite = true;
  int version = 0;
  for (const std::uint64_t block_bytes : {61, 1021, 4099}) {
    options_.files.block_bytes = block_bytes;
    stage_in(Cut::kMixed, ++version);
    expect_in(Cut::kColumns, version);
  }
}

TEST_F(Staging, OtherNumbersOfRanksReadIt) {
  const FirstRanks some((world_.ranks + 1) / 2);
  stage_in(Cut::kMixed, 1);
  if (some.has_me()) expect_in(Cut::kColumns, 1, some.get());
  MPI_Barrier(MPI_COMM_WORLD);
  options_.overwrite = true;
  if (some.has_me()) stage_in(Cut::kFlat, 2, some.get());
  MPI_Barrier(MPI_COMM_WORLD);
  expect_in(Cut::kMixed, 2);
}

TEST_F(Staging, AnyNumberOfRanksAndAnyEngineWriteTheSameBytes) {
  stage_in(Cut::kMixed, 1);
  const std::string by_all = read_file(file_);
  const FirstRanks one(1);
  for (const char* engine : {"posix", "direct", "mpiio"}) {
    MPI_Barrier(MPI_COMM_WORLD);
    options_.engine.name = engine;
    options_.overwrite = true;
    RankState state = state_of(Cut::kReplicated, MPI_COMM_WORLD);
    state.fill(1);
    // Only the manifest depends on the number of ranks: 1 in one file and more in the other.
    if (one.has_me()) stage(one.get(), directory_ / "one.h5", state.sources(), options_, {{"purpose", "reference"}});
    stage_in(Cut::kColumns, 1);
    EXPECT_TRUE(read_file(file_) == by_all) << engine;
    if (one.has_me()) {
      EXPECT_EQ(read_file(directory_ / "one.h5").size(), by_all.size());
    }
  }
}

// Compares data that Checkpointer saves and loads with data that HDF5 reads: the two paths share no code for the data.
TEST_F(Staging, IsAWitnessForACheckpoint) {
  stage_in(Cut::kRows, 5);
  RankState saved = state_of(Cut::kMixed, MPI_COMM_WORLD);
  saved.fill(5);
  Checkpointer checkpointer(MPI_COMM_WORLD, directory_ / "root", options_);
  checkpointer.save(1, saved.sources());
  for (const Cut cut : kCuts) {
    RankState loaded = state_of(cut, MPI_COMM_WORLD);
    RankState reference = state_of(cut, MPI_COMM_WORLD);
    checkpointer.load(1, loaded.targets());
    load_from(MPI_COMM_WORLD, file_, reference.targets(), options_);
    EXPECT_EQ(loaded.equal_bytes(reference), loaded.bytes());
  }
  saved.fill(6);  // a different state is noticed
  checkpointer.save(2, saved.sources());
  RankState loaded = state_of(Cut::kReplicated, MPI_COMM_WORLD);
  RankState reference = state_of(Cut::kReplicated, MPI_COMM_WORLD);
  checkpointer.load(2, loaded.targets());
  load_from(MPI_COMM_WORLD, file_, reference.targets(), options_);
  EXPECT_LT(loaded.equal_bytes(reference), loaded.bytes() / 10);
}

TEST_F(Staging, LoadsFromDirectoriesAsWell) {
  RankState state = state_of(Cut::kMixed, MPI_COMM_WORLD);
  state.fill(3);
  Checkpointer(MPI_COMM_WORLD, directory_ / "root", options_).save(7, state.sources());
  RankState loaded = state_of(Cut::kFlat, MPI_COMM_WORLD);
  load_from(MPI_COMM_WORLD, directory_ / "root" / "checkpoint-7", loaded.targets(), options_);
  EXPECT_EQ(loaded.matching_bytes(3), loaded.bytes());
}

TEST_F(Staging, LoadsIntoOtherFloats) {
  const auto tensors = [](std::optional<DType> dtype) {
    std::vector<StateTensor> out;
    for (const DType own : {DType::kF64, DType::kF32, DType::kBF16, DType::kF8E4M3}) {
      out.push_back({"model", std::string(name_of(own)), dtype.value_or(own), {61, 20}});
      out.push_back({"optimizer", std::string(name_of(own)) + ".cube", dtype.value_or(own), {5, 7, 9}});
    }
    return out;
  };
  RankState state(tensors(std::nullopt), Cut::kRows, world_.rank, world_.ranks);
  state.fill(1);
  stage(MPI_COMM_WORLD, file_, state.sources(), options_);
  RankState truth(tensors(std::nullopt), Cut::kColumns, world_.rank, world_.ranks);
  truth.fill(1);
  LoadOptions cast;
  cast.cast_floats = true;
  for (const DType to : {DType::kF32, DType::kBF16, DType::kF64}) {
    RankState converted(tensors(to), Cut::kColumns, world_.rank, world_.ranks);
    converted.clear();
    const Gapped<Target> gapped(converted.targets(), world_.rank);
    const Report report = load_from(MPI_COMM_WORLD, file_, gapped.entries(), options_, cast);
    gapped.finish_load();
    EXPECT_EQ(report.engine, "hdf5");
    EXPECT_EQ(expect_converted(truth.targets(), converted.targets()), converted.bytes());
  }
  RankState refused(tensors(DType::kF16), Cut::kColumns, world_.rank, world_.ranks);
  try {
    load_from(MPI_COMM_WORLD, file_, refused.targets(), options_);
    ADD_FAILURE() << "F16 was loaded from other floats, which nobody asked for";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kState);
    EXPECT_THAT(error.what(), HasSubstr("LoadOptions::cast_floats would convert it"));
  }
}

TEST_F(Staging, ComparesReplicas) {
  RankState state = state_of(Cut::kReplicated, MPI_COMM_WORLD);
  state.fill(world_.rank == world_.ranks - 1 ? 2 : 1);
  const auto stage_it = [&] { return stage(MPI_COMM_WORLD, file_, state.sources(), options_); };
  const bool differ = world_.ranks > 1;
  options_.checks.replicas_differ = ReplicasDiffer::kRefuse;
  if (differ) {
    const std::string message = message_of_error(ErrorKind::kState, stage_it);
    EXPECT_THAT(message, HasSubstr("its replicas differ"));
    expect_same_everywhere(message);
    EXPECT_FALSE(std::filesystem::exists(file_));
  }
  options_.checks.replicas_differ = ReplicasDiffer::kWarn;
  EXPECT_EQ(stage_it().warnings.size(), differ ? 1U : 0U);
  options_.checks.replicas = ReplicaCheck::kOff;
  options_.overwrite = true;
  EXPECT_THAT(stage_it().warnings, testing::IsEmpty());
}

TEST_F(Staging, SaysWhatMayBeReplacedBeforeAnythingIsWritten) {
  const auto refusal = [&] { return message_of_error(ErrorKind::kUsage, [&] { stage_in(Cut::kRows, 1); }); };
  if (world_.rank == 0) {
    std::filesystem::create_directory(directory_ / "folder.h5");
    std::ofstream(directory_ / "text.h5") << "no staging file";
  }
  MPI_Barrier(MPI_COMM_WORLD);
  file_ = directory_ / "text.h5";
  EXPECT_THAT(refusal(), HasSubstr("Options::overwrite_foreign"));
  options_.overwrite = true;
  EXPECT_THAT(refusal(), HasSubstr("Options::overwrite_foreign"));
  file_ = directory_ / "folder.h5";
  EXPECT_THAT(refusal(), HasSubstr("is a directory"));
  options_.overwrite_foreign = true;
  EXPECT_THAT(refusal(), HasSubstr("is a directory"));
  file_ = directory_ / "text.h5";
  {
    const Faults faults("open:path=text.h5:errno=EACCES:rank=0");
    const std::string text = message_of_error(ErrorKind::kIo, [&] { stage_in(Cut::kRows, 1); });
    EXPECT_THAT(text, testing::AllOf(HasSubstr("cannot be read now"), HasSubstr("Permission denied")));
  }
  stage_in(Cut::kRows, 1);
  expect_in(Cut::kRows, 1);
}

TEST_F(Staging, ReplacesNoForeignFileThatAppearsMeanwhile) {
  options_.overwrite = true;
  options_.progress = [&](const Progress&) {
    if (world_.rank == 0) std::ofstream(file_) << "somebody's";
  };
  const std::string text = message_of_error(ErrorKind::kUsage, [&] { stage_in(Cut::kRows, 1); });
  EXPECT_THAT(text, HasSubstr("Options::overwrite_foreign"));
  expect_same_everywhere(text);
  std::ifstream in(file_);
  EXPECT_EQ((std::string{std::istreambuf_iterator<char>(in), {}}), "somebody's");
}

TEST_F(Staging, SaysWhatIsWrong) {
  const auto error_of = [&](ErrorKind kind, const std::function<void()>& work) -> std::string {
    try {
      work();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "no error on rank " << world_.rank;
    return "";
  };
  stage_in(Cut::kRows, 1);
  EXPECT_THAT(error_of(ErrorKind::kUsage, [&] { stage_in(Cut::kRows, 2); }), HasSubstr("exists already"));
  expect_in(Cut::kRows, 1);
  options_.files.align_bytes = 12;
  EXPECT_THAT(error_of(ErrorKind::kUsage, [&] { stage_in(Cut::kRows, 2); }), HasSubstr("align_bytes is 12"));
  options_.files = options_for_small_state().files;
  const auto stage_nothing = [&] { stage(MPI_COMM_WORLD, directory_ / "new.h5", {}, options_, {{"key", "\xff"}}); };
  EXPECT_THAT(error_of(ErrorKind::kUsage, stage_nothing),
              HasSubstr("the metadata given to stage(): the value of 'key'"));
  file_ = directory_ / "state.bin";
  EXPECT_THAT(error_of(ErrorKind::kUsage, [&] { stage_in(Cut::kRows, 2); }), HasSubstr("ends in .h5 or .hdf5"));
  file_ = directory_ / "missing.h5";
  EXPECT_THAT(error_of(ErrorKind::kNotFound, [&] { expect_in(Cut::kRows, 1); }), HasSubstr("does not exist"));
  file_ = directory_ / "state.h5";
  std::vector<float> memory(10);
  const Shard other{"model", "scale", DType::kF32, {10}, {{{0}, {10}}}};
  EXPECT_THAT(error_of(ErrorKind::kState,
                       [&] {
                         load_from(MPI_COMM_WORLD, file_, std::vector<Target>{{other, memory.data()}});
                       }),
              HasSubstr("tensor 'scale' (section model) is F32 [], expected F32 [10]"));
  const Shard unknown{"model", "unknown", DType::kF32, {10}, {{{0}, {10}}}};
  EXPECT_THAT(error_of(ErrorKind::kNotFound,
                       [&] {
                         load_from(MPI_COMM_WORLD, file_, std::vector<Target>{{unknown, memory.data()}});
                       }),
              HasSubstr("no tensor 'unknown'"));
}

}  // namespace
}  // namespace cairn::test
