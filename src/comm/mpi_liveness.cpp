#include "comm/mpi_liveness.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <thread>

#include "base/log.hpp"
#include "base/text.hpp"
#include "comm/mpi_call.hpp"
#include "os/process.hpp"

namespace cairn::comm::internal {
namespace {

using namespace std::chrono_literals;

constexpr int kBeatsPerLimit = 64;
/// Room for a message with long names of phases, steps, files and hosts: every rank reports the whole message.
constexpr std::size_t kReasonBytes = 1400;
/// A wait that lasts this long, or begins this long after the previous one, looks for messages of ranks that gave up.
constexpr auto kPatience = 50ms;
/// Number of looks by a late rank: a single look may not find all messages that are waiting in MPI.
constexpr int kLooksWhenLate = 20;
/// Times for which a rank that gives up tries to notify its neighbours, and for which close() waits for other ranks.
constexpr auto kFarewell = 200ms;
constexpr auto kClosing = 10s;

int rank_in(MPI_Comm comm) {
  int rank = 0;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  return rank;
}

int size_of(MPI_Comm comm) {
  int size = 1;
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  return size;
}

std::string rank_text(MPI_Comm comm) {
  const std::string host = os::host_name();
  return fmt::format("rank {} of {}{}", rank_in(comm), size_of(comm),
                     host.empty() ? "" : fmt::format(" ({})", base::printable(host, kHostBytes)));
}

/// True also for MPI_REQUEST_NULL.
bool is_done(MPI_Request& request) {
  int done = 0;
  check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  return done != 0;
}

}  // namespace

MpiLiveness::MpiLiveness(MPI_Comm comm, const Waiting& waiting)
    : comm_(comm),
      rank_(rank_in(comm)),
      size_(size_of(comm)),
      watchdog_(waiting, rank_text(comm)),
      heartbeats_(rank_, size_, Clock::now()) {
  if (!is_watching()) return;
  interval_ =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(watchdog_.limit_s() / kBeatsPerLimit));
  last_beat_ = last_arrival_ = Clock::now();
  leave_ = std::make_unique<CallNumbers>();
  const std::size_t message_bytes = heartbeats_.bytes().size() + sizeof(std::uint32_t) + kReasonBytes;
  incoming_.resize(message_bytes);
  for (int distance = 1; distance < size_; distance *= 2) {
    for (const int rank : {(rank_ + distance) % size_, (rank_ + size_ - distance) % size_}) {
      const bool is_new =
          std::none_of(neighbours_.begin(), neighbours_.end(), [&](const Neighbour& n) { return n.rank == rank; });
      if (!is_new) continue;
      neighbours_.emplace_back();
      neighbours_.back().rank = rank;
      neighbours_.back().message.resize(message_bytes);
    }
  }
}

MpiLiveness::~MpiLiveness() {
  // Leak memory that MPI may still use.
  const auto leak = [](std::vector<std::byte>& bytes) {
    static_cast<void>(new std::vector<std::byte>(std::move(bytes)));
  };
  for (Neighbour& neighbour : neighbours_) {
    if (neighbour.request != MPI_REQUEST_NULL) leak(neighbour.message);
  }
  if (receiving_ != MPI_REQUEST_NULL) leak(incoming_);
}

void MpiLiveness::check() const {
  if (!mpi_is_up()) {
    throw Error(ErrorKind::kState,
                "MPI has been finalised, and Cairn's objects are of no use any more; end them before MPI_Finalize");
  }
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

void MpiLiveness::begin_call() {
  watchdog_.begin_call();
  if (calls_++ == 0) heartbeats_.begin_call();
}

void MpiLiveness::end_call() {
  --calls_;
  watchdog_.end_call();
}

void MpiLiveness::progress() {
  watchdog_.progress();
  heartbeats_.move();
}

void MpiLiveness::progress(std::string_view phase, const std::filesystem::path& file) {
  watchdog_.progress(phase, file);
  heartbeats_.enter_phase(phase);
  worked();
}

void MpiLiveness::step(std::string_view name) {
  watchdog_.step(name);
  heartbeats_.enter_step(name);
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
    base::log_debug(std::string("no beat: ") + error.what());  // the next wait reports it
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

/// Sends this rank's table to its neighbours; a neighbour that has not received the previous beat is skipped.
void MpiLiveness::beat(Clock::time_point now) {
  last_beat_ = now;
  heartbeats_.beat(now);
  for (Neighbour& neighbour : neighbours_) {
    if (is_done(neighbour.request)) send(neighbour);
  }
}

void MpiLiveness::send(Neighbour& to) {
  const auto table = heartbeats_.bytes();
  std::byte* const behind = to.message.data() + table.size();
  std::memset(to.message.data(), 0, to.message.size());
  std::memcpy(to.message.data(), table.data(), table.size());
  if (is_dead()) {
    const auto culprit = static_cast<std::uint32_t>(rank_ + 1);
    std::memcpy(behind, &culprit, sizeof culprit);
    std::memcpy(behind + sizeof culprit, dead_text_.data(), std::min(dead_text_.size(), kReasonBytes - 1));
  }
  check_mpi(MPI_Issend(to.message.data(), to_count(to.message.size()), MPI_BYTE, to.rank, kBeatTag, comm_, &to.request),
            "MPI_Issend");
}

/// Receives the beats that have arrived. A beat whose sender was stopped in the middle is completed by later calls.
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
    take_in(incoming_);
  }
}

