// The host of each rank. Hosts are exchanged when a communicator is made, because a missing rank cannot be asked later.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"

namespace cairn::comm {

/// Length of the longest name of a host in messages.
constexpr std::size_t kHostBytes = 64;

/// Holds each name once, and 4 bytes per rank: about 70 KB for 16,384 ranks on 256 hosts.
class Hosts {
 public:
  /// `names`: one after another, each ended by NUL; `begin_of_rank`: offset of the name of each rank's host.
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

/// Collective: collects every rank's `mine`, made printable and at most kHostBytes long, through rank 0.
Hosts exchange_hosts(Communicator& communicator, std::string_view mine);

}  // namespace cairn::comm
