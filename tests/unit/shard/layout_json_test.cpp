// The JSON form: the examples of src/shard/README.md, each key on a small tensor, and an error per broken rule.
#include <gtest/gtest.h>

#include <fmt/core.h>

#include "layout_data.hpp"
#include "shard/layout.hpp"

namespace cairn::shard {
namespace {

// Every rank's boxes of one tensor "w" (or `name`) under a JSON layout; std::nullopt for absent ranks.
std::vector<std::optional<std::vector<Box>>> held_of(const std::string& layout_text, const Shape& shape,
                                                     const std::string& name = "w",
                                                     const std::string& section = "model") {
  State state;
  state.add(section, name, shape);
  const Layout layout = Layout::from_text(layout_text);
  const ShardMap map = state.bind(layout, Model{});
  std::vector<std::optional<std::vector<Box>>> out;
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const auto held = map.held_by(rank);
    if (held.empty()) {
      out.emplace_back();
    } else {
      out.emplace_back(held.at(0).boxes);
    }
  }
  return out;
}

using Boxes = std::vector<Box>;

TEST(LayoutJson, ReadmeExamplesParse) {
  const std::string readme = read_text(data_path("../../src/shard/README.md"));
  int examples = 0;
  for (std::size_t at = 0; (at = readme.find("```json\n", at)) != std::string::npos;) {
    const std::size_t begin = at + 8;
    at = readme.find("```", begin);
    ASSERT_NE(at, std::string::npos);
    const std::string text = readme.substr(begin, at - begin);
    EXPECT_NO_THROW({
      const Layout layout = Layout::from_text(text);
      EXPECT_EQ(Layout::from_text(layout.text()).world_size(), layout.world_size());
    }) << text;
    ++examples;
  }
  EXPECT_EQ(examples, 9);
}

TEST(LayoutJson, NestedAndJointCuts) {
  const auto nested = held_of(R"({"mesh": [["dp", 2], ["tp", 2]], "rules": [
      {"match": "w", "cuts": [{"dim": 0, "axis": "tp", "chunk": "torch"},
                                {"dim": 0, "axis": "dp", "chunk": "torch"}]}]})",
                              {5});
  EXPECT_EQ(nested[0], (Boxes{{{0}, {2}}}));
  EXPECT_EQ(nested[1], (Boxes{{{3}, {1}}}));
  EXPECT_EQ(nested[2], (Boxes{{{2}, {1}}}));
  EXPECT_EQ(nested[3], (Boxes{{{4}, {1}}}));
  const auto joint = held_of(R"({"mesh": [["dp", 2], ["tp", 2]], "rules": [
      {"match": "w", "cuts": [{"dim": 0, "axes": ["tp", "dp"], "chunk": "balanced"}]}]})",
                             {5});
  EXPECT_EQ(joint[0], (Boxes{{{0}, {2}}}));
  EXPECT_EQ(joint[1], (Boxes{{{3}, {1}}}));
  EXPECT_EQ(joint[2], (Boxes{{{2}, {1}}}));
}

TEST(LayoutJson, ThreeDimensionsAndExplicitBoundaries) {
  const auto held = held_of(R"({"mesh": [["a", 2], ["b", 2]], "rules": [
      {"match": "w", "cuts": [{"dim": 2, "axis": "a", "chunk": [0, 1, 6]}, {"dim": 0, "axis": "b"}]}]})",
                            {4, 3, 6});
  EXPECT_EQ(held[1], (Boxes{{{2, 0, 0}, {2, 3, 1}}}));
  EXPECT_EQ(held[2], (Boxes{{{0, 0, 1}, {2, 3, 5}}}));
}

TEST(LayoutJson, RowMapsNestUnderLaterCuts) {
  // Halves over tp, then the local rows over dp: rank dp=1, tp=0 has the last three of [g0 g1 u0 u1].
  const auto held = held_of(R"({"mesh": [["dp", 2], ["tp", 2]], "rules": [
      {"match": "w", "cuts": [{"dim": 0, "axis": "tp", "parts": 2}, {"dim": 0, "axis": "dp", "chunk": [0, 1, 4]}]}]})",
                            {8, 2});
  EXPECT_EQ(held[0], (Boxes{{{0, 0}, {1, 2}}}));
  EXPECT_EQ(held[2], (Boxes{{{1, 0}, {1, 2}}, {{4, 0}, {2, 2}}}));
  const auto rows = held_of(R"({"mesh": [["tp", 2]], "rules": [
      {"match": "w", "cuts": [{"dim": 0, "axis": "tp", "rows": [[[2, 3], [0, 1]], []]}]}]})",
                            {3, 2});
  EXPECT_EQ(rows[0], (Boxes{{{2, 0}, {1, 2}}, {{0, 0}, {1, 2}}}));
  EXPECT_EQ(rows[1], Boxes{});
}

