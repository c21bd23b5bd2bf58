// NaN and infinite values in a save: each is counted once, however its bytes reach the files.
#include "checkpoint/non_finite.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <mutex>

#include "random.hpp"
#include "simulated_save.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using checkpoint::FloatsInFile;
using checkpoint::NonFiniteCounter;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A file in random pieces on several ranks, cut anywhere, even inside values.
TEST(NonFinite, ValuesThatAreCutAreCountedOnce) {
  auto random = make_random(1);
  for (int i = 0; i < 30; ++i) {
    const int ranks = static_cast<int>(uniform(random, 1, 4));
    std::vector<std::byte> file(2000);
    for (std::byte& byte : file)
      byte = static_cast<std::byte>(uniform(random, 0, 2) == 0 ? 0xff : uniform(random, 0, 255));
    std::vector<FloatsInFile> floats;
    quant::NonFiniteCount expected;
    std::uint64_t begin = 0;
    for (const DType dtype : {DType::kF64, DType::kC64, DType::kF32, DType::kBF16, DType::kF8E4M3}) {
      begin += 8 * uniform(random, 0, 3);
      const std::uint64_t end = begin + 8 * uniform(random, 1, 40);
      floats.push_back({0, static_cast<std::uint32_t>(floats.size()), begin, end, dtype});
      expected += quant::count_non_finite(dtype, std::span(file).subspan(begin, end - begin));
      begin = end;
    }
    struct Piece {
      int rank;
      std::uint64_t begin;
      std::uint64_t end;
    };
    std::vector<Piece> pieces;
    for (std::uint64_t at = 0; at < file.size(); at = pieces.back().end) {
      const std::uint64_t end = std::min<std::uint64_t>(at + uniform(random, 1, 60), file.size());
      pieces.push_back({static_cast<int>(uniform(random, 0, static_cast<std::uint64_t>(ranks) - 1)), at, end});
    }
    std::shuffle(pieces.begin(), pieces.end(), random);
    std::vector<plan::CatalogTensor> tensors;
    for (const FloatsInFile& one : floats)
      tensors.push_back({"model", "t" + std::to_string(one.tensor), one.dtype, {1}});
    const plan::PackedCatalog catalog(plan::make_catalog(tensors));
    comm::run_simulated(ranks, [&](comm::Communicator& communicator) {
      NonFiniteCounter counter(floats);
      for (const Piece& piece : pieces) {
        if (piece.rank != communicator.rank()) continue;
        counter.add(0, piece.begin, std::span(file).subspan(piece.begin, piece.end - piece.begin));
      }
      const NonFiniteValues values = checkpoint::collect_non_finite(communicator, counter, catalog);
      EXPECT_EQ(values.nans, expected.nans);
      EXPECT_EQ(values.infinities, expected.infinities);
    });
  }
}

/// PaddlePaddle's files store BF16 as U16.
TEST(NonFinite, DtypesAreThoseOfTheProgram) {
  const plan::PackedCatalog catalog(
      plan::make_catalog({{"model", "a", DType::kU16, {3}}, {"model", "b", DType::kBF16, {5}}}));
  plan::LayoutOptions options;
  options.bf16_as_u16 = true;
  const plan::HfLayout files(catalog, options);
  const std::vector<std::uint64_t> header_bytes = {4096};
  const std::vector<std::uint32_t> wanted = {0};
  const auto floats = checkpoint::floats_in_files(files, files.without_content(header_bytes), wanted);
  ASSERT_EQ(floats.size(), 1U);
  EXPECT_EQ(floats[0].tensor, 1U);
  EXPECT_EQ(floats[0].begin, 4096U + 6);
  EXPECT_EQ(floats[0].end, 4096U + 16);
}

/// One rank's rows of a state of F32 tensors t0, t1 ... of 300 x 257.
class Values {
 public:
  Values(std::size_t tensors, int rank, int ranks) {
    const auto first = [&](int r) { return static_cast<std::uint64_t>(r) * 300 / static_cast<std::uint64_t>(ranks); };
    begin_ = first(rank);
    for (std::size_t t = 0; t < tensors; ++t) {
      Source source;
      source.section = t % 2 == 0 ? "model" : "optimizer";
      source.name = "t" + std::to_string(t);
      source.shape = {300, 257};
      source.boxes = {{{begin_, 0}, {first(rank + 1) - begin_, 257}}};
      values_.emplace_back(source.boxes[0].shape[0] * 257, 1.0F);
      sources_.push_back(source);
    }
    for (std::size_t t = 0; t < tensors; ++t) sources_[t].data = values_[t].data();
  }
  void put(std::size_t tensor, std::uint64_t row, std::uint64_t column, float value) {
    const std::uint64_t rows = sources_[tensor].boxes[0].shape[0];
    if (row >= begin_ && row < begin_ + rows) values_[tensor][(row - begin_) * 257 + column] = value;
  }
  [[nodiscard]] const std::vector<Source>& sources() const { return sources_; }

