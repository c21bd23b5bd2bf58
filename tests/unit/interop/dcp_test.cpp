// torch DCP's sharded safetensors: random splits are reassembled, and the error for each defect names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "random.hpp"
#include "test_directory.hpp"

namespace cairn::interop::test {
namespace {

using cairn::test::make_random;
using cairn::test::uniform;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kFirst = "shard-00001-model-00001-of-00001.safetensors";
const std::string kSecond = "shard-00002-model-00001-of-00001.safetensors";

/// Tensor "w" [4, 6], rows 0 to 1 in the first file and 2 to 3 in the second; scalar "step" in the first.
TestDirectory good() {
  TestDirectory d;
  d.shard(kFirst, {{"w", DType::kF32, {0, 0}, {2, 6}}, {"step", DType::kI64, {}, {}}});
  d.shard(kSecond, {{"w", DType::kF32, {2, 0}, {2, 6}}});
  return d;
}

/// good() with `parts` in the second file.
TestDirectory with_second(const std::vector<Part>& parts) {
  TestDirectory d = good();
  d.shard(kSecond, parts);
  return d;
}

TEST(Dcp, BoxesAndGlobalShape) {
  const auto out = recognise(good().directory);
  EXPECT_EQ(out.about.dialect, "torch DCP safetensors");
  EXPECT_EQ(out.warnings.size(), 1U) << "nothing shows that rank 2 is the last one";
  const auto& w = tensor_of(out, "model", "w");
  EXPECT_EQ(w.shape, (Shape{4, 6}));
  ASSERT_EQ(w.boxes.size(), 2u);
  EXPECT_EQ(w.boxes[0].box, (Box{{0, 0}, {2, 6}}));
  EXPECT_EQ(w.boxes[1].box, (Box{{2, 0}, {2, 6}}));
  EXPECT_EQ(out.files.at(w.boxes[1].file).name, kSecond);
  EXPECT_EQ(tensor_of(out, "model", "step").boxes.at(0).box, (Box{{}, {}}));
}

/// A model of two ranks with `rows` rows of words, of which the second rank has `rest`.
TestDirectory words(std::uint64_t rows, std::uint64_t rest) {
  TestDirectory d;
  const std::string name = "model.embed_tokens.weight";
  d.shard(kFirst, {{name, DType::kF32, {0, 0}, {rows - rest, 4}}});
  d.shard(kSecond, {{name, DType::kF32, {rows - rest, 0}, {rest, 4}}});
  return d;
}

TEST(Dcp, FilesOfTheLastRanksThatAreLost) {
  const auto warns = [](const TestDirectory& d) {
    const auto out = recognise(d.directory);
    return warns_of(out, {"do not say how many ranks there were", kSecond, "config.json"});
  };
  EXPECT_TRUE(warns(words(10, 5)));
  EXPECT_FALSE(warns(words(9, 4))) << "three ranks would have 3 rows each";
  EXPECT_FALSE(warns(words(5, 2))) << "three ranks would have 2 rows each";
  EXPECT_FALSE(warns(words(3, 1))) << "three ranks would have 1 row each";
  const auto with = [](const std::string& config) { return words(10, 5).json("config.json", config); };
  EXPECT_FALSE(warns(with(R"({"vocab_size": 10, "hidden_size": 4})")));
  EXPECT_FALSE(warns(with(R"({"text_config": {"vocab_size": 8, "hidden_size": 4}})"))) << "padded";
  EXPECT_TRUE(warns(with(R"({"vocab_size": 10, "hidden_size": 8})")));
  EXPECT_TRUE(warns(with("{}")));
  EXPECT_THAT(failure_of(with(R"({"vocab_size": 15, "hidden_size": 4})").directory, ErrorKind::kNotFound),
              AllOf(HasSubstr("ends after 10 rows"), HasSubstr("vocab_size 15"), HasSubstr("last ranks are missing")));
}

TEST(Dcp, TellsItsVersionAndRanks) {
  TestDirectory d = good();
  const auto about = recognise(d.directory).about;
  EXPECT_EQ(about.parallel, "ranks=2");
  EXPECT_EQ(about.version, "torch DCP 1.0");
  for (const auto& file : {kFirst, kSecond}) d.directory.safetensors.at(file).metadata.erase("DCP_VERSION");
  EXPECT_EQ(recognise(d.directory).about.version, "");
}

TEST(Dcp, EmptyBoxesAreDropped) {
  TestDirectory d = good();
  d.shard("shard-00003-model-00001-of-00001.safetensors", {{"w", DType::kF32, {4, 0}, {0, 6}}});
  EXPECT_EQ(tensor_of(recognise(d.directory), "model", "w").boxes.size(), 2u);
}

TEST(Dcp, ATensorWithoutElementsKeepsOneBox) {
  TestDirectory d = good();
  for (const char* rank : {"3", "4"}) {
    d.shard("shard-0000" + std::string(rank) + "-model-00001-of-00001.safetensors",
            {{"none", DType::kF32, {0, 0}, {0, 6}}});
  }
  const auto out = recognise(d.directory);
  const auto& none = tensor_of(out, "model", "none");
  EXPECT_EQ(none.shape, (Shape{0, 6}));
  ASSERT_EQ(none.boxes.size(), 1u);
  EXPECT_EQ(none.boxes[0].box, (Box{{0, 0}, {0, 6}}));
}

TEST(Dcp, TheLastOfEqualKeysCountsAsInPython) {
  TestDirectory d = good();
  d.file(kSecond, {{"w", DType::kF32, {2, 6}}},
         {{"DCP_SHARDING_INFO", R"({"w": {"saved_offsets": [0, 0]}, "w": {"saved_offsets": [2, 0]}})"}});
  const auto out = recognise(d.directory);
  const auto& w = tensor_of(out, "model", "w");
  EXPECT_EQ(w.shape, (Shape{4, 6}));
  ASSERT_EQ(w.boxes.size(), 2u);
  EXPECT_EQ(w.boxes[1].box, (Box{{2, 0}, {2, 6}}));
}

TEST(Dcp, ReplicasAreTakenOnce) {
  TestDirectory d = good();
  d.shard("shard-00003-model-00001-of-00001.safetensors",
          {{"w", DType::kF32, {2, 0}, {2, 6}}, {"step", DType::kI64, {}, {}}});
  const auto out = recognise(d.directory);
  const auto& w = tensor_of(out, "model", "w");
  ASSERT_EQ(w.boxes.size(), 2u);
  EXPECT_EQ(out.files.at(w.boxes[1].file).name, kSecond);
  EXPECT_EQ(tensor_of(out, "model", "step").boxes.size(), 1u);
  EXPECT_TRUE(warns_of(out, {"2 boxes", "more than once"}));
}

TEST(Dcp, ARankMayLackANumberWhenAnotherHasIt) {
  TestDirectory d;
  d.shard("shard-00001-model-00001-of-00002.safetensors", {{"a", DType::kF32, {0}, {2}}});
  d.shard("shard-00002-model-00002-of-00002.safetensors", {{"b", DType::kF32, {0}, {2}}});
  d.shard("shard-00003-model-00001-of-00001.safetensors", {{"b", DType::kF32, {2}, {2}}});
  EXPECT_EQ(sections_of(recognise(d.directory)), (std::map<std::string, std::size_t>{{"model", 2}}));
}

TEST(Dcp, SectionsComeBack) {
  const std::string sections = R"({"optimizer.w": ["optimizer", "w"], "x": ["adapter", "odd \" name"]})";
  TestDirectory d;
  d.shard(kFirst,
          {{"w", DType::kF32, {0}, {2}},
           {"optimizer.w", DType::kF32, {0}, {1}},
           {"optim.w.exp_avg", DType::kF32, {0}, {2}},
           {"x", DType::kF32, {}, {}}},
          {{"cairn.sections", sections}});
  d.shard(kSecond, {{"optimizer.w", DType::kF32, {1}, {1}}},
          {{"cairn.sections", R"({"optimizer.w":["optimizer","w"]})"}});
  const auto out = recognise(d.directory);
  EXPECT_EQ(sections_of(out), (std::map<std::string, std::size_t>{{"adapter", 1}, {"model", 2}, {"optimizer", 1}}));
  EXPECT_EQ(tensor_of(out, "optimizer", "w").boxes.size(), 2u);
  EXPECT_EQ(tensor_of(out, "model", "w").shape, (Shape{2}));
  EXPECT_EQ(tensor_of(out, "model", "optim.w.exp_avg").shape, (Shape{2}));
  EXPECT_EQ(tensor_of(out, "adapter", "odd \" name").shape, Shape{});
}

