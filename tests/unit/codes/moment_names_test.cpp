// Names of moments in every framework, and names that only look similar.
#include <gtest/gtest.h>

#include "codes/moment_pairs.hpp"

namespace cairn::checkpoint {
namespace {

using quant::MomentNames;

TEST(MomentNames, OfEveryFramework) {
  const MomentNames torch{"state.layers.0.w.exp_avg", "state.layers.0.w.exp_avg_sq"};
  EXPECT_EQ(codes::moments_of(torch.first), torch);
  EXPECT_EQ(codes::moments_of(torch.second), torch);
  const MomentNames megatron{"optimizer.state.exp_avg.w", "optimizer.state.exp_avg_sq.w"};
  EXPECT_EQ(codes::moments_of(megatron.first), megatron);
  EXPECT_EQ(codes::moments_of(megatron.second), megatron);
  const MomentNames paddle{"llama.w/moment1_0", "llama.w/moment2_0"};
  EXPECT_EQ(codes::moments_of(paddle.first), paddle);
  EXPECT_EQ(codes::moments_of(paddle.second), paddle);
  const MomentNames plain{"moment1", "moment2"};
  EXPECT_EQ(codes::moments_of("moment1"), plain);
  EXPECT_EQ(codes::moments_of("moment2"), plain);
  EXPECT_EQ(codes::moments_of("adam_v.w"), (MomentNames{"adam_m.w", "adam_v.w"}));
}

TEST(MomentNames, OnlyWholeWordsCount) {
  for (const char* name : {"", "w", "exp_avg_sq_row", "my_exp_avg", "exp_avgs", "w/moment1_01", "xmoment1",
                           "w/beta1_pow_acc_0", "exp_avg_diff", "step"}) {
    EXPECT_EQ(codes::moments_of(name), std::nullopt) << name;
  }
}

TEST(MomentNames, TheLastWordCounts) {
  EXPECT_EQ(codes::moments_of("exp_avg.exp_avg"), (MomentNames{"exp_avg.exp_avg", "exp_avg.exp_avg_sq"}));
  EXPECT_EQ(codes::moments_of("a_exp_avg.exp_avg_sq"), (MomentNames{"a_exp_avg.exp_avg", "a_exp_avg.exp_avg_sq"}));
}

}  // namespace
}  // namespace cairn::checkpoint
