// Messages of one rank to all ranks, and how they are written and read without many small allocations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"

namespace cairn::comm {

/// One message for (or from) each rank.
using Mail = std::vector<base::Bytes>;

/// Takes pieces of messages in any order of receivers; a message is its pieces in the order in which they were added. One
/// buffer holds them all until the sizes are known.
class MailWriter {
 public:
  explicit MailWriter(std::size_t ranks) : sizes_(ranks) {}

  /// Writes a part of the open piece.
  void raw(const void* data, std::size_t bytes) {
    const auto* from = static_cast<const std::byte*>(data);
    buffer_.insert(buffer_.end(), from, from + bytes);
  }
  void u64(std::uint64_t value) { raw(&value, sizeof value); }
  void text(std::string_view value) {
    u64(value.size());
    raw(value.data(), value.size());
  }
  void u64s(std::span<const std::uint64_t> values) {
    u64(values.size());
    raw(values.data(), values.size() * sizeof(std::uint64_t));
  }
  /// What was written since the last call goes to rank `to`.
  void close(std::size_t to);

  [[nodiscard]] Mail take();

 private:
  struct Piece {
    std::size_t to = 0;
    std::size_t end = 0;
  };
  base::Bytes buffer_;
  std::vector<Piece> pieces_;
  std::vector<std::size_t> sizes_;
};

/// Reads what MailWriter and base::ByteWriter write, as views into the message. Throws Error(kInternal) when it is shorter
/// than it says.
class MailReader {
 public:
  explicit MailReader(std::span<const std::byte> bytes) : rest_(bytes) {}
  [[nodiscard]] bool done() const { return rest_.empty(); }
  std::uint64_t u64();
  std::string_view text();
  std::vector<std::uint64_t> u64s();
  void skip_u64s();
  /// The next bytes as they are.
  std::span<const std::byte> raw(std::uint64_t bytes) { return next(bytes); }
  [[nodiscard]] std::size_t left() const { return rest_.size(); }

 private:
  std::span<const std::byte> next(std::uint64_t bytes);
  std::span<const std::byte> next_u64s();

  std::span<const std::byte> rest_;
};

}  // namespace cairn::comm
