// A year of a run by a clock of its own: many saves of a tiny state, pruned by rules. At the end the root has what the
// rules keep, and listing, resuming and pruning are quick. CAIRN_YEAR_SAVES sets the number of saves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <set>
#include <string>

#include "base/bytes.hpp"
#include "checkpoint/save.hpp"
#include "format/crc32c.hpp"
#include "os/file.hpp"
#include "root/commit.hpp"
#include "root/prune.hpp"
#include "simulated_save.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kDayS = 24 * 3600;
constexpr std::int64_t kStartS = 20'000 * kDayS;
constexpr std::uint64_t kStepsPerSave = 100;
constexpr std::uint64_t kMilestone = 5000;
constexpr std::uint64_t kSavesPerPruning = 10;

class Year {
 public:
  Year(comm::Communicator& communicator, const fs::path& root, std::uint64_t saves)
      : communicator_(communicator),
        saves_(saves),
        lease_(lease_of(root, small_options())),
        life_{.lease = lease_.get(), .lineage = {}} {
    rules_.keep_last = 3;
    rules_.keep_every = kMilestone;
    rules_.keep_best = {{"loss", Best::kMin, 2}};
    rules_.keep_by_age = true;
  }

  void run() {
    for (std::uint64_t i = 1; i <= saves_; ++i) {
      save(i);
      if (i % kSavesPerPruning != 0 && i != saves_) continue;
      const root::PrunePlan plan = plan_now(i);
      pruned_ += plan.order.size();
      EXPECT_TRUE(root::prune(*lease_, plan, loads_).warnings.empty());
    }
  }

  [[nodiscard]] std::uint64_t pruned() const { return pruned_; }
  [[nodiscard]] std::int64_t time_of(std::uint64_t save) const {
    return kStartS + static_cast<std::int64_t>(save) * 365 * kDayS / static_cast<std::int64_t>(saves_);
  }
  root::PrunePlan plan_now(std::uint64_t save) {
    return root::plan_prune(lease_->root(), rules_, loads_, time_of(save) + 1);
  }

 private:
  void save(std::uint64_t number) {
    root::hold_root(communicator_, lease_.get());
    const std::uint64_t step = number * kStepsPerSave;
    const fs::path directory = root::checkpoint_directory(lease_->root(), step);
    root::CommitTarget target{directory, {}, true, ReadBack::kOff, lease_.get()};
    root::CommitContent content;
    content.manifest.has_step = true;
    content.manifest.step = step;
    content.manifest.metrics["loss"] = static_cast<double>(number * 7919 % 1000);
    checkpoint::set_life(life_, target, content.manifest);
    content.blocks.block_bytes = 64;
    root::Commit(communicator_, std::move(target)).finish(std::move(content));
    const auto age = fs::file_time_type::clock::to_sys(fs::file_time_type::clock::now()).time_since_epoch() -
                     std::chrono::seconds(time_of(number));
    fs::last_write_time(directory / format::kManifestFile,
                        fs::file_time_type::clock::now() - std::chrono::duration_cast<std::chrono::seconds>(age));
  }

  comm::Communicator& communicator_;
  std::uint64_t saves_;
  std::unique_ptr<root::Lease> lease_;
  checkpoint::RootLife life_;
  Retention rules_;
  root::LoadWatch loads_;
  std::uint64_t pruned_ = 0;
};

/// Fails unless `work` takes less than a second.
template <class Work>
auto quickly(const char* what, Work work) {
  const auto start = std::chrono::steady_clock::now();
  auto result = work();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_LT(seconds, 1) << what;
  std::cout << what << ": " << seconds << " s" << std::endl;
  return result;
}

TEST(Year, EndsWithWhatTheRulesKeep) {
  const char* const given = std::getenv("CAIRN_YEAR_SAVES");
  const std::uint64_t saves = given != nullptr ? std::stoull(given) : 500;
  const TempDir root;
  comm::run_simulated(1, [&](comm::Communicator& communicator) {
    Year year(communicator, root.path(), saves);
    year.run();
    const auto entries = quickly("list", [&] { return root::list_root(root.path()); });
    EXPECT_EQ(quickly("latest", [&] { return root::newest_step(root.path()); }), saves * kStepsPerSave);
    const auto plan = quickly("plan a pruning", [&] { return year.plan_now(saves); });
    EXPECT_TRUE(plan.order.empty());
    std::set<std::int64_t> days;
    std::uint64_t milestones = 0;
    for (const root::RootEntry& entry : entries) {
      EXPECT_TRUE(entry.is_complete());
      days.insert(year.time_of(entry.step / kStepsPerSave) / kDayS);
      milestones += entry.step % kMilestone == 0 ? 1 : 0;
    }
    EXPECT_EQ(milestones, saves * kStepsPerSave / kMilestone);
    EXPECT_GE(days.size(), std::min<std::uint64_t>(365, saves / 2));
    EXPECT_LE(entries.size(), 366 + 24 + 3 + 2 + milestones);
    EXPECT_EQ(entries.size() + year.pruned(), saves);
  });
  std::cout << "[cairn] did " << saves << " saves of a year" << std::endl;
}

}  // namespace
}  // namespace cairn::test
