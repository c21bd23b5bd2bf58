#include "comm/mail.hpp"

#include <cstring>

#include "cairn/error.hpp"

namespace cairn::comm {

void MailWriter::close(std::size_t to) {
  const std::size_t begin = pieces_.empty() ? 0 : pieces_.back().end;
  sizes_.at(to) += buffer_.size() - begin;
  pieces_.push_back({to, buffer_.size()});
}

Mail MailWriter::take() {
  Mail mail(sizes_.size());
  for (std::size_t to = 0; to < mail.size(); ++to) mail[to].reserve(sizes_[to]);
  std::size_t begin = 0;
  for (const Piece& piece : pieces_) {
    const auto from = buffer_.begin() + static_cast<std::ptrdiff_t>(begin);
    mail[piece.to].insert(mail[piece.to].end(), from, buffer_.begin() + static_cast<std::ptrdiff_t>(piece.end));
    begin = piece.end;
  }
  buffer_ = {};
  pieces_ = {};
  sizes_.assign(sizes_.size(), 0);
  return mail;
}

std::span<const std::byte> MailReader::next(std::uint64_t bytes) {
  if (bytes > rest_.size()) {
    throw Error(ErrorKind::kInternal, "a message between ranks is shorter than it says");
  }
  const auto out = rest_.first(bytes);
  rest_ = rest_.subspan(bytes);
  return out;
}

std::uint64_t MailReader::u64() {
  std::uint64_t value = 0;
  std::memcpy(&value, next(sizeof value).data(), sizeof value);
  return value;
}

std::string_view MailReader::text() {
  const auto bytes = next(u64());
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::byte> MailReader::next_u64s() {
  const std::uint64_t count = u64();
  const bool fits = count <= rest_.size() / sizeof(std::uint64_t);
  return next(fits ? count * sizeof(std::uint64_t) : rest_.size() + 1);
}

std::vector<std::uint64_t> MailReader::u64s() {
  const auto bytes = next_u64s();
  std::vector<std::uint64_t> values(bytes.size() / sizeof(std::uint64_t));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

void MailReader::skip_u64s() { next_u64s(); }

}  // namespace cairn::comm
