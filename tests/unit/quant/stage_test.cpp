// Boxes coded on a device and staged in pieces: the same bytes as in one piece, for any budget; and refusals.
#include <algorithm>
#include <cmath>

#include "device_data.hpp"
#include "quant/boxes.hpp"
#include "quant/device_stage.hpp"
#include "quant/own_codec.hpp"
#include "quant/paddle_codec.hpp"
#include "random.hpp"
#include "shard/box_math.hpp"

namespace cairn::quant::test {
namespace {

struct Stage : OnDeviceTest {};

struct Case {
  const Codec& codec;
  Source source;
  Box box;
};

std::vector<Case> cases() {
  return {
      {own_q8(), {"w", {100, 301}}, {{1280}, {30100 - 1280}}}, {own_q4(), {"w", {64, 640}}, {{0, 0}, {64, 640}}},
      {paddle_o1(), {"b", {5000}}, {{100}, {4321}}},           {paddle_o1(), {"w", {70, 129}}, {{3, 1}, {60, 100}}},
      {paddle_o2(), {"w", {160, 200}}, {{5, 7}, {120, 150}}},  {paddle_o2(), {"w", {320, 64}}, {{32, 0}, {288, 64}}}};
}

State state_of(std::size_t elements) {
  auto random = cairn::test::make_random();
  std::normal_distribution<float> normal;
  State state(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    state.v[i] = std::exp(-20 + 2 * normal(random));
    state.m[i] = normal(random) * std::sqrt(state.v[i]);
  }
  return state;
}

Statistics statistics_of(const Case& test, const State& state) {
  Statistics statistics = test.codec.no_statistics(test.source.shape, test.box);
  test.codec.measure(test.source, test.box, state.view(), statistics);
  return statistics;
}

/// Visits (begin in the whole part, begin in the piece, bytes) of each row of a piece of a part.
template <class Visit>
void for_rows(const Part& part, const Box& whole, const Box& piece, Visit visit) {
  const std::uint64_t item = bits_of(part.dtype) / 8;
  if (piece.shape.empty()) return visit(0, 0, item);
  const std::size_t dimensions = piece.shape.size();
  const std::uint64_t rows = dimensions == 1 ? 1 : piece.shape[0];
  const std::uint64_t columns = elements_of(piece.shape) / rows;
  const std::uint64_t whole_columns = dimensions == 1 ? whole.shape[0] : elements_of(whole.shape) / whole.shape[0];
  const std::uint64_t left = dimensions > 2 ? 0 : piece.offset.back() - whole.offset.back();  // if 3: whole rows
  for (std::uint64_t row = 0; row < rows; ++row) {
    const std::uint64_t top = dimensions == 1 ? 0 : piece.offset[0] - whole.offset[0] + row;
    visit((top * whole_columns + left) * item, row * columns * item, columns * item);
  }
}

TEST_F(Stage, PiecesAreTheBoxWhateverTheBudget) {
  int pieces = 0;
  for (const Case& test : cases()) {
    const State state = state_of(elements_of(test.box.shape));
    const Statistics statistics = statistics_of(test, state);
    const Encoded expected = encode_box(test.codec, test.source, test.box, state.view(), statistics);
    const auto parts = test.codec.parts(test.source.shape);
    const gpu::Stream stream;
    const DeviceState moments(state, 1, stream);
    for (const std::uint64_t budget : {8192U, 12288U, 20480U, 1U << 20}) {
      for (const unsigned slots : {2U, 3U, 1U}) {
        if (budget / slots < 4096) continue;
        gpu::Pipeline pipeline({budget, slots, true});
        Encoded found;
        for (const auto& bytes : expected) found.emplace_back(bytes.size(), std::byte{0x77});
        encode_to_host(pipeline, device_codec_of(test.codec), test.source, test.box, moments.view(), statistics,
                       [&](const PartPiece& piece) {
                         const Box whole = test.codec.part_box(test.source.shape, piece.part, test.box);
                         for_rows(parts[piece.part], whole, piece.box, [&](auto to, auto from, auto count) {
                           std::copy_n(&piece.bytes[from], count, &found[piece.part][to]);
                         });
                         ++pieces;
                       });
        for (std::size_t i = 0; i < parts.size(); ++i) EXPECT_EQ(found[i], expected[i]) << i << " of " << budget;
      }
    }
  }
  EXPECT_GT(pieces, 100);
}

TEST_F(Stage, BoxesAreCutBetweenBlocksAndGroups) {
  const auto own = staged_boxes(own_q8(), {64, 641}, {{256}, {41024 - 256}}, 8192);
  ASSERT_GT(own.size(), 8u);
  EXPECT_EQ(own[0].shape[0], 30u * 128);  // 30 blocks of 272 bytes
  const auto in_rows = staged_boxes(own_q8(), {64, 640}, {{3, 128}, {60, 512}}, 8192);
  ASSERT_EQ(in_rows.size(), 9u);
  EXPECT_EQ(in_rows[0], (Box{{3, 128}, {7, 512}}));  // 7 rows of 4 blocks
  const auto cube = staged_boxes(own_q8(), {2, 3, 1280}, {{0, 1, 0}, {2, 2, 1280}}, 1100);
  ASSERT_EQ(cube.size(), 16u);  // a row in 3, 3, 3 and 1 blocks
  EXPECT_EQ(cube[0], (Box{{0, 1, 0}, {1, 1, 384}}));
  EXPECT_EQ(cube[3], (Box{{0, 1, 1152}, {1, 1, 128}}));
  const auto o2 = staged_boxes(paddle_o2(), {320, 64}, {{5, 0}, {300, 64}}, 16384);
  ASSERT_GT(o2.size(), 1u);
  for (std::size_t i = 1; i < o2.size(); ++i) EXPECT_EQ(o2[i].offset[0] % 32, 0u);
  const auto rows = staged_boxes(paddle_o2(), {320, 1000}, {{5, 0}, {300, 1000}}, 16384);
  ASSERT_GT(rows.size(), 60u);
  EXPECT_EQ(rows[0].shape[0], 4u) << "a group does not fit";
  expect_error(ErrorKind::kUsage,
               [] {
                 (void)staged_boxes(paddle_o1(), {320, 1000}, {{0, 0}, {320, 1000}}, 8192);
               },
               {"8192 bytes", "[320, 1000]", "memory budget"});
}

TEST_F(Stage, ARefusalNamesThePlaceInTheTensor) {
  const Source source = {"layer.0/w", {100, 301}};
  State state = state_of(30100);
  state.m[20000] = std::numeric_limits<float>::infinity();
  std::string expected;
  try {
    (void)encode_whole(own_q8(), source, state.view());
  } catch (const Error& error) {
    expected = error.what();
  }
  const gpu::Stream stream;
  const DeviceState moments(state, 0, stream);
  gpu::Pipeline pipeline({8192, 2, true});
  const auto encode = [&] {
    encode_to_host(pipeline, device_codec_of(own_q8()), source, {{0}, {30100}}, moments.view(), {}, [](const auto&) {});
  };
  expect_error(ErrorKind::kState, encode, {expected, "[66, 134]"});
  expect_error(ErrorKind::kState, encode, {expected});  // the pipeline stays usable
}

}  // namespace
}  // namespace cairn::quant::test
