#include "root/load_mark.hpp"

#include <fmt/core.h>

#include <chrono>
#include <ctime>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/bytes.hpp"
#include "base/digits.hpp"
#include "cairn/error.hpp"
#include "os/condition.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"
#include "os/interrupt.hpp"
#include "os/process.hpp"
#include "root/lease_folder.hpp"
#include "root/pins.hpp"
#include "root/root.hpp"

namespace cairn::root {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMarkPrefix = "loading-";
constexpr std::chrono::seconds kMarkLease(60);
constexpr std::chrono::seconds kRenewal(10);

/// The step of "loading-<step>.<nonce>".
std::optional<std::uint64_t> step_of_mark(std::string_view name) {
  const std::size_t dot = name.find('.');
  if (!name.starts_with(kMarkPrefix) || dot == std::string_view::npos) return std::nullopt;
  return base::number_in<std::uint64_t>(name.substr(kMarkPrefix.size(), dot - kMarkPrefix.size()));
}

}  // namespace

class LoadMark::Impl {
 public:
  Impl(const fs::path& root, std::uint64_t step)
      : nonce_(os::random_nonce()),
        live_(nonce_),
        path_(root / kLeaseDirectory / fmt::format("{}{}.{}", kMarkPrefix, step, nonce_)) {
    const LeaseRequest request = own_request({});
    record_.holder = {request.process, request.job_id, request.restarts, nonce_,
                      static_cast<std::uint64_t>(std::time(nullptr))};
    record_.lease_ms =
        static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(kMarkLease).count());
    os::fault_point("load.mark", path_);
    os::remove_at_end(path_);
    auto file = os::create_exclusively(path_);
    if (!file) throw Error(ErrorKind::kIo, fmt::format("'{}' exists", os::shown(path_)));
    file_ = std::move(*file);
    try {
      lock_ = file_.try_lock();
      record_.is_locked = static_cast<bool>(lock_);
      renew();
      thread_ = os::start_thread([this] { run(); });
    } catch (...) {
      remove();
      throw;
    }
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
    remove();
  }

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// A child of fork() has no thread that renews the mark, and must not remove it.
  [[nodiscard]] bool is_of_this_process() const noexcept {
    try {
      return os::this_process().pid == record_.holder.process.pid;
    } catch (const std::exception&) {  // no memory: a child of fork() is rarer
      return true;
    }
  }

 private:
  void renew() {
    ++record_.sequence;
    file_.write_at(base::as_bytes(encode_lease(record_)), 0);
    file_.flush();
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (!is_ending_) {
      os::Clock::of_system().wait_for(wake_, lock, kRenewal, [&] { return is_ending_; });
      if (is_ending_) return;
      lock.unlock();
      try {
        renew();
      } catch (const std::exception&) {  // tried again
      }
      lock.lock();
    }
  }

  void remove() noexcept {
    try {
      os::remove_tree(path_);
      os::keep_at_end(path_);
    } catch (const std::exception&) {  // the mark runs out
    }
  }

  const std::string nonce_;
  const LiveSaver live_;
  const fs::path path_;
  LeaseRecord record_;
  os::File file_;
  os::FileLock lock_;
  std::mutex mutex_;
  os::Condition wake_;
  bool is_ending_ = false;
  std::thread thread_;
};

LoadMark::LoadMark(const fs::path& checkpoint) noexcept {
  try {
    const fs::path name = checkpoint.has_filename() ? checkpoint : checkpoint.parent_path();
    const auto parsed = parse_root_name(name.filename().string());
    if (!parsed || parsed->kind != RootName::Kind::kCheckpoint) return;
    const fs::path root = name.has_parent_path() ? name.parent_path() : fs::path(".");
    if (!os::exists(root / kLeaseDirectory)) return;
    auto made = std::make_unique<Impl>(root, parsed->step);
    impl_ = std::shared_ptr<const Impl>(made.release(), [](const Impl* impl) {
      if (impl->is_of_this_process()) delete impl;
    });
    static_cast<void>(wait_for_name(name));
  } catch (const std::exception&) {  // a root that cannot be written, for example: the load goes on without a mark
  }
}

std::map<std::uint64_t, LoadWatch::Load> LoadWatch::look(const fs::path& root) {
  std::map<std::uint64_t, Load> loads;
  std::map<std::string, LeaseWatch> seen;
  const LeaseFolder folder(root, os::this_process(), {});
  if (!os::exists(folder.path())) return loads;
  for (const auto& entry : os::list_directory(folder.path())) {
    const auto step = step_of_mark(entry.name);
    if (!step) continue;
    const fs::path path = folder.path() / entry.name;
    LeaseSighting sighting;
    try {
      sighting = folder.see(path, 1);
    } catch (const Error& error) {  // of another user, perhaps
      loads[*step].words = fmt::format("being loaded, or was: {}", error.what());
      continue;
    }
    if (sighting.text.empty() && !os::exists(path)) continue;  // ended just now
    const auto known = marks_.find(entry.name);
    LeaseWatch watch = known != marks_.end() ? known->second : LeaseWatch(kMarkLease);
    watch.see(sighting, clock_->now());
    const LeaseWatch::State state = watch.state(clock_->now());
    if (state == LeaseWatch::State::kFree) {
      os::remove_tree(path);
      continue;
    }
    Load& load = loads[*step];
    load.words = watch.record() ? fmt::format("being loaded by {}", describe(watch.record()->holder)) : "being loaded";
    load.may_be_over = state == LeaseWatch::State::kWatching;
    seen.emplace(entry.name, std::move(watch));
  }
  marks_ = std::move(seen);
  return loads;
}

}  // namespace cairn::root
