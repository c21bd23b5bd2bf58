// The memory of a pickle's values, filled by the reader and read by PickleValue. Only for pickle*.cpp.
//
// Values refer to each other by indexes into a few arrays, so a value may contain itself. A node has only 32 bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pickle/pickle.hpp"

namespace cairn::pickle {

using PickleIndex = std::uint32_t;
inline constexpr PickleIndex kNoPickleValue = UINT32_MAX;

struct PickleNode {
  PickleKind kind = PickleKind::kNone;
  /// Text and bytes: distance of the content from `offset` in the source; 0 if the source does not have it unchanged.
  std::uint8_t header_bytes = 0;
  bool is_inline = false;      ///< text and bytes: the content is in PickleStore::text
  bool is_old_string = false;  ///< bytes: str of Python 2
  std::uint64_t offset = 0;    ///< offset of the opcode, in the source
  /// Bool, integer: the value. Float: its bits. Text, bytes, long integer, global: offset in `text`. Tuple: offset in
  /// `tuples`. List, set: index in `lists`. Dict: index in `lists`, keys and values in turn. Object: index in
  /// `objects`. Persistent: index of the id in `nodes`. Not used for None.
  std::uint64_t place = 0;
  std::uint64_t size = 0;  ///< text, bytes, long integer, global: bytes. Tuple: elements
};

struct PickleObject {
  PickleIndex callable = kNoPickleValue;
  PickleIndex arguments = kNoPickleValue;
  PickleIndex keywords = kNoPickleValue;
  PickleIndex state = kNoPickleValue;
  std::vector<PickleIndex> appended;
  std::vector<PickleIndex> entries;  ///< keys and values in turn
};

struct PickleStore {
  std::string path;
  std::vector<PickleNode> nodes;
  std::string text;
  std::vector<PickleIndex> tuples;
  std::vector<std::vector<PickleIndex>> lists;
  std::vector<PickleObject> objects;
  PickleIndex root = kNoPickleValue;
  std::uint64_t end = 0;
  bool has_cycles = false;
  std::vector<std::string> warnings;

  [[nodiscard]] std::string_view text_of(const PickleNode& node) const {
    return std::string_view(text).substr(node.place, node.size);
  }
  [[nodiscard]] std::span<const PickleIndex> elements_of(const PickleNode& node) const;
  [[nodiscard]] std::span<const PickleIndex> entries_of(const PickleNode& node) const;
  [[nodiscard]] std::size_t children_of(const PickleNode& node) const;
  [[nodiscard]] PickleIndex child_of(const PickleNode& node, std::size_t i) const;
  [[noreturn]] void fail(std::uint64_t offset, const std::string& what) const;
};

/// After the last opcode: merges keys that were set twice, and finds cycles.
/// Throws Error(kFormat) for values nested deeper than `depth`.
void finish_pickle(PickleStore& store, std::uint32_t depth);

}  // namespace cairn::pickle