TEST(Dcp, WholeFilesThatAnIndexListsAreNoShards) {
  TestDirectory d;  // as torch writes if one rank saves everything
  d.shard("model-00001-of-00001.safetensors", {{"w", DType::kF32, {0, 0}, {2, 3}}});
  d.index("model.safetensors.index.json", {{"w", "model-00001-of-00001.safetensors"}}, 24);
  EXPECT_EQ(recognise(d.directory).about.dialect, "Hugging Face");
  d.directory.json.clear();
  EXPECT_EQ(recognise(d.directory).about.dialect, "torch DCP safetensors");
}

/// Cuts boxes at random places until there are `wanted` boxes, with at most four tries per wanted box.
std::vector<Box> random_split(std::mt19937_64& random, const Shape& shape, std::size_t wanted) {
  std::vector<Box> boxes = {{Shape(shape.size(), 0), shape}};
  for (std::size_t tries = 0; boxes.size() < wanted && tries < 4 * wanted && !shape.empty(); ++tries) {
    Box& box = boxes[uniform(random, 0, boxes.size() - 1)];
    const std::size_t d = uniform(random, 0, shape.size() - 1);
    if (box.shape[d] < 2) continue;
    const std::uint64_t cut = uniform(random, 1, box.shape[d] - 1);
    Box rest = box;
    rest.offset[d] += cut;
    rest.shape[d] -= cut;
    box.shape[d] = cut;
    boxes.push_back(rest);
  }
  return boxes;
}

