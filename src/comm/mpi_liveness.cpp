#include "comm/mpi_liveness.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/log.hpp"
#include "base/text.hpp"
#include "comm/communicator.hpp"
#include "comm/mpi_call.hpp"

namespace cairn::comm::internal {
namespace {

using namespace std::chrono_literals;

constexpr int kBeatsPerLimit = 64;
constexpr std::size_t kReasonBytes = 400;
constexpr std::size_t kNamedRanks = 8;
/// From then on a wait looks for messages of ranks that gave up; so does one that begins so long after the last.
constexpr auto kPatience = 50ms;
/// MPI hands out messages that wait one by one.
constexpr int kLooksWhenLate = 20;
/// How long a rank that gives up tries to tell its neighbours, and closing waits for the others.
constexpr auto kFarewell = 200ms;
constexpr auto kClosing = 10s;

std::size_t message_bytes(int size) {
  return static_cast<std::size_t>(size) * 2 * sizeof(std::uint32_t) + sizeof(std::uint32_t) + kReasonBytes;
}

std::string rank_text(MPI_Comm comm) {
  int rank = 0;
  int size = 1;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  return fmt::format("rank {} of {}", rank, size);
}

int size_of(MPI_Comm comm) {
  int size = 1;
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  return size;
}

/// Of a request that is not in use as well.
bool is_done(MPI_Request& request) {
  int done = 0;
  check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  return done != 0;
}

}  // namespace

MpiLiveness::MpiLiveness(MPI_Comm comm, const Waiting& waiting)
    : comm_(comm), size_(size_of(comm)), watchdog_(waiting, rank_text(comm)) {
  check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  if (!is_watching()) return;
  interval_ =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(watchdog_.limit_s() / kBeatsPerLimit));
  const auto ranks = static_cast<std::size_t>(size_);
  waits_.resize(ranks);
  moves_.resize(ranks);
  seen_.assign(ranks, Clock::now());
  last_beat_ = last_arrival_ = Clock::now();
  incoming_.resize(message_bytes(size_));
  for (int distance = 1; distance < size_; distance *= 2) {
    for (const int rank : {(rank_ + distance) % size_, (rank_ + size_ - distance) % size_}) {
      const bool is_new =
          std::none_of(neighbours_.begin(), neighbours_.end(), [&](const Neighbour& n) { return n.rank == rank; });
      if (!is_new) continue;
      neighbours_.emplace_back();
      neighbours_.back().rank = rank;
      neighbours_.back().message.resize(message_bytes(size_));
    }
  }
}

MpiLiveness::~MpiLiveness() {
  // What MPI may still read has to stay.
  const auto leak = [](std::vector<std::byte>& bytes) {
    static_cast<void>(new std::vector<std::byte>(std::move(bytes)));
  };
  for (Neighbour& neighbour : neighbours_) {
    if (neighbour.request != MPI_REQUEST_NULL) leak(neighbour.message);
  }
  if (receiving_ != MPI_REQUEST_NULL) leak(incoming_);
}

void MpiLiveness::check() const {
  if (!is_dead()) return;
  throw Error(ErrorKind::kState, "the ranks gave each other up before, and cannot talk any more: " + dead_text_);
}

void MpiLiveness::arrive() {
  check();
  if (!is_watching() || size_ == 1) return;
  const auto now = Clock::now();
  const int looks = now - last_arrival_ > kPatience ? kLooksWhenLate : 0;
  for (int look = 0; look < looks; ++look) receive();
  last_arrival_ = now;
}

void MpiLiveness::hear() {
  check();
  if (is_watching() && size_ > 1) receive();
}

void MpiLiveness::move_messages() {
  int found = 0;
  check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, kBeatTag, comm_, &found, MPI_STATUS_IGNORE), "MPI_Iprobe");
}

void MpiLiveness::progress() {
  watchdog_.progress();
  moved_ = true;
}

void MpiLiveness::progress(std::string_view phase, const std::filesystem::path& file) {
  watchdog_.progress(phase, file);
  worked();
}