TEST(LayoutJson, PlacesAndAbsence) {
  const char* text = R"({"mesh": [["pp", 3], ["ep", 2]],
      "stages": {"axis": "pp", "layers": [[0], [1, 2], [0, 3]]},
      "experts": {"axis": "ep", "count": 3, "chunk": "balanced"},
      "rules": [{"match": "layers.{layer}.experts.{expert}.w"}, {"match": "layers.{layer}.w", "absent": {"ranks": [5]}},
                {"match": "w", "only": {"pp": [1], "ranks": [0, 2]}}]})";
  const auto ranks_with = [&](const std::string& name) {
    std::string out;
    const auto held = held_of(text, {2}, name);
    for (std::size_t r = 0; r < held.size(); ++r) out += held[r] ? std::to_string(r) : "";
    return out;
  };
  EXPECT_EQ(ranks_with("layers.0.experts.1.w"), "04");
  EXPECT_EQ(ranks_with("layers.2.experts.2.w"), "3");
  EXPECT_EQ(ranks_with("layers.0.w"), "014");
  EXPECT_EQ(ranks_with("w"), "2");
  EXPECT_EQ(ranks_with("other"), "012345");
  EXPECT_NE(error_of(ErrorKind::kUsage, [&] { (void)ranks_with("layers.4.w"); }).find("number 4 is placed on no"),
            std::string::npos);
}

TEST(LayoutJson, VirtualStages) {
  const char* text = R"({"mesh": [["pp", 2]], "stages": {"axis": "pp", "count": 8, "virtual": 2},
                         "rules": [{"match": "l.{layer}"}]})";
  std::string stages;
  for (int layer = 0; layer < 8; ++layer) stages += held_of(text, {1}, "l." + std::to_string(layer))[0] ? "0" : "1";
  EXPECT_EQ(stages, "00110011");
}

TEST(LayoutJson, ExplicitBoxes) {
  const auto held = held_of(R"({"mesh": [["r", 3]], "rules": [{"match": "w", "boxes": {
      "0": [{"offset": [0, 2], "shape": [2, 1]}, {"offset": [0, 0], "shape": [1, 2]}], "1": []}}]})",
                            {2, 3});
  EXPECT_EQ(held[0], (Boxes{{{0, 2}, {2, 1}}, {{0, 0}, {1, 2}}}));
  EXPECT_EQ(held[1], Boxes{});
  EXPECT_EQ(held[2], std::nullopt);
  const std::string message = error_of(ErrorKind::kUsage, [] {
    (void)held_of(R"({"mesh": [["r", 1]], "rules": [{"match": "w", "boxes": {"0": [{"offset": [1], "shape": [2]}]}}]})",
                  {2});
  });
  EXPECT_NE(message.find("tensor 'w': box [1:3] of rank 0 does not fit shape [2]"), std::string::npos) << message;
}

TEST(LayoutJson, FlatRulesAfterCuts) {
  // The tp shard, 3 rows of 2 columns, is a flat range: rank dp=1 has its elements 3 to 5.
  const auto held =
      held_of(R"({"mesh": [["dp", 2], ["tp", 2]], "rules": [{"match": "w", "cuts": [{"dim": 1, "axis": "tp"}],
      "flat": {"kind": "zero1", "axis": "dp", "alignment": 1}}]})",
              {3, 4});
  EXPECT_EQ(held[3], (Boxes{{{1, 3}, {1, 1}}, {{2, 2}, {1, 2}}}));
  const auto padded =
      held_of(R"({"mesh": [["dp", 4]], "rules": [{"match": "w", "flat": {"kind": "zero1", "axis": "dp"}}]})", {3});
  EXPECT_EQ(padded[1], (Boxes{{{2}, {1}}}));
  EXPECT_EQ(padded[2], std::nullopt);
}

TEST(LayoutJson, EqualFlatRulesShareABuffer) {
  const auto held_first = [](const char* second_flat) {
    State state;
    state.add("model", "a", {6});
    state.add("model", "b", {2});
    const std::string text = fmt::format(R"({{"mesh": [["dp", 2]], "rules": [
        {{"match": "a", "flat": {{"kind": "zero1", "axis": "dp"}}}}, {{"match": "b", "flat": {}}}]}})",
                                         second_flat);
    return state.bind(Layout::from_text(text), Model{}).held_by(0);
  };
  const auto shared = held_first(R"({"axis": "dp", "kind": "zero1"})");  // eight elements, four each
  ASSERT_EQ(shared.size(), 1U);
  EXPECT_EQ(shared[0].boxes, (Boxes{{{0}, {4}}}));
  const auto apart = held_first(R"({"axis": "dp", "kind": "zero1", "buffer": "second"})");  // padded to eight and four
  ASSERT_EQ(apart.size(), 2U);
  EXPECT_EQ(apart[1].boxes, (Boxes{{{0}, {2}}}));
}

