// SHA-256 and SHA-1 (FIPS 180-4) of bytes that arrive piece by piece: the digests that are the names of files in a
// Hugging Face cache. They find damage; nothing here protects a secret, and the code takes no care of timing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace cairn::format {

/// Collects blocks of 64 bytes for a hash of the SHA family, and pads the last.
template <class Hash>
class RunningSha {
 public:
  void add(std::span<const std::byte> data);
  /// Lower-case hexadecimal digits. Nothing may be added afterwards.
  [[nodiscard]] std::string finish();

 private:
  static constexpr std::size_t kBlockBytes = 64;
  Hash hash_;
  std::array<std::byte, kBlockBytes> rest_{};
  std::uint64_t bytes_ = 0;
};

struct Sha256 {
  std::array<std::uint32_t, 8> state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  void take(const std::byte* block);
};

struct Sha1 {
  std::array<std::uint32_t, 5> state = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
  void take(const std::byte* block);
};

extern template class RunningSha<Sha256>;
extern template class RunningSha<Sha1>;

using RunningSha256 = RunningSha<Sha256>;
using RunningSha1 = RunningSha<Sha1>;

}  // namespace cairn::format
