// Random histories of a root, compared with a model of the loadable steps. They have saves by several lives, saves that
// fail or are cut off at every step, savers that were presumed dead, and resumes by a Checkpointer and by other means.
// They also have prunings under random rules, complete or cut off at every step, pins, roll-backs, damage, manifests
// that are unreadable for a while, directories of other programs and of a newer Cairn, users who edit or delete
// Cairn's files, and clocks that jump.
//
// Each data file has one small tensor and is committed directly; other tests plan and move real data. The test reads
// back like load() and load_latest(). CAIRN_HISTORIES sets the number of histories; the default takes seconds.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <set>

#include "base/bytes.hpp"
#include "cairn/error.hpp"
#include "cairn/log.hpp"
#include "checkpoint/newest.hpp"
#include "checkpoint/save.hpp"
#include "faults.hpp"
#include "format/crc32c.hpp"
#include "history_faults.hpp"
#include "manual_clock.hpp"
#include "random.hpp"
#include "root/lease_folder.hpp"
#include "root/pins.hpp"
#include "root/prune.hpp"
#include "root/root_state.hpp"
#include "root_model.hpp"
#include "simulated_save.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using root::Condition;

constexpr const char* kDataFile = "model.safetensors";
constexpr std::uint64_t kSteps = 9;
constexpr std::uint64_t kWeightsBytes = 16;

constexpr std::uint64_t kBlockBytes = 64;

/// A data file: a header of two blocks, and one tensor in a third.
std::string file_of(std::uint64_t number) {
  const std::string weights = fmt::format("weights {:>8}", number);
  const std::string about =
      fmt::format(R"({{"w":{{"dtype":"U8","shape":[{0}],"data_offsets":[0,{0}]}}}})", kWeightsBytes);
  const std::string header = fmt::format("{:<{}}", about, 2 * kBlockBytes - 8);
  std::string file;
  for (unsigned shift = 0; shift < 64; shift += 8) file += static_cast<char>(header.size() >> shift & 0xff);
  return file + header + weights;
}

std::vector<std::uint32_t> checksums_of(std::string_view file) {
  std::vector<std::uint32_t> checksums;
  for (; !file.empty(); file.remove_prefix(std::min<std::size_t>(file.size(), kBlockBytes))) {
    checksums.push_back(format::crc32c(base::as_bytes(file.substr(0, kBlockBytes))));
  }
  return checksums;
}

/// A process that saves into the root like a Checkpointer.
struct Life {
  std::unique_ptr<ManualClock> clock;
  std::unique_ptr<root::Lease> lease;
  checkpoint::RootLife root;
  std::optional<std::pair<std::size_t, std::uint64_t>> from;  ///< the model's life and save from which it resumed
  std::optional<std::size_t> number;                          ///< its number in the model, once it has the lease
};

class History {
 public:
  History(comm::Communicator& communicator, std::uint64_t number)
      : communicator_(communicator), random_(make_random(number)) {
    begin_life();
  }