TEST(Dcp, RandomSplitsComeBack) {
  auto random = make_random(2);
  std::size_t compared = 0;
  for (int round = 0; round < 60; ++round) {
    const std::size_t ranks = uniform(random, 1, 9);
    std::map<std::string, std::pair<Shape, std::vector<Box>>> truth;
    std::vector<std::vector<std::vector<Part>>> files(ranks);  // by rank and file; a file holds one box of a tensor
    for (std::size_t t = uniform(random, 1, 12); t > 0; --t) {
      const std::string name = "t" + std::to_string(t);
      Shape shape(uniform(random, 0, 4));
      for (auto& n : shape) n = uniform(random, 1, 20);
      auto boxes = random_split(random, shape, uniform(random, 1, 30));
      std::map<std::size_t, std::size_t> next_file;
      for (const Box& box : boxes) {
        for (std::uint64_t replica = uniform(random, 0, 5) == 0 ? 2 : 1; replica > 0; --replica) {
          const std::size_t rank = uniform(random, 0, ranks - 1);
          auto& of_rank = files[rank];
          const std::size_t file = next_file[rank]++;
          if (of_rank.size() <= file) of_rank.resize(file + 1);
          of_rank[file].push_back({name, DType::kF16, box.offset, box.shape});
        }
      }
      std::sort(boxes.begin(), boxes.end(), [](const Box& a, const Box& b) { return a.offset < b.offset; });
      truth[name] = {shape, boxes};
    }
    std::size_t most = 0;
    for (const auto& of_rank : files) most = std::max(most, of_rank.size());
    TestDirectory d;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      for (std::size_t k = 0; k < files[rank].size(); ++k) {
        std::shuffle(files[rank][k].begin(), files[rank][k].end(), random);
        char name[80];
        std::snprintf(name, sizeof name, "shard-%05zu-model-%05zu-of-%05zu.safetensors", rank + 1, k + 1, most);
        d.shard(name, files[rank][k]);
      }
    }
    const auto out = recognise(d.directory);
    ASSERT_EQ(out.tensors.size(), truth.size());
    for (const format::StoredTensor& tensor : out.made) {
      const auto& [shape, boxes] = truth.at(tensor.name);
      ASSERT_EQ(tensor.shape, shape);
      ASSERT_EQ(tensor.boxes.size(), boxes.size());
      for (std::size_t i = 0; i < boxes.size(); ++i) {
        const auto& stored = tensor.boxes[i];
        ASSERT_EQ(stored.box, boxes[i]);
        const auto& header = d.directory.safetensors.at(out.files.at(stored.file).name);
        const auto entry = std::find_if(header.tensors.begin(), header.tensors.end(),
                                        [&](const auto& e) { return e.name == tensor.name; });
        ASSERT_NE(entry, header.tensors.end());
        ASSERT_EQ(stored.offset_bytes, header.data_start + entry->begin);
        ASSERT_TRUE(std::ranges::equal(entry->shape, boxes[i].shape));
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 1000u);
}

TEST(Dcp, OneBoxLessIsAHole) {
  auto random = make_random(3);
  int holes = 0;
  for (int round = 0; round < 100; ++round) {
    const Shape shape = {uniform(random, 2, 20), uniform(random, 2, 20)};
    auto boxes = random_split(random, shape, 20);
    const std::size_t lost = uniform(random, 0, boxes.size() - 1);
    Shape end(2, 0);
    TestDirectory d;
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      if (i == lost) continue;
      for (std::size_t n = 0; n < 2; ++n) end[n] = std::max(end[n], boxes[i].offset[n] + boxes[i].shape[n]);
      d.shard("shard-" + std::to_string(10000 + i) + "-model-00001-of-00001.safetensors",
              {{"w", DType::kF32, boxes[i].offset, boxes[i].shape}});
    }
    if (end != shape) continue;  // the last rows or columns are missing, which the files cannot show
    EXPECT_THAT(failure_of(d.directory), AllOf(HasSubstr("tensor 'w'"), HasSubstr("is in no file")));
    ++holes;
  }
  EXPECT_GT(holes, 50);
}