TEST(LayoutJson, SectionsAndRoles) {
  const char* text =
      R"({"mesh": [["dp", 2]], "rules": [{"match": "w", "section": "optimizer", "cuts": [{"dim": 0, "axis": "dp"}]}],
                         "otherwise": "replicate"})";
  EXPECT_EQ(held_of(text, {4})[1], (Boxes{{{0}, {4}}}));
  EXPECT_EQ(held_of(text, {4}, "w/moment1_0", "optimizer")[1], (Boxes{{{2}, {2}}}));  // by its parameter's name
  State state;
  state.add("model", "x", {2});
  const ShardMap map = state.bind(Layout::from_text(text), Model{});
  EXPECT_EQ(map.notes(),
            (std::vector<std::string>{"1 tensor matches no rule and is replicated on every rank, the first is 'x'"}));
}

TEST(LayoutJson, BaseWithExplicitStages) {
  const Model model = model_by_name("smollm2-135m", 3);
  const State state = state_of(model);
  const Layout layout = Layout::from_text(R"({"base": "tp=3,pp=2", "stages": {"axis": "pp", "layers": [[0], [1, 2]]},
      "rules": [{"match": "model.norm.weight", "cuts": [{"dim": 0, "axis": "tp"}]}]})");
  const ShardMap map = state.bind(layout, model);
  const auto last = held_by_name(map, state.sections, 5);
  EXPECT_FALSE(last.contains("model:model.layers.0.mlp.up_proj.weight"));
  EXPECT_EQ(last.at("model:model.layers.1.mlp.up_proj.weight"), (Boxes{{{1024, 0}, {512, 576}}}));
  EXPECT_EQ(last.at("model:model.norm.weight"), (Boxes{{{384}, {192}}}));
}

TEST(LayoutJson, Views) {
  const Layout layout = Layout::from_text(R"({"mesh": [["pp", 2], ["dp", 2], ["tp", 2]],
      "views": [[["pp", 2], ["edp", 1], ["ep", 4]]], "rules": [{"match": "w", "cuts": [{"dim": 0, "axis": "ep"}]}]})");
  State state;
  state.add("model", "w", {4});
  const ShardMap map = state.bind(layout, Model{});
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(map.held_by(rank).at(0).boxes, (Boxes{{{static_cast<std::uint64_t>(rank % 4)}, {1}}}));
  }
}

