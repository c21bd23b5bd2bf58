// Random histories of a root against a model that says what must be loadable: saves by several lives, saves that fail or
// are cut off at every step, savers that were taken for dead, resumes by a Checkpointer and by other means, roll-backs,
// damage, other programs' directories and a newer Cairn's, people who edit or delete Cairn's files, clocks that jump.
//
// Data files are a few bytes, and go from here to the commit: what plans and moves real ones is tested elsewhere.
// CAIRN_HISTORIES says how many; the default takes seconds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <set>

#include "base/bytes.hpp"
#include "cairn/error.hpp"
#include "cairn/log.hpp"
#include "checkpoint/save.hpp"
#include "directory/lease_folder.hpp"
#include "faults.hpp"
#include "format/crc32c.hpp"
#include "manual_clock.hpp"
#include "random.hpp"
#include "simulated_save.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using checkpoint::Condition;

constexpr const char* kDataFile = "model.safetensors";
constexpr std::uint64_t kSteps = 9;

/// What the model knows of a name.
struct Saved {
  Condition condition = Condition::kWhole;
  std::string content;      ///< of its data file; of what is not Cairn's, of a file in it
  std::size_t life = 0;     ///< with a manifest
  std::uint64_t order = 0;  ///< of saving
  bool is_theirs = false;   ///< another program made it
};

/// The model: which steps there are, and which of them a run has left.
struct Model {
  std::map<std::uint64_t, Saved> there;
  /// Of each life that took the lease: of which life, and how late in the order of saving, is what it was resumed from;
  /// nothing: it is not known.
  std::vector<std::optional<std::pair<std::size_t, std::uint64_t>>> lives;
  std::uint64_t saves = 0;

  [[nodiscard]] bool is_left(std::uint64_t step, std::size_t by) const {
    const Saved& saved = there.at(step);
    if (saved.life == by) return false;
    std::map<std::size_t, std::uint64_t> ancestors;  // and how far each went until it was left
    for (auto at = lives.at(by); at && !ancestors.contains(at->first); at = lives.at(at->first)) ancestors.insert(*at);
    if (ancestors.empty() || saved.life < ancestors.begin()->first) return false;
    const auto ancestor = ancestors.find(saved.life);
    return ancestor == ancestors.end() || ancestor->second < saved.order;
  }
  [[nodiscard]] static bool has_manifest(const Saved& saved) {
    return saved.condition == Condition::kWhole || saved.condition == Condition::kIncomplete;
  }
  /// The whole step that was saved last, of those that no run has left, else of all; nothing without any.
  [[nodiscard]] std::optional<std::uint64_t> newest() const {
    const Saved* head = nullptr;
    for (const auto& [step, saved] : there) {
      if (has_manifest(saved) && (head == nullptr || head->order < saved.order)) head = &saved;
    }
    std::optional<std::uint64_t> best;
    const auto key = [&](std::uint64_t step) { return std::pair(!is_left(step, head->life), there.at(step).order); };
    for (const auto& [step, saved] : there) {
      if (saved.condition == Condition::kWhole && (!best || key(*best) < key(step))) best = step;
    }
    return best;
  }
  /// Whether some manifest is lost or cannot be read, so that it is not known what came after what.
  [[nodiscard]] bool is_blurred() const {
    return std::ranges::any_of(there,
                               [](const auto& one) { return !has_manifest(one.second) && !one.second.is_theirs; });
  }
};

const char* const kFailures[] = {"commit.begin",
                                 "commit.carry",
                                 "commit.blocks",
                                 "commit.manifest",
                                 "commit.sync",
                                 "commit.rename",
                                 "commit.rename.looked",
                                 "commit.replace.looked",
                                 "commit.replaced",
                                 "commit.publish",
                                 "commit.latest",
                                 "commit.latest.looked",
                                 "commit.noted",
                                 "rename:path=checkpoint-",
                                 "rename:path=latest",
                                 "rename:path=state.json",
                                 "exchange",
                                 "fsync:after=2",
                                 "write:path=cairn.json",
                                 "write:path=epoch-",
                                 "takeover.looked",
                                 "takeover.settle",
                                 "mkdir",
                                 "open:path=cairn.blocks"};

