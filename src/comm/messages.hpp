// Messages of one rank to all ranks, and how they are written and read without many small allocations.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"

namespace cairn::comm {

/// One message for (or from) each rank.
using Messages = std::vector<base::Bytes>;

/// Takes pieces of messages in any order of receivers; a message is its pieces in the order in which they were added.
/// One buffer holds them all until the sizes are known.
class MessageWriter : private base::ByteWriter {
 public:
  explicit MessageWriter(std::size_t ranks) : sizes_(ranks) {}

  // Each writes a part of the open piece.
  using ByteWriter::raw;
  using ByteWriter::text;
  using ByteWriter::u64;
  using ByteWriter::u64s;

  /// What was written since the last call goes to rank `to`.
  void close(std::size_t to);

  [[nodiscard]] Messages take();

 private:
  struct Piece {
    std::size_t to = 0;
    std::size_t end = 0;
  };
  std::vector<Piece> pieces_;
  std::vector<std::size_t> sizes_;
};

/// Reads what MessageWriter and base::ByteWriter write, as views into the message. Throws Error(kInternal) when it is
/// shorter than it says.
class MessageReader : public base::ByteReader {
 public:
  using ByteReader::ByteReader;
  std::string_view text() { return text_view(); }
};

}  // namespace cairn::comm