void MpiLiveness::worked() noexcept {
  progress();
  if (!is_watching() || size_ == 1 || is_dead()) return;
  try {
    const auto now = Clock::now();
    if (now - last_beat_ <= interval_ || !mpi_is_up()) return;
    receive();
    beat(now);
  } catch (const std::exception& error) {
    base::log_debug(std::string("no beat: ") + error.what());  // the next wait tells
  }
}

void MpiLiveness::poll(const char* what, Clock::duration waited) {
  check();
  if (!is_watching() || waited < std::min<Clock::duration>(kPatience, interval_)) return;
  const auto now = Clock::now();
  if (size_ > 1) {
    receive();
    if (waited > interval_ && now - last_beat_ > interval_) beat(now);
  }
  if (watchdog_.silent_s() >= watchdog_.limit_s()) give_up(what);
}

/// What this rank knows goes to its neighbours; to one that has not taken the last beat, another time.
void MpiLiveness::beat(Clock::time_point now) {
  const auto me = static_cast<std::size_t>(rank_);
  last_beat_ = now;
  seen_[me] = now;
  ++waits_[me];
  if (moved_) ++moves_[me];
  moved_ = false;
  for (Neighbour& neighbour : neighbours_) {
    if (is_done(neighbour.request)) send(neighbour);
  }
}

void MpiLiveness::send(Neighbour& to) {
  const std::size_t row_bytes = waits_.size() * sizeof(std::uint32_t);
  std::memset(to.message.data(), 0, to.message.size());
  std::memcpy(to.message.data(), waits_.data(), row_bytes);
  std::memcpy(to.message.data() + row_bytes, moves_.data(), row_bytes);
  if (is_dead()) {
    const auto culprit = static_cast<std::uint32_t>(rank_ + 1);
    std::memcpy(to.message.data() + 2 * row_bytes, &culprit, sizeof culprit);
    std::memcpy(to.message.data() + 2 * row_bytes + sizeof culprit, dead_text_.data(),
                std::min(dead_text_.size(), kReasonBytes - 1));
  }
  check_mpi(MPI_Issend(to.message.data(), to_count(to.message.size()), MPI_BYTE, to.rank, kBeatTag, comm_, &to.request),
            "MPI_Issend");
}

/// Takes in what is there; a beat whose sender was stopped in the middle of it is waited for in later calls.
void MpiLiveness::receive() {
  for (;;) {
    if (receiving_ == MPI_REQUEST_NULL) {
      int found = 0;
      MPI_Message message = MPI_MESSAGE_NULL;
      check_mpi(MPI_Improbe(MPI_ANY_SOURCE, kBeatTag, comm_, &found, &message, MPI_STATUS_IGNORE), "MPI_Improbe");
      if (found == 0) return;
      check_mpi(MPI_Imrecv(incoming_.data(), to_count(incoming_.size()), MPI_BYTE, &message, &receiving_),
                "MPI_Imrecv");
    }
    if (!is_done(receiving_)) return;
    merge(incoming_);
  }
}

void MpiLiveness::merge(std::span<const std::byte> message) {
  const auto now = Clock::now();
  const std::size_t ranks = waits_.size();
  const auto word = [&](std::size_t at) {
    std::uint32_t value = 0;
    std::memcpy(&value, message.data() + at * sizeof value, sizeof value);
    return value;
  };
  bool somebody_moved = false;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::uint32_t waits = word(rank);
    const std::uint32_t moves = word(ranks + rank);
    if (waits > waits_[rank] || moves > moves_[rank]) seen_[rank] = now;
    somebody_moved = somebody_moved || moves > moves_[rank];
    waits_[rank] = std::max(waits_[rank], waits);
    moves_[rank] = std::max(moves_[rank], moves);
  }
  if (somebody_moved) watchdog_.progress();
  const std::uint32_t culprit = word(2 * ranks);
  if (culprit == 0 || is_dead()) return;
  const auto* text = reinterpret_cast<const char*>(message.data() + (2 * ranks + 1) * sizeof culprit);
  die(static_cast<int>(culprit) - 1, std::string(text, ::strnlen(text, kReasonBytes - 1)));
  throw Error(ErrorKind::kState, dead_text_);
}

