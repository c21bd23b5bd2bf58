// Which host each rank runs on, known to every rank before anything hangs: afterwards the missing ones cannot be asked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"

namespace cairn::comm {

/// Most of a name that messages give.
constexpr std::size_t kHostBytes = 64;

/// Each name is held once, and 4 bytes per rank: at 16,384 ranks on 256 hosts some 70 KB.
class Hosts {
 public:
  /// Names after each other, each with a NUL behind it, and where in them the name of each rank begins.
  Hosts(std::string names, std::vector<std::uint32_t> begin_of_rank);

  [[nodiscard]] std::string_view of(int rank) const {
    return names_.c_str() + begin_.at(static_cast<std::size_t>(rank));
  }
  [[nodiscard]] std::size_t ranks() const { return begin_.size(); }
  [[nodiscard]] bool are_several() const;

 private:
  std::string names_;
  std::vector<std::uint32_t> begin_;
};

/// "rank 3 on node07"; "rank 3" without a host.
std::string name_of_rank(int rank, std::string_view host);

/// Collective: `mine` of every rank, made printable and at most kHostBytes, by way of rank 0.
Hosts exchange_hosts(Communicator& communicator, std::string_view mine);

}  // namespace cairn::comm
