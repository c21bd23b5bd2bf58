// Messages from one rank to all ranks, written and read without many small allocations.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"

namespace cairn::comm {

/// One message for (or from) each rank.
using Messages = std::vector<base::Bytes>;

/// Collects pieces of messages, for receivers in any order; a message consists of its pieces in the order in which they
/// were added. One buffer holds all pieces until take().
class MessageWriter : private base::ByteWriter {
 public:
  explicit MessageWriter(std::size_t ranks) : sizes_(ranks) {}

  // These functions add to the open piece.
  using ByteWriter::raw;
  using ByteWriter::text;
  using ByteWriter::u64;
  using ByteWriter::u64s;

  /// Ends the open piece, which is for rank `to`.
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

/// Reads messages of MessageWriter and base::ByteWriter; text() and raw() return views into the message. Throws
/// Error(kInternal) if a message is shorter than the lengths in it require.
class MessageReader : public base::ByteReader {
 public:
  using ByteReader::ByteReader;
  std::string_view text() { return text_view(); }
};

}  // namespace cairn::comm
