#include "comm/hosts.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/bytes.hpp"
#include "base/checked.hpp"
#include "base/text.hpp"
#include "comm/agree.hpp"

namespace cairn::comm {
namespace {

constexpr const char* kStep = "exchange the names of the hosts";

base::Bytes pack(const std::vector<base::Bytes>& host_of_rank) {
  std::map<base::Bytes, std::uint64_t> begin_of_host;
  std::string names;
  std::vector<std::uint64_t> begin_of_rank;
  for (const base::Bytes& host : host_of_rank) {
    const auto [found, is_new] = begin_of_host.try_emplace(host, names.size());
    if (is_new) {
      names.append(reinterpret_cast<const char*>(host.data()), host.size());
      names.push_back('\0');
    }
    begin_of_rank.push_back(found->second);
  }
  base::ByteWriter packed;
  packed.text(names);
  packed.u64s(begin_of_rank);
  return packed.take();
}

Hosts unpack(const base::Bytes& packed) {
  base::ByteReader reader(packed);
  std::string names = reader.text();
  std::vector<std::uint32_t> begin_of_rank;
  for (const std::uint64_t begin : reader.u64s()) {
    begin_of_rank.push_back(base::narrow<std::uint32_t>(begin, "names of hosts"));
  }
  return {std::move(names), std::move(begin_of_rank)};
}

}  // namespace

Hosts::Hosts(std::string names, std::vector<std::uint32_t> begin_of_rank)
    : names_(std::move(names)), begin_(std::move(begin_of_rank)) {}

bool Hosts::are_several() const {
  return std::any_of(begin_.begin(), begin_.end(), [&](std::uint32_t begin) { return begin != begin_.front(); });
}

Hosts exchange_hosts(Communicator& communicator, std::string_view mine) {
  std::string name;
  agree(communicator, kStep, [&] { name = base::printable(mine, kHostBytes); });
  const auto names = communicator.gather(base::as_bytes(name), 0);
  base::Bytes packed;
  agree_on_root(communicator, kStep, 0, [&] { packed = pack(names); });
  communicator.share(packed, 0);
  std::optional<Hosts> hosts;
  agree(communicator, kStep, [&] { hosts = unpack(packed); });
  return *std::move(hosts);
}

std::string name_of_rank(int rank, std::string_view host) {
  return host.empty() ? fmt::format("rank {}", rank) : fmt::format("rank {} on {}", rank, host);
}

}  // namespace cairn::comm