std::string MpiLiveness::missing_ranks() const {
  const auto oldest = Clock::now() - kBeatsPerLimit / 2 * interval_;
  std::vector<std::size_t> missing;
  for (std::size_t rank = 0; rank < seen_.size(); ++rank) {
    if (static_cast<int>(rank) != rank_ && seen_[rank] < oldest) missing.push_back(rank);
  }
  if (missing.empty()) return "every rank waits, and none for the same";
  std::string text = missing.size() == 1 ? "rank" : "ranks";
  for (std::size_t i = 0; i < std::min(missing.size(), kNamedRanks); ++i) {
    text += fmt::format("{}{}", i == 0 ? " " : ", ", missing[i]);
  }
  if (missing.size() > kNamedRanks) text += fmt::format(" and {} more", missing.size() - kNamedRanks);
  return text + fmt::format(" of {} {} missing", size_, missing.size() == 1 ? "is" : "are");
}

void MpiLiveness::give_up(const char* what) {
  const std::string text = fmt::format(
      "no progress on any rank for {:g} s {} ({}): {}; look for stopped processes or storage that does not answer "
      "there, "
      "or raise the limit (Options::waiting, CAIRN_WATCHDOG_S)",
      watchdog_.limit_s(), watchdog_.where(), what, missing_ranks());
  carry_out(watchdog_.waiting(), text);
  die(rank_, text);
  throw Error(ErrorKind::kState, text);
}

std::string MpiLiveness::fail(const std::string& why) {
  if (!is_dead()) die(rank_, fmt::format("rank {} failed alone {}: {}", rank_, watchdog_.where(), why));
  return dead_text_;
}

/// Tells the neighbours; what they do not take soon stays with MPI.
void MpiLiveness::die(int culprit, const std::string& why) noexcept {
  try {
    dead_text_ = why.empty() ? fmt::format("rank {} gave up", culprit) : why;
  } catch (...) {
  }
  dead_.store(true, std::memory_order_relaxed);
  if (!is_watching() || size_ == 1 || !mpi_is_up()) return;
  try {
    const auto deadline = Clock::now() + kFarewell;
    for (Neighbour& neighbour : neighbours_) {
      if (neighbour.request != MPI_REQUEST_NULL) {
        // The last beat was not taken: this one goes behind it, from memory of its own.
        auto* const kept = new Neighbour{neighbour.rank, std::move(neighbour.message), neighbour.request};
        neighbour.request = MPI_REQUEST_NULL;
        neighbour.message.assign(kept->message.size(), std::byte{0});
      }
      send(neighbour);
    }
    for (Neighbour& neighbour : neighbours_) {
      while (!is_done(neighbour.request) && Clock::now() < deadline) std::this_thread::sleep_for(100us);
    }
  } catch (const std::exception& error) {
    base::log_debug(std::string("the other ranks could not be told: ") + error.what());
  }
}

bool MpiLiveness::close() noexcept {
  if (!is_watching() || size_ == 1) return true;
  if (is_dead()) return false;
  try {
    const auto deadline = Clock::now() + kClosing;
    MPI_Request barrier = MPI_REQUEST_NULL;
    bool entered = false;
    for (int looks = 0; Clock::now() < deadline; ++looks) {
      receive();
      bool all_taken = true;
      for (Neighbour& neighbour : neighbours_) all_taken = is_done(neighbour.request) && all_taken;
      if (all_taken && !entered) {
        check_mpi(MPI_Ibarrier(comm_, &barrier), "MPI_Ibarrier");
        entered = true;
      }
      if (entered && is_done(barrier) && receiving_ == MPI_REQUEST_NULL) return true;
      if (looks > 40) std::this_thread::sleep_for(looks > 1000 ? 1ms : 50us);
    }
  } catch (const std::exception& error) {
    base::log_debug(std::string("a communicator was not closed: ") + error.what());
  }
  dead_.store(true, std::memory_order_relaxed);
  return false;
}

}  // namespace cairn::comm::internal