// ---- one broken input per rule

TEST(DcpBroken, Overlap) {
  EXPECT_THAT(failure_of(with_second({{"w", DType::kF32, {1, 0}, {3, 6}}}).directory),
              AllOf(HasSubstr(kSecond + ": tensor 'w'"), HasSubstr("[1:4, 0:6]"),
                    HasSubstr("overlaps box [0:2, 0:6] of"), HasSubstr(kFirst)));
}

TEST(DcpBroken, Hole) {
  EXPECT_THAT(failure_of(with_second({{"w", DType::kF32, {3, 0}, {2, 6}}}).directory),
              AllOf(HasSubstr("tensor 'w'"), HasSubstr("[5, 6]"), HasSubstr("element [2, 0]"), HasSubstr(kFirst),
                    HasSubstr(kSecond)));
}

TEST(DcpBroken, EmptyBoxesCoverNothing) {
  TestDirectory d;
  d.shard(kFirst, {{"w", DType::kF32, {0, 0}, {0, 5}}}).shard(kSecond, {{"w", DType::kF32, {0, 0}, {5, 0}}});
  EXPECT_THAT(failure_of(d.directory), AllOf(HasSubstr("tensor 'w'"), HasSubstr("empty boxes only")));
}

TEST(DcpBroken, ContradictingDtypeRankAndSection) {
  EXPECT_THAT(failure_of(with_second({{"w", DType::kF16, {2, 0}, {2, 6}}}).directory),
              AllOf(HasSubstr(kSecond), HasSubstr("'w' is F16 here and F32 in " + kFirst)));
  EXPECT_THAT(failure_of(with_second({{"w", DType::kF32, {2}, {2}}}).directory),
              AllOf(HasSubstr(kSecond), HasSubstr("1-dimensional here and 2-dimensional")));
  TestDirectory d = good();
  d.shard(kSecond, {{"w", DType::kF32, {2, 0}, {2, 6}}}, {{"cairn.sections", R"({"w": ["optimizer", "w"]})"}});
  EXPECT_THAT(failure_of(d.directory), AllOf(HasSubstr("'optimizer' here"), HasSubstr("'model' in " + kFirst)));
}

TEST(DcpBroken, TwoTensorsOfOneSectionWithOneName) {
  TestDirectory d;
  d.shard(kFirst, {{"w", DType::kF32, {0}, {2}}, {"v", DType::kF32, {0}, {2}}},
          {{"cairn.sections", R"({"v": ["model", "w"]})"}});
  EXPECT_THAT(failure_of(d.directory), AllOf(HasSubstr("'model'"), HasSubstr("two tensors 'w'")));
}

