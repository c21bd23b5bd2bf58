// Convenience functions of a communicator, built on its collectives, and checks of arguments.
#include "comm/communicator.hpp"

#include <fmt/core.h>

#include "base/checked.hpp"
#include "base/internal_error.hpp"
#include "comm/agree.hpp"
#include "comm/hosts.hpp"

namespace cairn::comm {

std::string_view Communicator::host_of(int /*rank*/) const { return {}; }

std::string Communicator::rank_name(int rank) const { return name_of_rank(rank, host_of(rank)); }

std::uint64_t Communicator::sum(std::uint64_t value) {
  all_reduce(std::span(&value, 1), ReduceOp::kSum);
  return value;
}

std::uint64_t Communicator::max(std::uint64_t value) {
  all_reduce(std::span(&value, 1), ReduceOp::kMax);
  return value;
}

std::uint64_t Communicator::min(std::uint64_t value) {
  all_reduce(std::span(&value, 1), ReduceOp::kMin);
  return value;
}

std::optional<int> Communicator::lowest_rank_where(bool yes) {
  const auto ranks = static_cast<std::uint64_t>(size());
  const std::uint64_t lowest = min(yes ? static_cast<std::uint64_t>(rank()) : ranks);
  if (lowest == ranks) return std::nullopt;
  return static_cast<int>(lowest);
}

void Communicator::share(base::Bytes& data, int root) {
  std::uint64_t size = data.size();
  broadcast(std::as_writable_bytes(std::span(&size, 1)), root);
  // A rank that lacks the memory must not leave other ranks waiting in the broadcast.
  agree(*this, "receiving shared bytes", [&] { data.resize(base::narrow<std::size_t>(size, "size of shared bytes")); });
  broadcast(data, root);
}

void Communicator::share(std::string& text, int root) {
  std::uint64_t size = text.size();
  broadcast(std::as_writable_bytes(std::span(&size, 1)), root);
  agree(*this, "receiving shared text", [&] { text.resize(base::narrow<std::size_t>(size, "size of shared text")); });
  broadcast(std::as_writable_bytes(std::span(text.data(), text.size())), root);
}

void Communicator::check_message(std::uint64_t bytes, int peer, int tag) const {
  if (bytes > kMaxMessageBytes) {
    throw base::internal_error(fmt::format("message of {} bytes is larger than {} bytes", bytes, kMaxMessageBytes));
  }
  if (peer < 0 || peer >= size()) {
    throw base::internal_error(fmt::format("message to or from rank {} of a group of {}", peer, size()));
  }
  if (tag < 0 || tag > kMaxTag) {
    throw base::internal_error(fmt::format("message tag {} is outside 0 to {}", tag, kMaxTag));
  }
}

void Communicator::check_root(int root) const {
  if (root >= 0 && root < size()) return;
  throw base::internal_error(fmt::format("root rank {} in a group of {}", root, size()));
}

void Communicator::check_subgroup(int first, int last, int tag) const {
  if (first < 0 || first > rank() || last < rank() || last >= size()) {
    throw base::internal_error(
        fmt::format("subgroup [{}, {}] made by rank {} of a group of {}", first, last, rank(), size()));
  }
  if (tag < 0 || tag > kMaxTag) {
    throw base::internal_error(fmt::format("subgroup tag {} is outside 0 to {}", tag, kMaxTag));
  }
}

void Communicator::check_outgoing(std::size_t parts) const {
  if (parts == static_cast<std::size_t>(size())) return;
  throw base::internal_error(fmt::format("all_to_all of {} parts in a group of {}", parts, size()));
}

void Communicator::check_real_reduction(ReduceOp op) {
  if (op == ReduceOp::kSum || op == ReduceOp::kMin || op == ReduceOp::kMax) return;
  throw base::internal_error("bitwise reduction of floating-point values");
}

}  // namespace cairn::comm
