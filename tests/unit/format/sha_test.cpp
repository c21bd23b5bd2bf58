// SHA-256 and SHA-1 against the vectors of FIPS 180-4, and in pieces of any size.
#include "format/sha.hpp"

#include <algorithm>
#include <string>

#include "helpers.hpp"

namespace cairn::format::testing {
namespace {

template <class Running>
std::string digest(std::string_view text, std::size_t piece = 1000) {
  Running running;
  for (std::size_t at = 0; at < text.size(); at += piece) running.add(base::as_bytes(text.substr(at, piece)));
  return running.finish();
}

constexpr std::string_view kTwoBlocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";

TEST(Sha, HasTheKnownValues) {
  EXPECT_EQ(digest<RunningSha256>(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest<RunningSha256>("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest<RunningSha256>(kTwoBlocks), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest<RunningSha256>(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(digest<RunningSha1>(""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
  EXPECT_EQ(digest<RunningSha1>("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_EQ(digest<RunningSha1>(kTwoBlocks), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
  EXPECT_EQ(digest<RunningSha1>(std::string(1000000, 'a')), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
}

TEST(Sha, DoesNotDependOnThePieces) {
  for (std::size_t size = 0; size < 200; ++size) {
    std::string text(size, '\0');
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 37 + size);
    const std::string whole = digest<RunningSha256>(text, 1000);
    const std::string whole_sha1 = digest<RunningSha1>(text, 1000);
    for (const std::size_t piece : {1u, 3u, 63u, 64u, 65u}) {
      ASSERT_EQ(digest<RunningSha256>(text, piece), whole) << size << " in pieces of " << piece;
      ASSERT_EQ(digest<RunningSha1>(text, piece), whole_sha1) << size << " in pieces of " << piece;
    }
  }
}

}  // namespace
}  // namespace cairn::format::testing
