#include "io/rounds.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "os/file.hpp"
#include "os/process.hpp"

namespace cairn::io {

void check_size(const EngineFile& file, const char* when, ErrorKind kind) {
  if (file.path.empty()) return;
  const std::uint64_t found = os::file_size(file.path);
  if (found == file.size_bytes) return;
  throw Error(kind,
              std::string(when) + " '" + base::printable(file.path.string()) + "' has " + std::to_string(found) +
                  " bytes, expected " + std::to_string(file.size_bytes),
              {0, file.path.native()});
}

std::vector<FileTurn> file_turns(FileAggregators aggregators, int rank) {
  std::vector<FileTurn> mine;
  int shared_files = 0;
  for (std::uint32_t file = 0; file < aggregators.size(); ++file) {
    const auto [first, last] = aggregators[file];
    if (first > last) continue;
    const int turn = first < last ? shared_files++ % 2 : 2;
    if (first <= rank && rank <= last) mine.push_back({file, first, last, turn});
  }
  std::sort(mine.begin(), mine.end(),
            [](const FileTurn& a, const FileTurn& b) { return std::tie(a.turn, a.file) < std::tie(b.turn, b.file); });
  return mine;
}

int creator_of_file(FileAggregators aggregators, std::uint32_t file, int ranks) {
  const auto [first, last] = aggregators[file];
  return first <= last ? first : static_cast<int>(file % static_cast<std::uint32_t>(ranks));
}

RoundWorker::RoundWorker() : thread_(os::start_thread([this] { work(); })) {}

RoundWorker::~RoundWorker() {
  {
    const std::lock_guard lock(mutex_);
    rounds_.clear();
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void RoundWorker::begin(std::function<void()> round) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    rounds_.push_back(std::move(round));
    ++unfinished_;
  }
  changed_.notify_all();
}

void RoundWorker::wait(std::size_t unfinished) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return unfinished_ <= unfinished; });
}

void RoundWorker::rethrow() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

void RoundWorker::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !rounds_.empty(); });
    if (rounds_.empty()) return;
    const std::function<void()> round = std::move(rounds_.front());
    rounds_.pop_front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      round();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure) {
      failure_ = failure;
      rounds_.clear();
    }
    unfinished_ = rounds_.size();
    changed_.notify_all();
  }
}

}  // namespace cairn::io
