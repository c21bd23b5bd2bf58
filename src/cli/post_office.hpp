// Messages between the ranks of a world that one process plays: kept once however often they are sent, and counted.
#pragma once

#include <cstdint>
#include <deque>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "planning/catalog_steps.hpp"

namespace cairn::cli {

/// What a rank sent to and received from others; messages to itself do not count.
struct MailVolume {
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
};

/// One exchange of messages among all ranks.
class PostOffice {
 public:
  explicit PostOffice(int ranks);

  /// Messages to other ranks than these are counted, but not kept.
  void keep_only(const std::vector<int>& ranks);
  /// `outgoing`: one message per rank. Ranks post in ascending order.
  void post(int from, const comm::Mail& outgoing);
  /// What rank `to` gets: one message per rank.
  [[nodiscard]] comm::Mail deliver(int to) const;
  [[nodiscard]] const MailVolume& volume_of(int rank) const { return volumes_[static_cast<std::size_t>(rank)]; }

 private:
  struct Letter {
    std::uint32_t from = 0;
    std::uint32_t content = 0;
  };
  std::uint32_t number_of(const base::Bytes& content);

  std::deque<base::Bytes> contents_;
  std::unordered_map<std::string_view, std::uint32_t> number_of_content_;
  std::vector<std::vector<Letter>> boxes_;  ///< by receiver
  std::vector<bool> is_kept_;
  std::vector<MailVolume> volumes_;
};

}  // namespace cairn::cli
