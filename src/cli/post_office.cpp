#include "cli/post_office.hpp"

#include "base/checked.hpp"

namespace cairn::cli {

PostOffice::PostOffice(int ranks)
    : boxes_(static_cast<std::size_t>(ranks)), is_kept_(boxes_.size(), true), volumes_(boxes_.size()) {}

void PostOffice::keep_only(const std::vector<int>& ranks) {
  is_kept_.assign(is_kept_.size(), false);
  for (const int rank : ranks) is_kept_.at(static_cast<std::size_t>(rank)) = true;
}

std::uint32_t PostOffice::number_of(const base::Bytes& content) {
  const auto text = [](const base::Bytes& bytes) {
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  if (const auto known = number_of_content_.find(text(content)); known != number_of_content_.end()) {
    return known->second;
  }
  const auto number = base::narrow<std::uint32_t>(contents_.size(), "number of messages");
  contents_.push_back(content);
  number_of_content_.emplace(text(contents_.back()), number);
  return number;
}

void PostOffice::post(int from, const comm::Mail& outgoing) {
  const auto sender = static_cast<std::size_t>(from);
  for (std::size_t to = 0; to < outgoing.size(); ++to) {
    if (outgoing[to].empty()) continue;
    if (to != sender) {
      volumes_[sender].sent_bytes += outgoing[to].size();
      volumes_[to].received_bytes += outgoing[to].size();
    }
    if (is_kept_[to]) boxes_[to].push_back({static_cast<std::uint32_t>(from), number_of(outgoing[to])});
  }
}

comm::Mail PostOffice::deliver(int to) const {
  comm::Mail mail(boxes_.size());
  for (const Letter& letter : boxes_.at(static_cast<std::size_t>(to))) mail[letter.from] = contents_[letter.content];
  return mail;
}

}  // namespace cairn::cli
