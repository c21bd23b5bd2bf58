#include "format/sha.hpp"

#include <fmt/core.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <type_traits>

namespace cairn::format {
namespace {

std::uint32_t big_endian(const std::byte* at) {
  return std::to_integer<std::uint32_t>(at[0]) << 24 | std::to_integer<std::uint32_t>(at[1]) << 16 |
         std::to_integer<std::uint32_t>(at[2]) << 8 | std::to_integer<std::uint32_t>(at[3]);
}

constexpr std::array<std::uint32_t, 64> kRounds = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

#if defined(__x86_64__)
constexpr bool kMayHaveInstructions = true;

/// Whether the processor has instructions for SHA-256.
bool find_instructions() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned kSse41 = 1U << 19;
  constexpr unsigned kSha = 1U << 29;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kSse41) == 0) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & kSha) != 0;
}

/// As Sha256::take() of each block, by those instructions.
__attribute__((target("sha,sse4.1"))) void take_by_instructions(std::array<std::uint32_t, 8>& state,
                                                                const std::byte* block, std::size_t blocks) {
  const auto load = [](const void* at) __attribute__((target("sha,sse4.1"))) {
    return _mm_loadu_si128(static_cast<const __m128i*>(at));
  };
  // As _mm_alignr_epi8(high, low, 8) and (..., 4), which GCC 12 does not compile without optimisation.
  const auto join_halves = [](__m128i high, __m128i low) __attribute__((target("sha,sse4.1"))) {
    return _mm_blend_epi16(_mm_shuffle_epi32(low, 0x4E), _mm_shuffle_epi32(high, 0x4E), 0xF0);
  };
  const auto shift_in_word = [](__m128i high, __m128i low) __attribute__((target("sha,sse4.1"))) {
    return _mm_blend_epi16(_mm_shuffle_epi32(low, 0x39), _mm_shuffle_epi32(high, 0x39), 0xC0);
  };
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  // The instructions want the words of the state as (a, b, e, f) and (c, d, g, h), the first one highest.
  const __m128i badc = _mm_shuffle_epi32(load(state.data()), 0xB1);
  const __m128i hgfe = _mm_shuffle_epi32(load(state.data() + 4), 0x1B);
  __m128i abef = join_halves(badc, hgfe);
  __m128i cdgh = _mm_blend_epi16(hgfe, badc, 0xF0);
  for (; blocks > 0; --blocks, block += 64) {
    const __m128i abef_before = abef;
    const __m128i cdgh_before = cdgh;
    __m128i w[4];  // not a std::array, which would drop attributes of __m128i
    for (std::size_t i = 0; i < 16; ++i) {
      __m128i& now = w[i % 4];  // the words of 16 rounds before are replaced
      if (i < 4) {
        now = _mm_shuffle_epi8(load(block + 16 * i), swap);
      } else {
        const __m128i last = w[(i + 3) % 4];
        const __m128i sum =
            _mm_add_epi32(_mm_sha256msg1_epu32(now, w[(i + 1) % 4]), shift_in_word(last, w[(i + 2) % 4]));
        now = _mm_sha256msg2_epu32(sum, last);
      }
      const __m128i with_constants = _mm_add_epi32(now, load(kRounds.data() + 4 * i));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, with_constants);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(with_constants, 0x0E));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1B);
  const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state.data()), _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state.data() + 4), join_halves(dchg, feba));
}
#else
constexpr bool kMayHaveInstructions = false;
bool find_instructions() { return false; }
void take_by_instructions(std::array<std::uint32_t, 8>&, const std::byte*, std::size_t) {}
#endif

}  // namespace

void Sha256::take(const std::byte* block) {
  std::array<std::uint32_t, 64> w;
  for (std::size_t i = 0; i < 16; ++i) w[i] = big_endian(block + 4 * i);
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
    const std::uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const std::uint32_t one = h + s1 + ((e & f) ^ (~e & g)) + kRounds[i] + w[i];
    const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const std::uint32_t two = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + one;
    d = c;
    c = b;
    b = a;
    a = one + two;
  }
  const std::array<std::uint32_t, 8> added = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < state.size(); ++i) state[i] += added[i];
}

void Sha1::take(const std::byte* block) {
  std::array<std::uint32_t, 80> w;
  for (std::size_t i = 0; i < 16; ++i) w[i] = big_endian(block + 4 * i);
  for (std::size_t i = 16; i < 80; ++i) w[i] = std::rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
  auto [a, b, c, d, e] = state;
  for (std::size_t i = 0; i < 80; ++i) {
    const std::uint32_t mixed = i < 20   ? ((b & c) | (~b & d)) + 0x5a827999
                                : i < 40 ? (b ^ c ^ d) + 0x6ed9eba1
                                : i < 60 ? ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc
                                         : (b ^ c ^ d) + 0xca62c1d6;
    const std::uint32_t next = std::rotl(a, 5) + mixed + e + w[i];
    e = d;
    d = c;
    c = std::rotl(b, 30);
    b = a;
    a = next;
  }
  const std::array<std::uint32_t, 5> added = {a, b, c, d, e};
  for (std::size_t i = 0; i < state.size(); ++i) state[i] += added[i];
}

template <class Hash>
void RunningSha<Hash>::add(std::span<const std::byte> data) {
  const std::size_t held = bytes_ % kBlockBytes;
  bytes_ += data.size();
  if (held != 0) {
    const std::size_t taken = std::min(data.size(), kBlockBytes - held);
    std::copy_n(data.begin(), taken, rest_.begin() + static_cast<std::ptrdiff_t>(held));
    data = data.subspan(taken);
    if (held + taken < kBlockBytes) return;
    hash_.take(rest_.data());
  }
  if constexpr (kMayHaveInstructions && std::is_same_v<Hash, Sha256>) {
    static const bool has_instructions = find_instructions();
    if (has_instructions) {
      const std::size_t blocks = data.size() / kBlockBytes;
      take_by_instructions(hash_.state, data.data(), blocks);
      data = data.subspan(blocks * kBlockBytes);
    }
  }
  for (; data.size() >= kBlockBytes; data = data.subspan(kBlockBytes)) hash_.take(data.data());
  std::ranges::copy(data, rest_.begin());
}

template <class Hash>
std::string RunningSha<Hash>::finish() {
  const std::uint64_t bits = bytes_ * 8;
  std::array<std::byte, kBlockBytes + 8> end{std::byte{0x80}};
  // The padding ends 8 bytes before the end of a block; there the length in bits stands.
  const std::size_t padding = kBlockBytes - (bytes_ + 8) % kBlockBytes;
  for (std::size_t i = 0; i < 8; ++i) end[padding + i] = static_cast<std::byte>(bits >> (56 - 8 * i));
  add(std::span(end).first(padding + 8));
  std::string digits;
  for (const std::uint32_t word : hash_.state) digits += fmt::format("{:08x}", word);
  return digits;
}

template class RunningSha<Sha256>;
template class RunningSha<Sha1>;

}  // namespace cairn::format