TEST(LayoutJson, Errors) {
  const auto mesh = [](const std::string& rest) { return R"({"mesh": [["dp", 2], ["tp", 2]])" + rest + "}"; };
  const auto rule = [&](const std::string& body) { return mesh(R"(, "rules": [{"match": "w")" + body + "}]"); };
  const auto cut = [&](const std::string& body) { return rule(R"(, "cuts": [{"dim": 0, "axis": "tp")" + body + "}]"); };
  const std::vector<std::pair<std::string, std::string>> cases{
      {"{", "layout JSON: "},
      {"{}", "layout JSON: the key 'mesh' is missing"},
      {R"({"mesh": []})", "mesh: must name at least one axis"},
      {R"({"mesh": {"tp": 2}})", "mesh: must be an array"},
      {R"({"mesh": [["tp"]]})", "mesh[0]: must be [name, size]"},
      {R"({"mesh": [["tp", 0]]})", "mesh[0][1]: must be at least 1"},
      {R"({"mesh": [["tp", -1]]})", "mesh[0][1]: must be a whole number"},
      {R"({"mesh": [["tp", 2], ["tp", 2]]})", "named twice"},
      {R"({"mesh": [["a", 65536], ["b", 65536]]})", "more than 2^31 ranks"},
      {R"({"base": "tp=0"})", "must be at least 1"},
      {R"({"base": "tp=2", "mesh": [["tp", 2]]})", "'base' stands for 'mesh'"},
      {mesh(R"(, "view": [])"), "unknown key 'view'; allowed: mesh, views, base"},
      {mesh(R"(, "views": [[["x", 3]]])"), "does not multiply to the 4 ranks"},
      {mesh(R"(, "views": [[["tp", 4]]])"), "axis 'tp' exists with other ranks"},
      {mesh(R"(, "otherwise": "x")"), "unknown rule 'x'"},
      {mesh(R"(, "otherwise": "fsdp:x")"), "unknown axis 'x'; the mesh has: dp, tp"},
      {mesh(R"(, "stages": {"axis": "dp", "layers": [[0]]})"), "stages.layers: has 1 lists"},
      {R"({"mesh": [["p\n", 2]], "stages": {"axis": "p\n", "layers": [[0]]}})", R"(axis 'p\x0a' has 2 coordinates)"},
      {mesh(R"(, "stages": {"axis": "dp", "count": 3})"), "3 do not divide by 2"},
      {mesh(R"(, "stages": {"axis": "dp", "count": 4, "layers": [[0], [1]]})"), "'layers' stands alone"},
      {mesh(R"(, "rules": [{}])"), "rules[0]: the key 'match' is missing"},
      {mesh(R"(, "rules": [{"match": []}])"), "rules[0].match: must not be empty"},
      {mesh(R"(, "rules": [{"match": "{"}])"), "name pattern '{'"},
      {rule(R"(, "cut": [])"), "rules[0]: unknown key 'cut'"},
      {rule(R"(, "only": {"xx": [0]})"), "unknown axis 'xx'"},
      {rule(R"(, "only": {"tp": [2]})"), "axis 'tp' has no coordinate 2"},
      {rule(R"(, "absent": {"ranks": [4]})"), "rank 4 is outside the 4 ranks"},
      {rule(R"(, "replicate": ["tp"], "cuts": [{"dim": 0, "axis": "tp"}])"), "axis 'tp' both cuts and replicates"},
      {rule(R"(, "boxes": {"x": []})"), "rules[0].boxes.x: must be a rank below 4"},
      {rule(R"(, "boxes": {"0": [{"offset": [0], "shape": [1, 1]}]})"), "'offset' and 'shape' differ in length"},
      {rule(R"(, "boxes": {}, "cuts": [])"), "'boxes' stands alone"},
      {rule(R"(, "flat": {"kind": "zero4", "axis": "dp"})"), "unknown flat layout 'zero4'"},
      {rule(R"(, "flat": {"kind": "zero1"})"), "the key 'axes' is missing"},
      {rule(R"(, "flat": {"kind": "zero1", "axis": "dp", "alignment": 0})"), "must be at least 1"},
      {rule(R"(, "flat": {"kind": "megatron", "axis": "dp", "pad_to": 9999999999999})"), "must be at most 2^40"},
      {rule(R"(, "flat": {"kind": "zero1", "axis": "dp", "round_robin": 1})"), "must be true or false"},
      {cut(R"(, "axes": ["tp"])"), "give either 'axis' or 'axes'"},
      {cut(R"(, "chunk": "odd")"), "rules[0].cuts[0].chunk: unknown chunk rule 'odd'"},
      {cut(R"(, "unit": 0)"), "must be at least 1"},
      {cut(R"(, "period": 4)"), "'interleave' and 'period' need 'parts'"},
      {cut(R"(, "parts": 2, "period": 4, "interleave": 2)"), "give either 'interleave' or 'period'"},
      {cut(R"(, "rows": [], "chunk": "torch")"), "'rows' stands alone"},
      {cut(R"(, "rows": [[[0]]])"), "must be [begin, end]"},
      {cut(R"(, "chunk": [0, 1], "parts": [1, 2])"), "boundaries and 'parts' exclude each other"},
  };
  int checked = 0;
  for (const auto& [text, expected] : cases) {
    const std::string message = error_of(ErrorKind::kUsage, [&, &t = text] { (void)held_of(t, {4}); });
    EXPECT_NE(message.find(expected), std::string::npos) << text << ": " << message;
    ++checked;
  }
  EXPECT_EQ(checked, 44);
}

TEST(LayoutJson, ErrorsOfBinding) {
  const auto fails = [](const std::string& body, const Shape& shape, const std::string& expected) {
    const std::string text = R"({"mesh": [["tp", 2]], "otherwise": "error", "rules": [)" + body + "]}";
    const std::string message = error_of(ErrorKind::kUsage, [&] { (void)held_of(text, shape); });
    EXPECT_NE(message.find(expected), std::string::npos) << message;
  };
  fails("", {4}, "no rule matches tensor 'w' of section 'model'");
  fails(R"({"match": "w", "cuts": [{"dim": 0, "axis": "tp"}]})", {5},
        "tensor 'w': dimension 0 of size 5 cannot be cut over tp=2: 5 does not divide by 2; use chunk \"balanced\"");
  fails(R"({"match": "w", "cuts": [{"dim": 1, "axis": "tp"}]})", {5}, "tensor 'w' of shape [5] has no dimension 1");
  fails(R"({"match": "w", "cuts": [{"dim": 0, "axis": "tp", "chunk": "torch"}, {"dim": 0, "axis": "tp"}]})", {5},
        "dimension 0 of size 5 cannot be cut over tp=2: 3 does not divide by 2");
  fails(R"({"match": "w", "flat": {"kind": "zero1", "axis": "tp", "groups": [["x"]]}})", {5},
        "rules[0].flat: tensor 'w' is in no group");
}

}  // namespace
}  // namespace cairn::shard