void MpiLiveness::take_in(std::span<const std::byte> message) {
  const std::size_t table_bytes = heartbeats_.bytes().size();
  if (heartbeats_.merge(message.first(table_bytes), Clock::now())) watchdog_.progress();
  std::uint32_t culprit = 0;
  std::memcpy(&culprit, message.data() + table_bytes, sizeof culprit);
  if (culprit == 0 || is_dead()) return;
  const auto* text = reinterpret_cast<const char*>(message.data() + table_bytes + sizeof culprit);
  die(static_cast<int>(culprit) - 1, std::string(text, ::strnlen(text, kReasonBytes - 1)));
  throw Error(ErrorKind::kState, dead_text_);
}

void MpiLiveness::give_up(const char* what) {
  const auto now = Clock::now();
  const std::string text = fmt::format(
      "no progress on any rank for {:g} s {} ({}): {}; look for stopped processes or storage that does not answer "
      "there, or raise the limit (Options::waiting, CAIRN_WATCHDOG_S)",
      watchdog_.limit_s(), watchdog_.where(), what,
      heartbeats_.missing(now - kBeatsPerLimit / 2 * interval_, now, hosts_.get()));
  carry_out(watchdog_.waiting(), text);
  die(rank_, text);
  throw Error(ErrorKind::kState, text);
}

std::string MpiLiveness::fail(const std::string& why) {
  if (!is_dead()) die(rank_, fmt::format("rank {} failed alone {}: {}", rank_, watchdog_.where(), why));
  return dead_text_;
}

void MpiLiveness::follow(const Liveness& other) {
  if (!other.is_dead() || is_dead()) return;
  dead_text_ = other.reason();
  dead_.store(true, std::memory_order_relaxed);
}

/// Marks the communicator dead and notifies the neighbours; MPI keeps messages that are not received soon.
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
        // The last beat has not been received yet, so this message needs separate memory.
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

void MpiLiveness::lose(const std::string& why) noexcept {
  try {
    dead_text_ = why;
  } catch (const std::exception&) {  // dead anyway
  }
  dead_.store(true, std::memory_order_relaxed);
}

bool MpiLiveness::close() noexcept {
  if (!closed_) closed_ = take_leave();
  return *closed_;
}

std::string MpiLiveness::rank_name(int rank) const {
  return name_of_rank(rank, hosts_ && hosts_->are_several() ? hosts_->of(rank) : std::string_view());
}

/// Uses the reduction with which a call begins (agree_on_call), so that ranks that begin a call learn of the end.
/// Ranks that wait long for the reduction send beats, so that missing ranks can be named. Once the reduction is
/// complete, ranks send no more beats; a barrier then ensures that all beats have arrived.
bool MpiLiveness::take_leave() noexcept {
  if (!is_watching() || size_ == 1) return true;
  if (is_dead()) return false;
  MPI_Request request = MPI_REQUEST_NULL;
  try {
    const auto limit = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(watchdog_.limit_s()));
    const auto patience = std::min<Clock::duration>(kClosing, limit);
    const auto interval = patience / kBeatsPerLimit;
    const auto came = Clock::now();
    const auto wait_until = [&](bool beats, const std::function<bool()>& is_so) {
      for (int looks = 0;; ++looks) {
        receive();
        if (is_so()) return true;
        const auto now = Clock::now();
        if (now - came >= patience) return false;
        if (beats && now - std::max(came, last_beat_) > interval) beat(now);
        if (looks > 40) std::this_thread::sleep_for(looks > 1000 ? 1ms : 50us);
      }
    };
    const auto all_taken = [&] {
      bool all = true;
      for (Neighbour& neighbour : neighbours_) all = is_done(neighbour.request) && all;
      return all;
    };
    bool all_came = false;
    if (wait_until(true, all_taken)) {
      *leave_ = numbers_of(CallName::kEnd, rank_);
      flip_top_bits(*leave_);
      check_mpi(
          MPI_Iallreduce(MPI_IN_PLACE, leave_->data(), to_count(leave_->size()), MPI_INT64_T, MPI_MIN, comm_, &request),
          "MPI_Iallreduce");
      all_came = wait_until(true, [&] { return is_done(request); });
    }
    if (all_came) {
      flip_top_bits(*leave_);
      if (const auto mismatch = mismatch_in(*leave_, [&](int rank) { return rank_name(rank); })) {
        base::log_warning(mismatch->text);
        lose(mismatch->text);
        return false;
      }
      if (wait_until(false, all_taken)) {
        check_mpi(MPI_Ibarrier(comm_, &request), "MPI_Ibarrier");
        if (wait_until(false, [&] { return is_done(request) && receiving_ == MPI_REQUEST_NULL; })) return true;
      }
    }
    const auto now = Clock::now();
    const std::string text = fmt::format(
        "{} did not see all ranks come to the end of a Checkpointer, or of another object with a communicator of its "
        "own, which stays with MPI{}; all ranks have to end it",
        rank_text(comm_), all_came ? "" : ": " + heartbeats_.missing(now - patience / 2, now, hosts_.get()));
    base::log_warning(text);
    die(rank_, text);
  } catch (const std::exception& error) {
    if (is_dead()) {  // another rank gave up before
      base::log_warning(error.what());
    } else {
      base::log_debug(std::string("a communicator was not closed: ") + error.what());
    }
  }
  if (request != MPI_REQUEST_NULL) static_cast<void>(leave_.release());
  dead_.store(true, std::memory_order_relaxed);
  return false;
}

}  // namespace cairn::comm::internal