  void run() {
    const std::uint64_t events = draw(5, 25);
    try {
      for (std::uint64_t i = 0; i < events && !testing::Test::HasFailure(); ++i) {
        happen();
        check();
      }
      check_loads();
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
    if (testing::Test::HasFailure()) std::cout << "history: " << told_ << std::endl;
  }
  [[nodiscard]] std::uint64_t saves() const { return model_.saves; }
  [[nodiscard]] std::uint64_t pruned() const { return gone_; }

 private:
  std::uint64_t draw(std::uint64_t low, std::uint64_t high) { return uniform(random_, low, high); }
  bool draw_one_in(std::uint64_t n) { return draw(1, n) == 1; }
  [[nodiscard]] fs::path directory(std::uint64_t step) const { return root::checkpoint_directory(root_.path(), step); }
  void tell(const std::string& event) { told_ += event + "; "; }

  void happen() {
    switch (draw(0, 16)) {
      case 8: return prune();
      case 9: return prune();
      case 10: return change_pins();
      case 6: return stand_still();
      case 7: return be_unreadable();
      case 0: return end_life();
      case 1: return resume();
      case 2: return damage();
      case 3: return come_from_elsewhere();
      case 4: return meddle();
      case 5: return save_of_a_zombie();
      default: return save(life_, draw(1, kSteps));
    }
  }

  void begin_life() {
    become_new();
    resume();
  }

  void become_new() {
    life_.lease.reset();  // must end before its clock
    life_ = {};
    life_.clock = std::make_unique<ManualClock>();
    life_.lease = lease_of(root_.path(), small_options(), *life_.clock);
    life_.root.lease = life_.lease.get();
  }

  /// The process stops for longer than its lease time, as on a suspended machine.
  /// In the model this is a new life that descends from all saves of the old one.
  void stand_still() {
    if (!life_.number) return;
    tell("stand still");
    life_.clock->jump(std::chrono::hours(1));
    life_.from = {*life_.number, order_};
    life_.number.reset();
  }

  /// The process ends, or is presumed dead and continues later.
  void end_life() {
    const bool is_zombie = draw_one_in(3) && life_.number;
    tell(is_zombie ? "taken for dead" : "end");
    if (is_zombie) {
      release_by_mistake();
      zombies_.push_back(std::move(life_));
    }
    begin_life();
  }

  void release_by_mistake() {
    const fs::path path = root_ / root::kLeaseDirectory / ("epoch-" + std::to_string(life_.lease->epoch()));
    if (!fs::exists(path)) return;
    auto record = root::decode_lease(read_file(path)).value_or(root::LeaseRecord{});
    record.is_released = true;
    write_file(path, root::encode_lease(record));
  }

  /// Resumes by a Checkpointer's load, which is recorded, or by other means, which is not.
  void resume() {
    std::vector<std::uint64_t> whole;
    for (const auto& [step, saved] : model_.there) {
      if (saved.condition == Condition::kWhole) whole.push_back(step);
    }
    if (whole.empty() || draw_one_in(3)) return tell("a life of its own");
    const auto newest = model_.newest_for_load(order());
    const std::uint64_t step = newest && draw_one_in(2) ? *newest : whole[draw(0, whole.size() - 1)];
    const fs::path at = where_.contains(step) ? where_.at(step) : directory(step);
    const auto manifest = format::parse_manifest(read_file(at / format::kManifestFile), "cairn.json");
    tell("resume from " + std::to_string(step));
    if (life_.root.saves != 0) {  // a new life replaces a life that has saved
      become_new();
    }
    life_.root.lineage = checkpoint::lineage_after(manifest, step);
    life_.from = {model_.there.at(step).life, model_.there.at(step).order};
  }

  void damage() {
    if (model_.there.empty()) return;
    auto& [step, saved] = *std::next(model_.there.begin(), static_cast<long>(draw(0, model_.there.size() - 1)));
    if (saved.condition != Condition::kWhole) return;
    // A replaced checkpoint that could not be deleted would be read in place of the damaged one.
    if (root::replaced_checkpoint(directory(step))) return;
    tell("damage " + std::to_string(step));
    const fs::path at = directory(step);
    switch (draw(0, 4)) {
      case 0:
        fs::resize_file(at / format::kManifestFile, draw(0, 60));
        saved.condition = Condition::kDamaged;
        return;
      case 1:
        fs::remove(at / format::kManifestFile);
        saved.condition = Condition::kDamaged;
        if (draw_one_in(2)) return;
        fs::remove(at / format::kBlocksFile);
        saved.condition = Condition::kForeign;
        return;
      case 2: fs::remove(at / format::kBlocksFile); break;
      case 3: {
        std::string data = saved.content;
        data.back() = '#';
        write_file(at / kDataFile, data);
        saved.is_unsound = true;
        return;
      }
      default: fs::resize_file(at / kDataFile, 1); break;
    }
    saved.condition = Condition::kIncomplete;
  }

  /// Makes the manifest of the newest checkpoint unreadable for a while.
  void be_unreadable() {
    const auto newest = model_.newest_for_load(order());
    if (!newest || where_.at(*newest) != directory(*newest)) return;
    const std::string error = draw_one_in(3) ? "EIO" : draw_one_in(2) ? "EACCES" : "ESTALE";
    // A load falls back from a damaged checkpoint to the checkpoint that it replaced.
    if (error == "EIO" && root::replaced_checkpoint(directory(*newest))) return;
    const std::string rule = fmt::format("{}:path={}:errno={}", draw_one_in(2) ? "open" : "read",
                                         (directory(*newest) / format::kManifestFile).string(), error);
    tell(rule);
    Saved& saved = model_.there.at(*newest);
    saved.condition = Condition::kUnreadable;
    saved.is_unsound = error == "EIO";  // permanent: bad sectors
    {
      const Faults faults(rule);
      check();
      check_loads();
    }
    save(life_, *newest, rule);
    saved.condition = Condition::kWhole;
    saved.is_unsound = false;
  }

  /// Adds a directory that another program or a newer Cairn has made.
  void come_from_elsewhere() {
    const std::uint64_t step = draw(1, kSteps);
    if (model_.there.contains(step) || fs::exists(directory(step))) return;
    tell("somebody makes " + std::to_string(step));
    Saved saved{Condition::kForeign, "weights of another program"};
    fs::create_directory(directory(step));
    write_file(directory(step) / kDataFile, saved.content);
    if (draw_one_in(2)) {
      saved.condition = Condition::kNewer;
      write_file(directory(step) / format::kManifestFile,
                 R"({"format": "cairn-checkpoint", "format_version": 3, "more": []})");
    }
    model_.there[step] = saved;
  }

  /// File times jump. In half of the calls, a user also edits or deletes the latest file, or the state file is lost.
  void meddle() {
    tell("meddling");
    const auto hours = std::chrono::hours(draw(0, 100'000));
    for (const auto& entry : fs::directory_iterator(root_.path())) {
      fs::last_write_time(entry.path(), fs::file_time_type::clock::now() - hours);
    }
    if (draw_one_in(2)) return;
    switch (draw(0, 2)) {
      case 0: write_file(root_ / root::kLatestFile, std::to_string(draw(1, kSteps))); return;
      case 1: fs::remove(root_ / root::kLatestFile); return;
      default: fs::remove(root_ / root::kLeaseDirectory / root::kRootStateFile); return;
    }
  }

  void save_of_a_zombie() {
    if (zombies_.empty()) return;
    Life& zombie = zombies_[draw(0, zombies_.size() - 1)];
    const bool is_alone = !life_.number || *life_.number < *zombie.number;  // no other life has taken over yet
    if (is_alone) return;
    tell("a zombie saves");
    Options options;
    options.overwrite_foreign = true;
    EXPECT_THROW(commit(zombie, draw(1, kSteps), file_of(0), options), Error);
  }

  void commit(Life& life, std::uint64_t step, const std::string& content, const Options& options) {
    comm::Communicator& communicator = communicator_;
    root::hold_root(communicator, life.lease.get());
    if (!life.number) {
      life.number = model_.lives.size();
      model_.lives.push_back(life.from);
    }
    root::CommitTarget target{
        directory(step), {options.overwrite, options.overwrite_foreign}, true, ReadBack::kOff, life.lease.get()};
    root::CommitContent made;
    made.manifest.has_step = true;
    made.manifest.step = step;
    checkpoint::set_life(life.root, target, made.manifest);
    made.blocks.block_bytes = kBlockBytes;
    made.section_of_file[kDataFile] = "model";
    const auto bytes = base::as_bytes(content);
    made.blocks.files.push_back({kDataFile, content.size(), checksums_of(content)});
    root::Commit commit(communicator, std::move(target));
    os::write_new_file(commit.partial() / kDataFile, bytes);
    commit.finish(std::move(made));
  }

  Retention draw_rules() {
    Retention rules;
    if (draw_one_in(2)) rules.keep_last = draw(1, 3);
    if (draw_one_in(2)) rules.keep_every = draw(2, 4);
    if (draw_one_in(4)) rules.keep_steps = {draw(1, kSteps)};
    return rules;
  }

  [[nodiscard]] bool has_remains() const {
    return std::ranges::any_of(fs::directory_iterator(root_.path()), [](const fs::directory_entry& entry) {
      return entry.path().extension() == ".replaced";
    });
  }

  void prune() {
    const Retention retention = draw_rules();
    std::string rules = draw_one_in(2) ? kPruneFailures[draw(0, std::size(kPruneFailures) - 1)] : "";
    const bool is_cut_off = !rules.empty() && draw_one_in(2);  // no removals and no renames back
    if (is_cut_off) rules += fmt::format(";unlink:times=999;rename:after={}:times=999", draw(0, 4));
    tell(fmt::format("prune last {} every {}{}{}", retention.keep_last.value_or(0), retention.keep_every.value_or(0),
                     rules.empty() ? "" : " under ", rules));
    try {
      root::hold_root(communicator_, life_.lease.get());
    } catch (const Error& error) {  // a zombie has renewed its lease, which it does at its own time
      EXPECT_TRUE(!life_.number && !zombies_.empty()) << error.what();
      return;
    }
    check();
    std::set<std::uint64_t> safe = model_.untouchable(order(), retention);
    for (const auto& named :
         {root::read_latest_file(root_.path()), root::read_root_state(root_.path()).latest_written}) {
      if (named) safe.insert(*named);
    }
    const bool is_exact = !has_remains();
    std::string error;
    Pruning pruning;
    {
      const Faults faults(rules);
      try {
        root::LoadWatch loads;
        pruning = root::prune(*life_.lease, root::plan_prune(root_.path(), retention, loads, 0), loads);
      } catch (const Error& caught) {
        error = caught.what();
      }
    }
    if (!rules.empty()) recover_from_pruning(is_cut_off);
    EXPECT_TRUE(error.empty() || !rules.empty()) << error;
    for (auto saved = model_.there.begin(); saved != model_.there.end();) {
      const std::uint64_t step = saved->first;
      const bool is_there = fs::exists(directory(step)) || root::replaced_checkpoint(directory(step));
      const bool is_safe = safe.contains(step) || retention.empty();
      EXPECT_TRUE(is_there || !is_safe) << "step " << step << " was pruned";
      EXPECT_TRUE(!is_there || is_safe || !rules.empty() || !is_exact) << "step " << step << " was left";
      gone_ += is_there ? 0 : 1;
      saved = is_there ? std::next(saved) : model_.there.erase(saved);
    }
    check();
    if (is_cut_off) resume();
  }

  /// Whole checkpoints can be loaded at once; those that are damaged get their names back.
  void recover_from_pruning(bool is_cut_off) {
    for (const auto& [step, saved] : model_.there) {
      if (saved.condition != Condition::kWhole) continue;
      const std::string content = content_at(step);
      EXPECT_TRUE(content.empty() || saved.is_unsound || content == saved.content) << "step " << step;
    }
    if (is_cut_off) {
      become_new();
      root::hold_root(communicator_, life_.lease.get());
    } else {
      root::clear_own(*life_.lease);
    }
  }

  void change_pins() {
    const std::uint64_t step = draw(1, kSteps);
    if (model_.pins.contains(step)) {
      tell(fmt::format("unpin {}", step));
      root::remove_pin(root_.path(), step);
      model_.pins.erase(step);
    } else if (fs::exists(directory(step))) {
      tell(fmt::format("pin {}", step));
      root::add_pin(root_.path(), step);
      model_.pins.insert(step);
    }
  }

  [[nodiscard]] bool may_replace(const Life& life, std::uint64_t step, const Options& options) const {
    const auto found = model_.there.find(step);
    if (found == model_.there.end()) return true;
    if (found->second.condition == Condition::kUnreadable) return false;
    if (options.overwrite_foreign) return true;
    switch (found->second.condition) {
      case Condition::kIncomplete: return true;
      case Condition::kDamaged: return options.overwrite;
      case Condition::kWhole: return options.overwrite || (life.number && model_.is_left(step, *life.number));
      default: return false;
    }
  }

  void save(Life& life, std::uint64_t step, std::string rules = "") {
    Options options;
    options.overwrite = draw_one_in(6);
    options.overwrite_foreign = draw_one_in(12);
    const std::string content = file_of(++saves_begun_);
    if (rules.empty() && draw_one_in(3)) rules = kFailures[draw(0, std::size(kFailures) - 1)];
    if (!rules.empty() && draw_one_in(2)) rules += ";unlink:times=999";  // cut off: nothing is cleaned up
    if (draw_one_in(3)) rules += ";exchange:errno=EINVAL:times=9";
    tell("save " + std::to_string(step) + (rules.empty() ? "" : " under " + rules) +
         (options.overwrite ? " overwriting" : "") + (options.overwrite_foreign ? " anything" : ""));
    std::string error;
    {
      const Faults faults(rules);
      try {
        commit(life, step, content, options);
      } catch (const Error& caught) {
        error = caught.what();
      }
    }
    const bool is_saved = error.empty() || content_at(step) == content;
    if (rules.empty() && life.number) {
      EXPECT_EQ(error.empty(), may_replace(life, step, options)) << "saving " << step << ": " << error;
    }
    if (is_saved) {
      EXPECT_TRUE(may_replace(life, step, options)) << "step " << step << " was replaced";
      model_.there[step] = {Condition::kWhole, content, *life.number, ++order_};
      ++model_.saves;
    }
    if (!error.empty()) return;
    EXPECT_EQ(root::read_latest_file(root_.path()), step);
    EXPECT_EQ(root::read_root_state(root_.path()).latest_written, step);
  }

  /// Content of the data file that would be read for the step.
  std::string content_at(std::uint64_t step) {
    for (const auto& entry : root::list_root(root_.path())) {
      if (!entry.partial && entry.step == step && entry.is_complete()) return read_file(entry.directory / kDataFile);
    }
    return {};
  }

  void check() {
    where_.clear();
    const auto entries = root::list_root(root_.path());
    for (const auto& entry : entries) {
      if (entry.partial) continue;
      where_[entry.step] = entry.directory;
      const auto saved = model_.there.find(entry.step);
      if (saved == model_.there.end()) {
        ADD_FAILURE() << "step " << entry.step << " came from nowhere";
        continue;
      }
      EXPECT_EQ(entry.condition, saved->second.condition) << "step " << entry.step << ": " << entry.problem;
      if (saved->second.condition == Condition::kIncomplete || saved->second.is_unsound) continue;
      EXPECT_EQ(read_file(entry.directory / kDataFile), saved->second.content) << "step " << entry.step;
    }
    for (const auto& [step, saved] : model_.there) EXPECT_TRUE(where_.contains(step)) << "step " << step << " is lost";
    check_newest(entries);
  }

  /// Steps in resume order, given the two files that change after a commit and that users and failed
  /// saves may have altered.
  [[nodiscard]] std::vector<std::uint64_t> order() const {
    return model_.order(root::read_latest_file(root_.path()), root::read_root_state(root_.path()).latest_written);
  }

  void check_newest(const std::vector<root::RootEntry>& entries) {
    const auto expected = order();
    std::vector<std::uint64_t> steps;
    for (const auto& entry : root::resume_order(root_.path(), entries)) steps.push_back(entry.step);
    EXPECT_EQ(steps, expected);
    const auto candidate = model_.first_candidate(expected);
    const bool is_whole = candidate && model_.there.at(*candidate).condition == Condition::kWhole;
    try {
      const auto newest = root::newest_step(root_.path(), entries);
      EXPECT_EQ(newest, is_whole ? candidate : std::nullopt);
      EXPECT_TRUE(is_whole || (!candidate && !model_.has_whole())) << "nothing is said";
    } catch (const Error& error) {
      EXPECT_FALSE(is_whole) << error.what();
      const fs::path about = candidate ? directory(*candidate) : root_ / root::kLatestFile;
      EXPECT_THAT(error.what(), testing::HasSubstr("'" + about.string() + "'"));
    }
  }

  /// Loads the newest step, skipping damaged steps, like a program; then every step that a listing finds whole.
  void check_loads() {
    const auto expected = order();
    const auto newest = model_.newest_for_load(expected);
    const auto in_the_way = model_.in_the_way_of_load(expected);
    try {
      const Report report =
          checkpoint::load_newest(communicator_, root_.path(), [&](std::uint64_t step) { return load(step); });
      EXPECT_EQ(report.step, newest);
      EXPECT_FALSE(in_the_way) << *in_the_way << " was passed over";
    } catch (const Error& error) {
      EXPECT_FALSE(newest) << *newest << " was not loaded: " << error.what();
      const std::string named = in_the_way ? directory(*in_the_way).string() : "";
      EXPECT_THAT(error.what(), testing::HasSubstr(named));
    }
    for (const auto& [step, saved] : model_.there) {
      if (saved.condition != Condition::kWhole) continue;
      try {
        load(step);
        EXPECT_FALSE(saved.is_unsound) << step << " was loaded";
      } catch (const Error& error) {
        EXPECT_TRUE(saved.is_unsound) << error.what();
        EXPECT_EQ(error.kind(), ErrorKind::kIntegrity) << error.what();
      }
    }
  }

  Report load(std::uint64_t step) {
    std::string weights(kWeightsBytes, ' ');
    opening::with_open(communicator_, directory(step), opening::Links::kInside, [&](const auto& opened) {
      const std::uint32_t number = opened.stored.tensors.catalog().find("model", "w").value();
      const plan::MemoryBox wanted{number, {{0}, {kWeightsBytes}}, std::as_writable_bytes(std::span(weights))};
      checkpoint::Loader(communicator_, opened, {"posix", 64 << 10, {}}).load({&wanted, 1});
      return 0;
    });
    EXPECT_TRUE(model_.there.at(step).content.ends_with(weights)) << step << ": " << weights;
    Report report;
    report.step = step;
    return report;
  }

  comm::Communicator& communicator_;
  std::mt19937_64 random_;
  TempDir root_;
  Model model_;
  Life life_;
  std::vector<Life> zombies_;
  std::uint64_t order_ = 0;
  std::uint64_t gone_ = 0;  ///< checkpoints that were pruned
  std::uint64_t saves_begun_ = 0;
  std::map<std::uint64_t, fs::path> where_;  ///< directory from which each step is read
  std::string told_;
};

TEST(Histories, NothingThatWasSavedIsLost) {
  const char* const given = std::getenv("CAIRN_HISTORIES");
  const std::uint64_t histories = given != nullptr ? std::stoull(given) : 1000;
  std::uint64_t saves = 0;
  std::uint64_t pruned = 0;
  set_log_sink([](LogLevel, std::string_view) {});
  comm::run_simulated(1, [&](comm::Communicator& communicator) {
    for (std::uint64_t i = 0; i < histories && !HasFailure(); ++i) {
      SCOPED_TRACE("history " + std::to_string(i));
      History history(communicator, i);
      history.run();
      saves += history.saves();
      pruned += history.pruned();
    }
  });
  set_log_sink({});
  EXPECT_GT(saves, histories);
  EXPECT_GT(pruned, histories / 5);
  std::cout << "[cairn] did " << histories << " histories of a root\n[cairn] did " << saves
            << " saves in histories of a root\n[cairn] did " << pruned << " prunings of a checkpoint in them"
            << std::endl;
}

}  // namespace
}  // namespace cairn::test
