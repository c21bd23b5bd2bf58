// The short form: degrees, rank order, and for each wrong word an error that lists the valid words.
#include "shard/layout.hpp"

#include <gtest/gtest.h>

#include "layout_data.hpp"
#include "shard/layout_rules.hpp"

namespace cairn::shard {
namespace {

// Coordinates of a rank by axis name.
std::map<std::string, std::uint64_t> at(const Layout& layout, std::uint64_t rank) {
  std::map<std::string, std::uint64_t> out;
  for (const Axis& axis : layout.rules().axes) out[axis.name] = rank / axis.stride % axis.size;
  return out;
}

TEST(ShortForm, WorldSizes) {
  EXPECT_EQ(Layout::parse("dp=1").world_size(), 1);
  EXPECT_EQ(Layout::parse("tp=4,pp=2,dp=3").world_size(), 24);
  EXPECT_EQ(Layout::parse("tp=2,dp=4,ep=4").world_size(), 8);  // ep lies inside dp
  EXPECT_EQ(Layout::parse("rep=2,fsdp=3,tp=2").world_size(), 12);
  EXPECT_EQ(Layout::parse(" tp = 2 , dp=2 ").world_size(), 4);
  EXPECT_EQ(Layout::parse("tp=8,pp=16,dp=128,zero=1").world_size(), 16384);
}

TEST(ShortForm, TextComesBack) {
  for (const char* text : {"tp=2,dp=2,zero=3", "fsdp=4", "tp=2,pp=2,uneven,order=tp-pp-dp,dp=2"}) {
    const Layout layout = Layout::from_text(text);
    EXPECT_EQ(layout.text(), text);
    EXPECT_EQ(Layout::from_text(layout.text()).world_size(), layout.world_size());
  }
}

TEST(ShortForm, MegatronRankOrder) {
  const Layout layout = Layout::parse("tp=2,cp=2,dp=3,pp=2");
  int checked = 0;
  for (std::uint64_t rank = 0; rank < 24; ++rank, ++checked) {
    auto c = at(layout, rank);
    EXPECT_EQ(rank, c["tp"] + 2 * (c["cp"] + 2 * (c["dp"] + 3 * c["pp"])));
  }
  EXPECT_EQ(checked, 24);
}

TEST(ShortForm, ExpertsHaveTheirOwnView) {
  // etp + ETP * (ep + EP * (edp + EDP * pp)) over the same ranks.
  const Layout layout = Layout::parse("tp=2,dp=4,ep=2,pp=2");
  for (std::uint64_t rank = 0; rank < 16; ++rank) {
    auto c = at(layout, rank);
    EXPECT_EQ(rank, c["etp"] + 2 * (c["ep"] + 2 * (c["edp"] + 2 * c["pp"])));
    EXPECT_EQ(rank, c["tp"] + 2 * (c["dp"] + 4 * c["pp"]));
  }
  const Layout wide = Layout::parse("tp=4,dp=2,ep=8,etp=1");
  for (std::uint64_t rank = 0; rank < 8; ++rank) EXPECT_EQ(at(wide, rank)["ep"], rank);
}

TEST(ShortForm, TorchMeshRankOrder) {
  const Layout layout = Layout::parse("rep=2,fsdp=3,tp=2");
  for (std::uint64_t rank = 0; rank < 12; ++rank) {
    auto c = at(layout, rank);
    EXPECT_EQ(rank, (c["rep"] * 3 + c["fsdp"]) * 2 + c["tp"]);
  }
}

TEST(ShortForm, OrderIsFollowed) {
  const Layout layout = Layout::parse("tp=2,dp=3,pp=2,order=dp-pp-tp");
  for (std::uint64_t rank = 0; rank < 12; ++rank) {
    auto c = at(layout, rank);
    EXPECT_EQ(rank, c["dp"] + 3 * (c["pp"] + 2 * c["tp"]));
  }
}

TEST(ShortForm, Errors) {
  const std::vector<std::pair<const char*, const char*>> cases{
      {"", "a word is missing; allowed: tp, pp"},
      {"tp=2,", "a word is missing"},
      {"tq=2",
       "unknown word 'tq=2'; allowed: tp, pp, dp, ep, cp, etp, fsdp, rep, vpp (each =N with N >= 1), zero=0..3"},
      {"tp", "unknown word 'tp'; allowed"},
      {"uneven=1", "unknown word 'uneven=1'"},
      {"tp=0", "must be at least 1"},
      {"tp=", "needs a whole number"},
      {"tp=-2", "needs a whole number"},
      {"tp=2x", "needs a whole number"},
      {"tp=99999999999999999999999", "needs a whole number"},
      {"tp=2,dp=2,tp=2", "'tp' is given twice"},
      {"uneven,uneven", "'uneven' is given twice"},
      {"dp=2,zero=4", "zero=4 is not a stage; allowed: 0, 1, 2, 3"},
      {"zero=1,zero=1", "'zero' is given twice"},
      {"tp=65536,dp=65536", "more than 2^31 ranks"},
      {"tp=4294967296,dp=4294967296", "more than 2^31 ranks"},
      {"tp=2,dp=2,order=tp-pp", "order does not name 'dp', whose degree is 2"},
      {"tp=2,order=tp-xx", "unknown axis 'xx'"},
      {"tp=2,order=tp-tp", "order names 'tp' twice"},
      {"tp=2,order=", "'order' needs axes"},
      {"tp=2,order=tp,order=tp", "'order' is given twice"},
      {"fsdp=2,zero=1", "fsdp and zero exclude each other"},
      {"rep=2", "rep replicates fsdp groups"},
      {"pp=2,vpp=9223372036854775808", "pp times vpp is more than 2^20"},
      {"vpp=2", "vpp cuts pipeline stages"},
      {"fsdp=2,ep=2", "ep and etp cannot be combined with fsdp"},
      {"dp=3,ep=2", "ep=2 times etp=1 does not divide the 3 ranks"},
      {"pp=2,dp=2,ep=2,order=tp-pp-ep-dp", "order must end with pp"},
      {"tp=2\nx", "'tp=2\\x0ax' needs a whole number"},
  };
  int checked = 0;
  for (const auto& [text, expected] : cases) {
    const std::string message = error_of(ErrorKind::kUsage, [&, t = text] { (void)Layout::from_text(t); });
    EXPECT_NE(message.find(expected), std::string::npos) << text << ": " << message;
    ++checked;
  }
  EXPECT_EQ(checked, 29);
}

}  // namespace
}  // namespace cairn::shard