TEST(DcpBroken, ShardingInfo) {
  const auto failure_with = [](const std::string& info) {
    TestDirectory d = good();
    d.file(kSecond, {{"w", DType::kF32, {2, 6}}}, {{"DCP_SHARDING_INFO", info}});
    return failure_of(d.directory);
  };
  EXPECT_THAT(failure_with("nonsense"), HasSubstr("DCP_SHARDING_INFO"));
  EXPECT_THAT(failure_with("[]"), HasSubstr("DCP_SHARDING_INFO: must be an object"));
  EXPECT_THAT(failure_with("{}"), HasSubstr("DCP_SHARDING_INFO: the key 'w' is missing"));
  EXPECT_THAT(failure_with(R"({"w": {"saved_offsets": [2, 0]}, "v": {"saved_offsets": [0]}})"),
              AllOf(HasSubstr("'v'"), HasSubstr("does not hold")));
  EXPECT_THAT(failure_with(R"({"w": {"saved_offsets": [2, 0]}, "w": {"saved_offsets": [2]}})"),
              HasSubstr("2 dimensions, its saved_offsets 1"));  // the last counts, as in Python
  EXPECT_THAT(failure_with(R"({"w": [2, 0]})"), HasSubstr("DCP_SHARDING_INFO: w: must be an object"));
  EXPECT_THAT(failure_with(R"({"w": {"saved_offsets": 2}})"), HasSubstr("w.saved_offsets: must be an array"));
  EXPECT_THAT(failure_with(R"({"w": {"saved_offsets": [2]}})"), HasSubstr("2 dimensions, its saved_offsets 1"));
  EXPECT_THAT(failure_with(R"({"w": {"saved_offsets": [-2, 0]}})"),
              HasSubstr("w.saved_offsets[0]: must be a whole number"));
  EXPECT_THAT(failure_with(R"({"w": {"saved_offsets": [2.0, 0]}})"),
              HasSubstr("w.saved_offsets[0]: must be a whole number"));
  EXPECT_THAT(failure_with(R"({"w": {"saved_offsets": [18446744073709551615, 0]}})"), HasSubstr("beyond 2^64"));
  EXPECT_THAT(failure_with(R"({"w": {"saved_offsets": [4294967296, 4294967296]}})"), HasSubstr("more than 2^64"));
}

TEST(DcpBroken, SectionsMetadata) {
  const auto failure_with = [](const std::string& sections) {
    TestDirectory d = good();
    d.shard(kSecond, {{"w", DType::kF32, {2, 0}, {2, 6}}}, {{"cairn.sections", sections}});
    return failure_of(d.directory);
  };
  EXPECT_THAT(failure_with("7"), HasSubstr("cairn.sections: must be an object"));
  EXPECT_THAT(failure_with(R"({"v": ["optimizer", "v"]})"), AllOf(HasSubstr("'v'"), HasSubstr("does not hold")));
  EXPECT_THAT(failure_with(R"({"w": "optimizer"})"), HasSubstr("not a pair"));
  EXPECT_THAT(failure_with(R"({"w": ["optimizer"]})"), HasSubstr("not a pair"));
  EXPECT_THAT(failure_with(R"({"w": ["", "w"]})"), HasSubstr("not a pair"));
}

TEST(DcpBroken, Numbers) {
  TestDirectory missing;
  missing.shard("shard-00001-model-00001-of-00003.safetensors", {{"a", DType::kF32, {0}, {2}}});
  missing.shard("shard-00002-model-00003-of-00003.safetensors", {{"b", DType::kF32, {0}, {2}}});
  EXPECT_THAT(failure_of(missing.directory, ErrorKind::kNotFound),
              AllOf(HasSubstr("file 2 of 3"), HasSubstr("-00002-of-00003")));
  TestDirectory mixed = good();
  mixed.shard("shard-00001-model-00001-of-00002.safetensors", {{"a", DType::kF32, {0}, {2}}});
  EXPECT_THAT(failure_of(mixed.directory), AllOf(HasSubstr("another save"), HasSubstr(kFirst)));
  TestDirectory beyond;
  beyond.shard("shard-00001-model-00003-of-00002.safetensors", {{"a", DType::kF32, {0}, {2}}});
  EXPECT_THAT(failure_of(beyond.directory), HasSubstr("1 to 2"));
}

TEST(DcpBroken, ShardsBesideAnotherCheckpoint) {
  TestDirectory whole = good();
  whole.file_of("model.safetensors", {"w"});
  EXPECT_THAT(failure_of(whole.directory),
              AllOf(HasSubstr("/model.safetensors: holds whole tensors"), HasSubstr(kFirst)));
  TestDirectory stripped = good();
  stripped.file_of(kSecond, {"w"});
  EXPECT_THAT(failure_of(stripped.directory), AllOf(HasSubstr(kSecond), HasSubstr("DCP_SHARDING_INFO")));
  TestDirectory listed = good();
  listed.index("model.safetensors.index.json", {{"w", kSecond}}, 1);
  EXPECT_THAT(failure_of(listed.directory), HasSubstr("two checkpoints"));
  listed.directory.safetensors.erase(kFirst);
  EXPECT_THAT(failure_of(listed.directory), AllOf(HasSubstr(kSecond), HasSubstr("only a part of tensor 'w'")));
}

}  // namespace
}  // namespace cairn::interop::test