/// A process that saves into the root, as a Checkpointer does.
struct Life {
  std::unique_ptr<ManualClock> clock;
  std::unique_ptr<checkpoint::Lease> lease;
  checkpoint::RootLife root;
  std::optional<std::pair<std::size_t, std::uint64_t>> from;  ///< for the model
  std::optional<std::size_t> number;                          ///< in the model, once it has the lease
};

class History {
 public:
  History(comm::Communicator& communicator, std::uint64_t number)
      : communicator_(communicator), random_(make_random(number)) {
    begin_life();
  }

  void run() {
    const std::uint64_t events = draw(5, 20);
    for (std::uint64_t i = 0; i < events && !testing::Test::HasFailure(); ++i) {
      happen();
      check();
    }
    if (testing::Test::HasFailure()) std::cout << "history: " << told_ << std::endl;
  }
  [[nodiscard]] std::uint64_t saves() const { return model_.saves; }

 private:
  std::uint64_t draw(std::uint64_t low, std::uint64_t high) { return uniform(random_, low, high); }
  bool draw_one_in(std::uint64_t n) { return draw(1, n) == 1; }
  [[nodiscard]] fs::path directory(std::uint64_t step) const {
    return checkpoint::checkpoint_directory(root_.path(), step);
  }
  void tell(const std::string& event) { told_ += event + "; "; }

  void happen() {
    switch (draw(0, 12)) {
      case 6: return stand_still();
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
    life_.lease.reset();  // before its clock
    life_ = {};
    life_.clock = std::make_unique<ManualClock>();
    life_.lease = lease_of(root_.path(), small_options(), *life_.clock);
    life_.root.lease = life_.lease.get();
  }

  /// For longer than its lease time, as a machine that is suspended does. To the model it is a life that goes on from all
  /// that it saved before.
  void stand_still() {
    if (!life_.number) return;
    tell("stand still");
    life_.clock->jump(std::chrono::hours(1));
    life_.from = {*life_.number, order_};
    life_.number.reset();
  }

  /// The process ends, or is taken for dead and goes on.
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
    const fs::path path = root_ / checkpoint::kLeaseDirectory / ("epoch-" + std::to_string(life_.lease->epoch()));
    if (!fs::exists(path)) return;
    auto record = checkpoint::decode_lease(read_file(path)).value_or(checkpoint::LeaseRecord{});
    record.is_released = true;
    write_file(path, checkpoint::encode_lease(record));
  }

  /// By a load of a Checkpointer, which is on record, or in another way, which is not.
  void resume() {
    std::vector<std::uint64_t> whole;
    for (const auto& [step, saved] : model_.there) {
      if (saved.condition == Condition::kWhole) whole.push_back(step);
    }
    if (whole.empty() || draw_one_in(3)) return tell("a life of its own");
    const std::uint64_t step = draw_one_in(2) ? *model_.newest() : whole[draw(0, whole.size() - 1)];
    const fs::path at = where_.contains(step) ? where_.at(step) : directory(step);
    const auto manifest = format::parse_manifest(read_file(at / checkpoint::kManifestFile), "cairn.json");
    tell("resume from " + std::to_string(step));
    if (life_.root.saves != 0) {  // a life that has saved is left for a new one
      become_new();
    }
    life_.root.lineage = checkpoint::lineage_after(manifest, step);
    life_.from = {model_.there.at(step).life, model_.there.at(step).order};
  }

  void damage() {
    if (model_.there.empty()) return;
    auto& [step, saved] = *std::next(model_.there.begin(), static_cast<long>(draw(0, model_.there.size() - 1)));
    if (saved.condition != Condition::kWhole) return;
    // What it replaced, and could not be deleted, would be read in its place.
    if (checkpoint::replaced_checkpoint(directory(step))) return;
    tell("damage " + std::to_string(step));
    const fs::path at = directory(step);
    switch (draw(0, 3)) {
      case 0:
        fs::resize_file(at / checkpoint::kManifestFile, draw(0, 60));
        saved.condition = Condition::kDamaged;
        return;
      case 1:
        fs::remove(at / checkpoint::kManifestFile);
        saved.condition = Condition::kDamaged;
        if (draw_one_in(2)) return;
        fs::remove(at / checkpoint::kBlocksFile);
        saved.condition = Condition::kForeign;
        return;
      case 2: fs::remove(at / checkpoint::kBlocksFile); break;
      default: fs::resize_file(at / kDataFile, 1); break;
    }
    saved.condition = Condition::kIncomplete;
  }

