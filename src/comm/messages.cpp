#include "comm/messages.hpp"

namespace cairn::comm {

void MessageWriter::close(std::size_t to) {
  const std::size_t begin = pieces_.empty() ? 0 : pieces_.back().end;
  sizes_.at(to) += bytes().size() - begin;
  pieces_.push_back({to, bytes().size()});
}

Messages MessageWriter::take() {
  const base::Bytes buffer = ByteWriter::take();
  Messages messages(sizes_.size());
  for (std::size_t to = 0; to < messages.size(); ++to) messages[to].reserve(sizes_[to]);
  std::size_t begin = 0;
  for (const Piece& piece : pieces_) {
    const auto from = buffer.begin() + static_cast<std::ptrdiff_t>(begin);
    messages[piece.to].insert(messages[piece.to].end(), from, buffer.begin() + static_cast<std::ptrdiff_t>(piece.end));
    begin = piece.end;
  }
  pieces_ = {};
  sizes_.assign(sizes_.size(), 0);
  return messages;
}

}  // namespace cairn::comm
