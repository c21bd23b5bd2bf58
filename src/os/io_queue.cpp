// Requests in the kernel have numbered slots; a slot's number travels through the kernel as user data.
#include "os/io_queue.hpp"

#include <fmt/core.h>
#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <exception>
#include <map>
#include <vector>

#include "cairn/error.hpp"
#include "os/direct.hpp"
#include "os/fault.hpp"
#include "os/limits.hpp"
#include "os/system_calls.hpp"

namespace cairn::os {
namespace {

/// Largest request, well within io_uring's 32-bit lengths.
constexpr std::uint64_t kLargestRequestBytes = 1ULL << 30;

struct Request {
  bool is_write = false;
  IoQueue::Target target;
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;
  std::uint64_t group = 0;
  std::uint64_t needed_bytes = 0;  ///< the other bytes may lie past the end of the file
};

struct Group {
  std::uint64_t unfinished = 0;
  std::exception_ptr failure;
};

const char* verb_of(const Request& request) { return request.is_write ? "write" : "read"; }

bool is_direct(const Request& request) { return request.target.direct != request.target.plain; }

std::string describe(const Request& request) {
  return fmt::format("{} of {} bytes at offset {} {}", verb_of(request), request.bytes, request.offset,
                     request.is_write ? "to" : "from");
}

}  // namespace

struct IoQueue::State {
  io_uring ring{};
  unsigned in_flight = 0;
  std::vector<Request> slots;  // requests that the kernel has, by slot number
  std::vector<unsigned> free_slots;
  std::deque<Request> waiting;
  std::map<std::uint64_t, Group> groups;
  std::string refusal;  ///< reason why O_DIRECT was refused at a transfer

  void add(Request request) {
    Group& group = groups[request.group];
    while (request.bytes > 0) {
      Request piece = request;
      piece.bytes = std::min(request.bytes, kLargestRequestBytes);
      piece.needed_bytes = std::min(request.needed_bytes, piece.bytes);
      waiting.push_back(piece);  // may throw; nothing waits for a request that was not added
      ++group.unfinished;
      request.data += piece.bytes;
      request.offset += piece.bytes;
      request.bytes -= piece.bytes;
      request.needed_bytes -= piece.needed_bytes;
    }
    take_completed();  // keeps storage busy if the caller waits for data between requests
  }

  void hand_over() {
    bool prepared = false;
    while (!waiting.empty() && !free_slots.empty()) {
      const Request request = waiting.front();
      waiting.pop_front();
      const unsigned before = in_flight;
      start(request);
      prepared = prepared || in_flight != before;
    }
    // -EBUSY, -EAGAIN: the kernel lacks resources; the entries stay in the ring for the next call.
    if (prepared) io_uring_submit(&ring);
  }

  /// Puts the request into the ring, after its fault hook.
  void start(const Request& request) {
    std::uint64_t bytes = request.bytes;
    if (const int refused = request.is_write ? refuse_size(request.offset + bytes) : 0; refused != 0) {
      return complete(request, -refused);
    }
    for (;;) {
      const auto fault = check_fault(verb_of(request), request.target.plain->path());
      if (!fault) break;
      if (fault->short_bytes || fault->lies) {
        bytes = fault->lies ? half_of(bytes) : std::min({bytes, *fault->short_bytes, request.needed_bytes});
        // O_DIRECT refuses numbers of bytes that are not aligned, so the plain descriptor transfers them here.
        try {
          const auto part = std::span(request.data, bytes);
          if (request.is_write) {
            request.target.plain->write_at(part, request.offset);
          } else {
            request.target.plain->read_at(part, request.offset);
          }
          complete(request, static_cast<std::int64_t>(fault->lies ? request.bytes : bytes));
        } catch (...) {
          end(request, std::current_exception());
        }
        return;
      }
      if (fault->error != EINTR) return complete(request, -fault->error);
    }
    if (!refusal.empty() && is_direct(request)) return finish_plainly(request);
    io_uring_sqe* entry = io_uring_get_sqe(&ring);
    if (entry == nullptr) {  // each slot has an entry, so only a refused submit fills the ring
      io_uring_submit(&ring);
      entry = io_uring_get_sqe(&ring);
      if (entry == nullptr) return finish_plainly(request);
    }
    const unsigned slot = free_slots.back();
    free_slots.pop_back();
    slots[slot] = request;
    const int descriptor = request.target.direct->descriptor();
    if (request.is_write) {
      io_uring_prep_write(entry, descriptor, request.data, static_cast<unsigned>(bytes), request.offset);
    } else {
      io_uring_prep_read(entry, descriptor, request.data, static_cast<unsigned>(bytes), request.offset);
    }
    // Without this flag, a submission without O_DIRECT would copy the data itself, and return only after that.
    if (!is_direct(request)) io_uring_sqe_set_flags(entry, IOSQE_ASYNC);
    io_uring_sqe_set_data64(entry, slot);
    ++in_flight;
  }