  /// Something that no Cairn, or a newer one, made.
  void come_from_elsewhere() {
    const std::uint64_t step = draw(1, kSteps);
    if (model_.there.contains(step) || fs::exists(directory(step))) return;
    tell("somebody makes " + std::to_string(step));
    Saved saved{Condition::kForeign, "weights of another program"};
    saved.is_theirs = true;
    fs::create_directory(directory(step));
    write_file(directory(step) / kDataFile, saved.content);
    if (draw_one_in(2)) {
      saved.condition = Condition::kNewer;
      saved.is_theirs = false;
      write_file(directory(step) / checkpoint::kManifestFile,
                 R"({"format": "cairn-checkpoint", "format_version": 3, "more": []})");
    }
    model_.there[step] = saved;
  }

  /// People, and clocks. What Cairn keeps beside checkpoints may be lost at any time between two lives.
  void meddle() {
    tell("meddling");
    const auto hours = std::chrono::hours(draw(0, 100'000));
    for (const auto& entry : fs::directory_iterator(root_.path())) {
      fs::last_write_time(entry.path(), fs::file_time_type::clock::now() - hours);
    }
    if (draw_one_in(2)) return;
    is_pointer_edited_ = true;
    switch (draw(0, 2)) {
      case 0: write_file(root_ / checkpoint::kLatestFile, std::to_string(draw(1, kSteps))); return;
      case 1: fs::remove(root_ / checkpoint::kLatestFile); return;
      default: fs::remove(root_ / checkpoint::kLeaseDirectory / checkpoint::kRootStateFile); return;
    }
  }

  void save_of_a_zombie() {
    if (zombies_.empty()) return;
    Life& zombie = zombies_[draw(0, zombies_.size() - 1)];
    const bool is_alone = !life_.number || *life_.number < *zombie.number;  // nobody has taken over yet
    if (is_alone) return;
    tell("a zombie saves");
    Options options;
    options.overwrite_foreign = true;
    EXPECT_THROW(commit(zombie, draw(1, kSteps), "not to be seen", options), Error);
  }

  void commit(Life& life, std::uint64_t step, const std::string& content, const Options& options) {
    comm::Communicator& communicator = communicator_;
    checkpoint::hold_root(communicator, life.lease.get());
    if (!life.number) {
      life.number = model_.lives.size();
      model_.lives.push_back(life.from);
    }
    checkpoint::CommitTarget target{
        directory(step), {options.overwrite, options.overwrite_foreign}, true, ReadBack::kOff, life.lease.get()};
    checkpoint::CommitContent made;
    made.manifest.has_step = true;
    made.manifest.step = step;
    checkpoint::set_life(life.root, target, made.manifest);
    made.section_of_file[kDataFile] = "model";
    const auto bytes = base::as_bytes(content);
    made.blocks.files.push_back({kDataFile, content.size(), {format::crc32c(bytes)}});
    checkpoint::Commit commit(communicator, std::move(target));
    os::write_new_file(commit.partial() / kDataFile, bytes);
    commit.finish(std::move(made));
  }

  [[nodiscard]] bool may_replace(const Life& life, std::uint64_t step, const Options& options) const {
    const auto found = model_.there.find(step);
    if (found == model_.there.end() || options.overwrite_foreign) return true;
    switch (found->second.condition) {
      case Condition::kIncomplete: return true;
      case Condition::kDamaged: return options.overwrite;
      case Condition::kWhole: return options.overwrite || (life.number && model_.is_left(step, *life.number));
      default: return false;
    }
  }

  void save(Life& life, std::uint64_t step) {
    Options options;
    options.overwrite = draw_one_in(6);
    options.overwrite_foreign = draw_one_in(12);
    const std::string content = "weights " + std::to_string(model_.saves);
    std::string rules;
    if (draw_one_in(3)) rules = kFailures[draw(0, std::size(kFailures) - 1)];
    if (!rules.empty() && draw_one_in(2)) rules += ";unlink:times=999";  // cut off: nothing is cleared up
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
      if (error.empty()) is_pointer_edited_ = false;
    }
    if (!error.empty() && is_saved) is_pointer_edited_ = true;  // the file that names the latest may be an older one
  }

  /// Of the data file of whatever is read for the step.
  std::string content_at(std::uint64_t step) {
    for (const auto& entry : checkpoint::list_root(root_.path())) {
      if (!entry.partial && entry.step == step && entry.is_complete()) return read_file(entry.directory / kDataFile);
    }
    return {};
  }

  void check() {
    where_.clear();
    const auto entries = checkpoint::list_root(root_.path());
    for (const auto& entry : entries) {
      if (entry.partial) continue;
      where_[entry.step] = entry.directory;
      const auto saved = model_.there.find(entry.step);
      if (saved == model_.there.end()) {
        ADD_FAILURE() << "step " << entry.step << " came from nowhere";
        continue;
      }
      EXPECT_EQ(entry.condition, saved->second.condition) << "step " << entry.step << ": " << entry.problem;
      if (saved->second.condition == Condition::kIncomplete) continue;
      EXPECT_EQ(read_file(entry.directory / kDataFile), saved->second.content) << "step " << entry.step;
    }
    for (const auto& [step, saved] : model_.there) EXPECT_TRUE(where_.contains(step)) << "step " << step << " is lost";
    check_newest(entries);
    check_order(entries);
  }

  void check_newest(const std::vector<checkpoint::RootEntry>& entries) {
    const bool is_blurred = model_.is_blurred();
    std::optional<std::uint64_t> newest;
    try {
      newest = checkpoint::newest_step(root_.path(), entries);
    } catch (const Error& error) {
      EXPECT_TRUE(is_blurred || is_pointer_edited_) << error.what();
      return;
    }
    EXPECT_TRUE(newest || !model_.newest()) << "none, where " << *model_.newest() << " is whole";
    EXPECT_TRUE(!newest || model_.there.at(*newest).condition == Condition::kWhole) << *newest;
    EXPECT_TRUE(is_blurred || is_pointer_edited_ || newest == model_.newest())
        << newest.value_or(0) << " and not " << model_.newest().value_or(0);
  }

  /// A load that goes past damage finds what is whole.
  void check_order(const std::vector<checkpoint::RootEntry>& entries) {
    std::set<std::uint64_t> tried;
    for (const auto& entry : checkpoint::resume_order(root_.path(), entries)) {
      EXPECT_TRUE(tried.insert(entry.step).second) << entry.step << " stands twice";
    }
    if (is_pointer_edited_) return;  // people may have gone back to before it
    for (const auto& [step, saved] : model_.there) {
      EXPECT_TRUE(saved.condition != Condition::kWhole || tried.contains(step)) << step << " is not tried";
    }
  }

  comm::Communicator& communicator_;
  std::mt19937_64 random_;
  TempDir root_;
  Model model_;
  Life life_;
  std::vector<Life> zombies_;
  std::uint64_t order_ = 0;
  bool is_pointer_edited_ = false;
  std::map<std::uint64_t, fs::path> where_;  ///< each step is read
  std::string told_;
};

TEST(Histories, NothingThatWasSavedIsLost) {
  const char* const given = std::getenv("CAIRN_HISTORIES");
  const std::uint64_t histories = given != nullptr ? std::stoull(given) : 300;
  std::uint64_t saves = 0;
  set_log_sink([](LogLevel, std::string_view) {});
  comm::run_simulated(1, [&](comm::Communicator& communicator) {
    for (std::uint64_t i = 0; i < histories && !HasFailure(); ++i) {
      SCOPED_TRACE("history " + std::to_string(i));
      History history(communicator, i);
      history.run();
      saves += history.saves();
    }
  });
  set_log_sink({});
  EXPECT_GT(saves, histories);
  std::cout << "[cairn] did " << histories << " histories of a root\n[cairn] did " << saves
            << " saves in histories of a root" << std::endl;
}

}  // namespace
}  // namespace cairn::test
