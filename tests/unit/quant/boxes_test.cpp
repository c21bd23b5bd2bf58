// A tensor coded box by box, with statistics merged from its boxes, equals the tensor coded whole,
// for any cut and order. The slices that Paddle's tensor-parallel ranks decode are also boxes.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "environment.hpp"
#include "golden_file.hpp"
#include "nlohmann/json.hpp"
#include "quant/boxes.hpp"
#include "quant/codec.hpp"
#include "quant/paddle_codec.hpp"
#include "random.hpp"
#include "shard/box_math.hpp"

namespace cairn::quant::test {
namespace {

using Random = std::mt19937_64;

/// A shape or box of up to two dimensions as rows and columns.
struct Plane {
  std::size_t top = 0;
  std::size_t left = 0;
  std::size_t rows = 1;
  std::size_t columns = 1;
};

Plane plane_of(const Box& box) {
  Plane plane;
  if (!box.shape.empty()) {
    plane.left = box.offset.back();
    plane.columns = box.shape.back();
  }
  if (box.shape.size() == 2) {
    plane.top = box.offset[0];
    plane.rows = box.shape[0];
  }
  return plane;
}

/// Visits (first byte in the tensor, first byte in the box, bytes) of each row of a box.
template <class Visit>
void for_rows(const Shape& shape, const Box& box, std::size_t element_bytes, Visit visit) {
  const Plane all = plane_of(shard::whole(shape));
  const Plane part = plane_of(box);
  for (std::size_t row = 0; row < part.rows; ++row) {
    visit(((part.top + row) * all.columns + part.left) * element_bytes, row * part.columns * element_bytes,
          part.columns * element_bytes);
  }
}

template <class T>
std::vector<T> cut(const std::vector<T>& tensor, const Shape& shape, const Box& box) {
  std::vector<T> out(elements_of(box.shape));
  for_rows(shape, box, 1,
           [&](std::size_t from, std::size_t to, std::size_t count) { std::copy_n(&tensor[from], count, &out[to]); });
  return out;
}

base::Bytes cut_bytes(const base::Bytes& tensor, const Part& part, const Box& box) {
  base::Bytes out(bytes_of(part, box));
  for_rows(part.shape, box, bits_of(part.dtype) / 8,
           [&](std::size_t from, std::size_t to, std::size_t count) { std::copy_n(&tensor[from], count, &out[to]); });
  return out;
}

void paste(base::Bytes& tensor, const Part& part, const Box& box, const base::Bytes& piece) {
  for_rows(part.shape, box, bits_of(part.dtype) / 8,
           [&](std::size_t to, std::size_t from, std::size_t count) { std::copy_n(&piece[from], count, &tensor[to]); });
}

State cut(const State& state, const Shape& shape, const Box& box) {
  return {cut(state.m, shape, box), cut(state.v, shape, box)};
}

/// Moments over many orders of magnitude, with some zeros and, unless `finite`, NaN, infinite values and a negative v.
State random_state(Random& random, std::size_t elements, bool finite) {
  std::normal_distribution<float> normal;
  State state(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    state.v[i] = random() % 17 == 0 ? 0.0F : std::exp(-25.0F + 4.0F * normal(random));
    state.m[i] = random() % 19 == 0 ? 0.0F : normal(random) * std::sqrt(state.v[i]);
  }
  if (finite) return state;
  state.m[random() % elements] = std::numeric_limits<float>::quiet_NaN();
  state.v[random() % elements] = -1.0F;
  state.m[random() % elements] = -std::numeric_limits<float>::infinity();
  state.v[random() % elements] = std::numeric_limits<float>::infinity();
  return state;
}

/// Ascending cut points of [0, extent], with both ends, for up to `pieces` pieces.
std::vector<std::uint64_t> random_cuts(Random& random, std::uint64_t extent, std::size_t pieces) {
  std::vector<std::uint64_t> cuts = {0, extent};
  while (cuts.size() <= pieces) cuts.push_back(random() % (extent + 1));
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

/// Disjoint boxes that together make up the whole tensor, in random order.
std::vector<Box> random_boxes(Random& random, const Shape& shape) {
  std::vector<Box> boxes = {{}};
  for (const std::uint64_t extent : shape) {
    const auto cuts = random_cuts(random, extent, 1 + random() % 5);
    std::vector<Box> longer;
    for (const Box& box : boxes) {
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        longer.push_back(box);
        longer.back().offset.push_back(cuts[i]);
        longer.back().shape.push_back(cuts[i + 1] - cuts[i]);
      }
    }
    boxes = longer;
  }
  std::shuffle(boxes.begin(), boxes.end(), random);
  return boxes;
}

void check_cut(Random& random, const Codec& codec, const Source& source, bool finite) {
  const Shape& shape = source.shape;
  const State state = random_state(random, elements_of(shape), finite);
  const Encoded expected = encode_whole(codec, source, state.view());
  const auto boxes = random_boxes(random, shape);

  Statistics statistics = codec.no_statistics(shape, shard::whole(shape));
  for (const Box& box : boxes) {
    Statistics of_box = codec.no_statistics(shape, box);
    codec.measure(source, box, cut(state, shape, box).view(), of_box);
    merge(statistics, of_box);
  }
  Statistics at_once = codec.no_statistics(shape, shard::whole(shape));
  codec.measure(source, shard::whole(shape), state.view(), at_once);
  ASSERT_EQ(statistics.arrays.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(same_floats(statistics.arrays[i].values, at_once.arrays[i].values)) << source.name;
  }

  const auto parts = codec.parts(shape);
  const State all = decoded(codec, source, expected, Division::kTrue);
  Encoded assembled;
  for (const auto& bytes : expected) assembled.emplace_back(bytes.size(), std::byte{0xAA});
  for (const Box& box : boxes) {
    const Encoded encoded = encode_box(codec, source, box, cut(state, shape, box).view(), statistics);
    Encoded pieces;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Box where = codec.part_box(shape, i, box);
      paste(assembled[i], parts[i], where, encoded[i]);
      pieces.push_back(cut_bytes(expected[i], parts[i], where));
    }
    State found(elements_of(box.shape));
    const std::vector<std::span<const std::byte>> views(pieces.begin(), pieces.end());
    codec.decode(source, box, views, {}, found.out());
    const State want = cut(all, shape, box);
    EXPECT_TRUE(same_floats(found.m, want.m) && same_floats(found.v, want.v)) << source.name;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    EXPECT_TRUE(same_part(parts[i], assembled[i], {parts[i].dtype, parts[i].shape, expected[i]})) << source.name;
  }
}

TEST(Boxes, AnyCutGivesTheWhole) {
  Random random = cairn::test::make_random();
  const std::vector<Shape> o1 = {{1}, {7}, {256}, {257}, {1000}, {1, 1}, {33, 5}, {5, 300}, {128, 64}, {40, 1}};
  const std::vector<Shape> o2 = {{32, 1}, {32, 5}, {64, 33}, {160, 7}, {96, 300}};
  int checked = 0;
  for (int round = 0; round < 20; ++round) {
    for (const Shape& shape : o1) {
      check_cut(random, paddle_o1(), {"o1 " + shard::shape_text(shape), shape}, round % 2 == 0);
      ++checked;
    }
    for (const Shape& shape : o2) {
      check_cut(random, paddle_o2(), {"o2 " + shard::shape_text(shape), shape}, round % 2 == 0);
      ++checked;
    }
  }
  EXPECT_EQ(checked, 300);
}

TEST(Boxes, AnEmptyMergeChangesNothing) {
  const Shape shape = {64, 3};
  Statistics statistics = paddle_o2().no_statistics(shape, shard::whole(shape));
  const State state(std::vector<float>(192, 2.0F), std::vector<float>(192, 4.0F));
  paddle_o2().measure({"w", shape}, shard::whole(shape), state.view(), statistics);
  const Statistics before = statistics;
  merge(statistics, paddle_o2().no_statistics(shape, shard::whole(shape)));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(statistics.arrays[i].values, before.arrays[i].values);
  EXPECT_EQ(statistics.arrays[0].values, std::vector<float>(6, 2.0F));
}

TEST(Boxes, WholeGroupsNeedNoOtherRank) {
  // Rows 32..63 are a whole group: their own statistics and those of the whole tensor give the same codes.
  Random random = cairn::test::make_random(1);
  const Source source = {"w", {96, 10}};
  const State state = random_state(random, 960, true);
  const Box box = {{32, 2}, {32, 5}};
  const State piece = cut(state, source.shape, box);
  Statistics own = paddle_o2().no_statistics(source.shape, box);
  paddle_o2().measure(source, box, piece.view(), own);
  const Encoded encoded = encode_box(paddle_o2(), source, box, piece.view(), own);
  const Encoded whole = encode_whole(paddle_o2(), source, state.view());
  const auto parts = paddle_o2().parts(source.shape);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(encoded[i], cut_bytes(whole[i], parts[i], paddle_o2().part_box(source.shape, i, box)));
  }
}

