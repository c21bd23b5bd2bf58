#include "bench/ranks.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <thread>

#include "cairn/error.hpp"

namespace cairn::bench {
namespace {

base::AlignedBuffer used_buffer(std::uint64_t bytes) {
  base::AlignedBuffer buffer(bytes);
  // Two passes: the first one gets the pages, and on a virtual machine the second one is slow too.
  for (const int value : {1, 2}) std::ranges::fill(buffer.span(), static_cast<std::byte>(value));
  return buffer;
}

constexpr int kGroupTag = 4501;
constexpr int kOutcomeTag = 4502;
constexpr std::chrono::milliseconds kNap{3};

// The result of the work, in a message of fixed size: one byte (0: success; otherwise 1 + kind) and an error message.
using Outcome = std::array<std::byte, 4096>;

Outcome outcome_of(const std::optional<Error>& error) {
  Outcome out{};
  if (!error) return out;
  out[0] = static_cast<std::byte>(1 + static_cast<int>(error->kind()));
  const std::string text = error->what();
  std::memcpy(out.data() + 1, text.data(), std::min(text.size(), out.size() - 2));
  return out;
}

void raise(const Outcome& outcome) {
  if (outcome[0] == std::byte{0}) return;
  const auto kind = static_cast<ErrorKind>(static_cast<int>(outcome[0]) - 1);
  throw Error(kind, reinterpret_cast<const char*>(outcome.data() + 1));
}

}  // namespace

std::span<std::byte> RankMemory::take(std::uint64_t bytes) {
  if (bytes > area_.size()) {
    area_ = {};  // frees the old area first, since both may not fit
    area_ = used_buffer(bytes);
  }
  return area_.span().first(bytes);
}

std::span<base::AlignedBuffer> RankMemory::buffers(std::size_t count, std::uint64_t bytes) {
  if (!buffers_.empty() && buffers_.front().size() != bytes) buffers_.clear();
  while (buffers_.size() < count) buffers_.push_back(used_buffer(bytes));
  return std::span(buffers_).first(count);
}

void RankGroups::run(int ranks, const std::function<void(comm::Communicator&)>& work) {
  if (world_.rank() < ranks) {
    work_and_tell(ranks, work);
  } else {
    wait_asleep();
  }
}

void RankGroups::work_and_tell(int ranks, const std::function<void(comm::Communicator&)>& work) {
  std::unique_ptr<comm::Communicator>& group = groups_[ranks];
  if (!group) group = world_.subgroup(0, ranks - 1, kGroupTag);
  std::optional<Error> error;
  try {
    work(*group);
  } catch (const Error& thrown) {
    error = thrown;
  }
  if (world_.rank() == 0) {
    const Outcome outcome = outcome_of(error);
    std::vector<std::unique_ptr<comm::Request>> sends;
    for (int sleeper = ranks; sleeper < world_.size(); ++sleeper) {
      sends.push_back(world_.send(outcome, sleeper, kOutcomeTag));
    }
    for (const auto& send : sends) send->wait();
  }
  if (error) throw Error(*error);
}

void RankGroups::wait_asleep() {
  Outcome outcome{};
  const auto message = world_.receive(outcome, 0, kOutcomeTag);
  while (!message->test()) std::this_thread::sleep_for(kNap);
  raise(outcome);
}

}  // namespace cairn::bench