 private:
  std::uint64_t begin_ = 0;
  std::vector<std::vector<float>> values_;
  std::vector<Source> sources_;
};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinite = std::numeric_limits<float>::infinity();

struct Found {
  Report report;
  std::string error;
};

Found save_with(const Options& options, int ranks, std::size_t tensors, const std::function<void(Values&)>& spoil) {
  const TempDir root;
  Found found;
  std::mutex mutex;
  comm::run_simulated(ranks, [&](comm::Communicator& communicator) {
    Values values(tensors, communicator.rank(), ranks);
    if (spoil) spoil(values);
    io::WindowStore store;
    checkpoint::Saver saver(communicator, options, store);
    Report report;
    std::string error;
    try {
      report = saver.save(root.path() / "c", 1, values.sources(), {});
    } catch (const Error& failure) {
      EXPECT_EQ(failure.kind(), ErrorKind::kState);
      error = failure.what();
    }
    EXPECT_EQ(fs::exists(root.path() / "c"), error.empty());
    const std::lock_guard lock(mutex);
    if (communicator.rank() == ranks - 1) found = {report, error};
  });
  return found;
}

/// Options for a save through windows or, on the file system in memory where these tests run, past the windows.
Options options_of(NonFinite action, bool has_windows) {
  Options options;
  options.engine.name = "posix";
  options.engine.aggregators_per_node = has_windows ? 2 : 0;
  options.files.block_bytes = 4096;
  options.limits.memory_budget_bytes = 64 << 10;
  options.checks.non_finite = action;
  return options;
}

TEST(NonFinite, AreCountedByTensorOverAllRanks) {
  for (const bool has_windows : {false, true}) {
    for (const int ranks : {1, 3, 4}) {
      const Found none = save_with(options_of(NonFinite::kCount, has_windows), ranks, 3, {});
      ASSERT_TRUE(none.report.non_finite);
      EXPECT_EQ(none.report.non_finite->tensors, 0U);
      const auto spoil = [](Values& values) {
        for (std::uint64_t row = 0; row < 300; row += 3) values.put(2, row, row % 257, kNan);
        values.put(2, 299, 256, -kInfinite);
        values.put(1, 0, 0, kInfinite);
      };
      const Found some = save_with(options_of(NonFinite::kCount, has_windows), ranks, 3, spoil);
      ASSERT_TRUE(some.report.non_finite);
      const NonFiniteValues& found = *some.report.non_finite;
      EXPECT_EQ(found.nans, 100U);
      EXPECT_EQ(found.infinities, 2U);
      EXPECT_EQ(found.tensors, 2U);
      ASSERT_EQ(found.first.size(), 2U);
      EXPECT_EQ(found.first[0].name, "t2");
      EXPECT_EQ(found.first[0].section, "model");
      EXPECT_EQ(found.first[0].nans, 100U);
      EXPECT_EQ(found.first[0].infinities, 1U);
      EXPECT_EQ(found.first[1].name, "t1");
      EXPECT_EQ(found.first[1].infinities, 1U);
      EXPECT_THAT(some.report.warnings, IsEmpty());
    }
  }
}

TEST(NonFinite, MayBeAWarningOrRefusedOrNotLookedFor) {
  const auto spoil = [](Values& values) {
    for (std::size_t t = 0; t < 12; ++t) values.put(t, 7, 7, kNan);
    values.put(0, 8, 8, kInfinite);
  };
  const Found warned = save_with(options_of(NonFinite::kWarn, true), 3, 12, spoil);
  EXPECT_THAT(warned.report.warnings,
              ElementsAre(AllOf(HasSubstr("13 values are not finite: 't0' (section model) 1 NaN and 1 infinite, 't2'"),
                                HasSubstr("and 4 more tensors"))));
  EXPECT_THAT(save_with(options_of(NonFinite::kRefuse, false), 3, 12, spoil).error, HasSubstr("values are not finite"));
  EXPECT_EQ(save_with(options_of(NonFinite::kRefuse, false), 3, 2, {}).error, "");
  const Found ignored = save_with(options_of(NonFinite::kIgnore, false), 2, 12, spoil);
  EXPECT_FALSE(ignored.report.non_finite);
  EXPECT_THAT(ignored.report.warnings, IsEmpty());
}

}  // namespace
}  // namespace cairn::test