  /// Waits for at least one request, and completes all that have ended.
  void collect() {
    if (in_flight == 0) return;
    int error = 0;
    do {
      error = io_uring_submit_and_wait(&ring, 1);
    } while (error == -EINTR || error == -EAGAIN || error == -EBUSY);
    if (error < 0) {
      throw Error(ErrorKind::kIo, fmt::format("waiting for input and output failed: {}", error_text(-error)),
                  {-error, {}});
    }
    take_completed();
  }

  /// Completes all requests that have ended, and submits waiting ones in their slots.
  void take_completed() {
    io_uring_cqe* entry = nullptr;
    while (io_uring_peek_cqe(&ring, &entry) == 0 && entry != nullptr) {
      const auto slot = static_cast<unsigned>(io_uring_cqe_get_data64(entry));
      const std::int64_t result = entry->res;
      io_uring_cqe_seen(&ring, entry);
      --in_flight;
      work_moved();
      free_slots.push_back(slot);
      const Request request = slots[slot];
      complete(request, result);
    }
    hand_over();
  }

  void complete(const Request& request, std::int64_t result) {
    try {
      if (result == -EINTR || result == -EAGAIN) return waiting.push_back(request);
      if (is_direct(request) && is_unsupported(static_cast<int>(-result))) {
        note_refusal(request, static_cast<int>(-result));
        return finish_plainly(request);
      }
      if (result < 0) throw_system_error(describe(request), request.target.plain->path(), static_cast<int>(-result));
      const auto moved = static_cast<std::uint64_t>(result);
      record(verb_of(request), request.target.plain->path(), begin_record());
      if (moved >= request.needed_bytes) return end(request, nullptr);
      const std::string path = shown(request.target.plain->path());
      if (moved == 0 && request.is_write) {
        throw Error(
            ErrorKind::kIo,
            fmt::format("{} '{}' failed: the file system took no byte and gave no error", describe(request), path),
            {0, request.target.plain->path().native()});
      }
      if (moved == 0) {
        throw Error(ErrorKind::kIo,
                    fmt::format("'{}' ends at byte {}, but {} bytes were to be read at offset {}", path, request.offset,
                                request.bytes, request.offset),
                    {0, request.target.plain->path().native()});
      }
      Request rest = request;
      rest.data += moved;
      rest.offset += moved;
      rest.bytes -= moved;
      rest.needed_bytes -= moved;
      if (moved % request.target.alignment != 0) return finish_plainly(rest);
      waiting.push_back(rest);
    } catch (...) {
      end(request, std::current_exception());
    }
  }

  void note_refusal(const Request& request, int error) {
    if (!refusal.empty()) return;
    refusal = internal::direct_refusal(request.target.plain->path(), verb_of(request), error);
  }

  void finish_plainly(const Request& request) {
    try {
      if (request.is_write) {
        request.target.plain->write_at(std::span(request.data, request.bytes), request.offset);
      } else {
        request.target.plain->read_at(std::span(request.data, request.needed_bytes), request.offset);
      }
      end(request, nullptr);
    } catch (...) {
      end(request, std::current_exception());
    }
  }

  void end(const Request& request, std::exception_ptr failure) {
    Group& group = groups[request.group];
    --group.unfinished;
    if (failure && !group.failure) group.failure = std::move(failure);
  }
};

IoQueue::IoQueue(unsigned depth) : state_(std::make_unique<State>()) {
  int error = fault_error("os.io_uring", "io_uring");
  if (error == 0) error = -io_uring_queue_init(depth, &state_->ring, 0);
  if (error != 0) {
    state_.reset();
    throw Error(ErrorKind::kIo, fmt::format("io_uring is refused: {}", error_text(error)), {error, {}});
  }
  state_->slots.resize(depth);
  for (unsigned slot = depth; slot-- > 0;) state_->free_slots.push_back(slot);
}

IoQueue::~IoQueue() {
  if (!state_) return;
  state_->waiting.clear();
  try {
    while (state_->in_flight > 0) {
      state_->collect();
      state_->waiting.clear();
    }
  } catch (...) {  // the ring is broken: closing it ends its requests
  }
  io_uring_queue_exit(&state_->ring);
}

void IoQueue::write(const Target& target, std::span<const std::byte> data, std::uint64_t offset, std::uint64_t group) {
  state_->add({true, target, const_cast<std::byte*>(data.data()), data.size(), offset, group, data.size()});
}

void IoQueue::read(const Target& target, std::span<std::byte> data, std::uint64_t offset, std::uint64_t group) {
  read_to_end(target, data, offset, group, data.size());
}

void IoQueue::read_to_end(const Target& target, std::span<std::byte> data, std::uint64_t offset, std::uint64_t group,
                          std::uint64_t needed_bytes) {
  state_->add({false, target, data.data(), data.size(), offset, group, needed_bytes});
}

const std::string& IoQueue::refusal() const { return state_->refusal; }

void IoQueue::finish(std::uint64_t group) {
  const auto found = state_->groups.find(group);
  if (found == state_->groups.end()) return;
  while (found->second.unfinished > 0) {
    state_->hand_over();
    if (state_->in_flight > 0) state_->collect();
  }
  const std::exception_ptr failure = found->second.failure;
  state_->groups.erase(found);
  if (failure) std::rethrow_exception(failure);
}

}  // namespace cairn::os