Box slice_of(const nlohmann::json& entry, const Shape& shape) {
  const std::uint64_t degree = entry.at("degree");
  const std::uint64_t rank = entry.at("rank");
  Box box = shard::whole(shape);
  if (entry.at("layout") == "replicated") return box;
  const std::size_t axis = entry.at("layout") == "row" ? 0 : 1;
  box.shape[axis] /= degree;
  box.offset[axis] = rank * box.shape[axis];
  return box;
}

TEST(Boxes, SlicesOfTensorParallelRanksDecodeAsInPaddle) {
  const auto index = nlohmann::json::parse(cairn::test::read_file(cairn::test::test_data("paddle-quant/index.json")));
  const GoldenTensors vectors = read_tensors(cairn::test::test_data("paddle-quant/vectors.safetensors"));
  const Source source = {"tp", vectors.at("tp/m1").shape};
  int slices = 0;
  for (const auto& entry : index.at("tp")) {
    if (entry.at("load") != "ok") continue;  // Paddle's O2 cannot load replicated matrices
    const std::string stage = entry.at("stage");
    const Codec& codec = stage == "O1" ? paddle_o1() : paddle_o2();
    const auto parts = codec.parts(source.shape);
    const Box box = slice_of(entry, source.shape);
    const Encoded encoded = encode_whole(codec, source, {floats(vectors, "tp/m1"), floats(vectors, "tp/m2")});
    Encoded pieces;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto& stored = vectors.at("tp/" + stage + "/" + stored_name(parts[i], {"moment1_0", "moment2_0"}));
      EXPECT_TRUE(same_part(parts[i], encoded[i], stored));
      pieces.push_back(cut_bytes(stored.bytes, parts[i], codec.part_box(source.shape, i, box)));
    }
    State found(elements_of(box.shape));
    const std::vector<std::span<const std::byte>> views(pieces.begin(), pieces.end());
    codec.decode(source, box, views, {}, found.out());
    const std::string name = entry.at("tensor");
    EXPECT_TRUE(same_floats(found.m, floats(vectors, name + "/m1_decoded_pd"))) << name;
    EXPECT_TRUE(same_floats(found.v, floats(vectors, name + "/m2_decoded_pd"))) << name;
    ++slices;
  }
  EXPECT_EQ(slices, 30);
}

}  // namespace
}  // namespace cairn::quant::test
