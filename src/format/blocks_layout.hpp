// Where the fields of `cairn.blocks` lie; shared by its encoder and its decoder. FORMAT.md explains every byte.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cairn::format::blocks_layout {

inline constexpr std::string_view kMagic = "CAIRNBLK";
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::size_t kHeaderBytes = 48;      // as written by version 1; a reader goes by the field
inline constexpr std::size_t kFileHeaderBytes = 24;  // name length, reserved, size, block count
inline constexpr std::size_t kTrailerBytes = 4;      // masked CRC-32C of all bytes before it
inline constexpr std::size_t kCrcBytes = 4;
inline constexpr std::size_t kUnit = 8;  // names and CRC arrays are padded to multiples of this

/// How a CRC is stored inside bytes whose CRC is taken in turn. The CRC of any message that ends with its own CRC is
/// the constant 0x48674bc7, so without this the manifest's checksum of `cairn.blocks` would fit every block table there
/// is. The mask is that of LevelDB and TFRecord.
constexpr std::uint32_t masked(std::uint32_t crc) { return std::rotr(crc, 15) + 0xa282ead8u; }

}  // namespace cairn::format::blocks_layout
