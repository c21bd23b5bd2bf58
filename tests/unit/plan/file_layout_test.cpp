// File layouts: names, order, indexes and headers, read back by the parser; torch's sharded dialect key by key.
#include "plan/file_layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

#include "cairn/error.hpp"
#include "format/hf_index.hpp"
#include "format/safetensors.hpp"
#include "shard/box_math.hpp"

namespace cairn::plan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

format::SafetensorsHeader parsed(const DataFile& file) {
  const std::string_view json = std::string_view(file.header).substr(8);
  return format::parse_header(json, file.size_bytes, file.name);
}

std::vector<std::string> names_of(const FileLayout& layout) {
  std::vector<std::string> names;
  for (const DataFile& file : layout.files) names.push_back(file.name);
  return names;
}

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

Catalog small_catalog() {
  return make_catalog({{"model", "l.10.w", DType::kBF16, {4, 4}},
                       {"model", "l.2.w", DType::kBF16, {4, 4}},
                       {"model", "l.2.b", DType::kF32, {3}},
                       {"optimizer", "l.2.w/moment1_0", DType::kF32, {4, 4}},
                       {"adapter", "lora", DType::kF32, {2}},
                       {"ema", "step", DType::kI64, {}}});
}

TEST(LayOutHf, OneFilePerSection) {
  const Catalog catalog = small_catalog();
  const FileLayout layout = lay_out_hf(catalog, {});
  EXPECT_THAT(names_of(layout), ElementsAre("model.safetensors", "optimizer.safetensors", "adapter_model.safetensors",
                                            "ema.safetensors"));
  EXPECT_TRUE(layout.index_files.empty());
  ASSERT_EQ(layout.stored.tensors.size(), 6U);
  const auto header = parsed(layout.files[0]);
  EXPECT_EQ(header.metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
  EXPECT_EQ(header.data_start, 4096U);
  EXPECT_EQ(layout.files[0].header.size(), 4096U);
  EXPECT_EQ(layout.files[0].size_bytes, 4096U + 12 + 32 + 32);
  EXPECT_EQ(layout.files[3].section, "ema");
  // In the file, wide dtypes come first, then names by bytes; the catalog has natural order.
  EXPECT_EQ(header.tensors[0].name, "l.2.b");
  EXPECT_EQ(header.tensors[1].name, "l.10.w");
  for (std::size_t t = 0; t < 3; ++t) {
    const auto& stored = layout.stored.tensors[t];
    EXPECT_EQ(stored.name, catalog.tensors[t].name);
    ASSERT_EQ(stored.boxes.size(), 1U);
    EXPECT_EQ(stored.boxes[0].box, shard::whole(catalog.tensors[t].shape));
  }
  EXPECT_EQ(layout.stored.tensors[0].boxes[0].offset_bytes, 4096U);       // l.2.b
  EXPECT_EQ(layout.stored.tensors[1].boxes[0].offset_bytes, 4096U + 44);  // l.2.w
  EXPECT_EQ(layout.stored.tensors[2].boxes[0].offset_bytes, 4096U + 12);  // l.10.w
}

TEST(LayOutHf, SplitsInCatalogOrderAndWritesIndexes) {
  LayoutOptions options;
  options.max_file_bytes = 44;
  options.align_bytes = 8;
  const FileLayout layout = lay_out_hf(small_catalog(), options);
  EXPECT_THAT(names_of(layout), ElementsAre("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                                            "optimizer.safetensors", "adapter_model.safetensors", "ema.safetensors"));
  ASSERT_EQ(layout.index_files.size(), 1U);
  const auto index = format::parse_hf_index(layout.index_files.at("model.safetensors.index.json"), "index");
  EXPECT_THAT(index.files, ElementsAre("model-00002-of-00002.safetensors", "model-00001-of-00002.safetensors"));
  EXPECT_THAT(index.tensors, ElementsAre(format::IndexEntry{"l.10.w", 0}, format::IndexEntry{"l.2.b", 1},
                                         format::IndexEntry{"l.2.w", 1}));
  EXPECT_EQ(index.metadata.at("total_size").whole_number(), 76U);
  EXPECT_EQ(index.metadata.at("total_parameters").whole_number(), 35U);
  options.max_file_bytes = 1;
  const FileLayout single =
      lay_out_hf(make_catalog({{"optimizer", "a", DType::kF32, {1}}, {"optimizer", "b", DType::kF32, {1}}}), options);
  const auto optimizer = format::parse_hf_index(single.index_files.at("optimizer.safetensors.index.json"), "index");
  EXPECT_EQ(optimizer.metadata.at("total_size").whole_number(), 8U);
  EXPECT_FALSE(optimizer.metadata.contains("total_parameters"));
}

TEST(LayOutHf, SplitsFilesWhoseHeadersWouldBeTooLarge) {
  std::vector<CatalogTensor> tensors;
  for (int i = 0; i < 300; ++i) {
    const std::string name =
        std::string("x\"\n") + std::to_string(i) + std::string(static_cast<std::size_t>(i % 40), 'n');
    tensors.push_back({"model", name, i % 2 == 0 ? DType::kU8 : DType::kBF16, {4, 1000, 1}, {}});
    if (i % 7 == 0) tensors.back().coding = R"({"codec": "some"})";
  }
  const Catalog catalog = make_catalog(std::move(tensors));
  for (const std::uint64_t align : {8U, 512U, 4096U}) {
    for (const std::uint64_t most : {4096U - 8, 5000U, 8192U, 20000U}) {
      LayoutOptions options;
      options.align_bytes = align;
      options.max_header_bytes = most;
      const FileLayout layout = lay_out_hf(catalog, options);
      EXPECT_GT(layout.files.size(), 1U);
      std::vector<std::string> names;
      for (const DataFile& file : layout.files) {
        EXPECT_LE(file.header.size(), most + 8);
        EXPECT_GE(file.header.size() + 1200,
                  std::min(most / align * align, most) * (&file == &layout.files.back() ? 0 : 1));
        for (const auto& tensor : parsed(file).tensors) names.emplace_back(tensor.name);
      }
      EXPECT_EQ(names.size(), 300U);
      const auto index = format::parse_hf_index(layout.index_files.at("model.safetensors.index.json"), "index");
      EXPECT_EQ(index.tensors.size(), 300U);
      EXPECT_EQ(index.files.size(), layout.files.size());
    }
  }
  LayoutOptions whole;
  EXPECT_EQ(lay_out_hf(catalog, whole).files.size(), 1U);
  whole.max_header_bytes = lay_out_hf(catalog, whole).files[0].header.size() - 8;
  EXPECT_EQ(lay_out_hf(catalog, whole).files.size(), 1U);
}

TEST(LayOutHf, StatesOfAParameterStayTogetherWhenAHeaderIsSplit) {
  std::vector<CatalogTensor> tensors;
  for (int i = 0; i < 40; ++i) {
    for (const char* state : {"/moment1_0", "/moment2_0", "/power"}) {
      tensors.push_back({"optimizer", "p" + std::to_string(i) + state, DType::kF32, {2}});
    }
  }
  LayoutOptions options;
  options.align_bytes = 8;
  options.max_header_bytes = 1000;
  options.keeps_states_together = true;
  const FileLayout layout = lay_out_hf(make_catalog(std::move(tensors)), options);
  EXPECT_GT(layout.files.size(), 5U);
  for (const DataFile& file : layout.files) {
    EXPECT_LE(file.header.size(), 1008U);
    EXPECT_EQ(parsed(file).tensors.size() % 3, 0U);
  }
}

TEST(LayOutHf, NoTensorsNoFiles) {
  const FileLayout layout = lay_out_hf({}, {});
  EXPECT_TRUE(layout.files.empty());
  EXPECT_TRUE(layout.index_files.empty());
}

TEST(LayOutHf, TensorsWithoutElementsAreKept) {
  const FileLayout layout = lay_out_hf(make_catalog({{"model", "none", DType::kF32, {0, 7}}}), {});
  ASSERT_EQ(layout.files.size(), 1U);
  EXPECT_EQ(layout.files[0].size_bytes, 4096U);
  EXPECT_THAT(parsed(layout.files[0]).tensors.at(0).shape, ElementsAre(0, 7));
}

TEST(LayOutHf, RefusesSectionsThatCannotNameAFile) {
  for (const char* section : {"", ".", "..", "a/b", "/a", "a\\b", "c:x"}) {
    const Catalog catalog = make_catalog({{section, "w", DType::kF32, {1}}});
    EXPECT_THAT(error_of([&] { lay_out_hf(catalog, {}); }), HasSubstr("cannot name a file")) << section;
  }
  const Catalog clash = make_catalog({{"adapter", "w", DType::kF32, {1}}, {"adapter_model", "w", DType::kF32, {1}}});
  EXPECT_THAT(error_of([&] { lay_out_hf(clash, {}); }), HasSubstr("would both write file 'adapter_model.safetensors'"));
}

TEST(LayOutHf, RefusesSizesThatOverflow) {
  const Catalog catalog = make_catalog({{"model", "w", DType::kF32, {1ULL << 62, 4}}});
  EXPECT_THAT(error_of([&] { lay_out_hf(catalog, {}); }), HasSubstr("'w'"));
}

TEST(LayOutShards, WritesTorchsMetadata) {
  const Catalog catalog = make_catalog({{"model", "w", DType::kBF16, {4, 6}},
                                        {"model", "caf\xc3\xa9\"", DType::kF32, {2}},
                                        {"optimizer", "w/moment1_0", DType::kF32, {}}});
  const std::uint32_t cafe = 0;
  const std::uint32_t w = 1;
  const std::uint32_t moment = 2;
  const std::vector<Piece> held = {
      {cafe, 0, 0, {{0}, {2}}}, {w, 1, 0, {{0, 0}, {4, 2}}}, {w, 2, 0, {{0, 4}, {4, 2}}}, {moment, 3, 0, {}},
      {cafe, 0, 1, {{2}, {0}}}, {w, 0, 2, {{0, 2}, {4, 2}}}, {w, 1, 2, {{0, 0}, {4, 2}}}, {moment, 2, 2, {}}};
  const FileLayout layout = lay_out_shards(catalog, held, 3, {});
  EXPECT_THAT(names_of(layout), ElementsAre("shard-00001-model-00001-of-00001.safetensors",
                                            "shard-00003-model-00001-of-00002.safetensors",
                                            "shard-00003-model-00002-of-00002.safetensors"));
  EXPECT_TRUE(layout.index_files.empty());
  // Rank 0 alone holds café; then the holder with less load gets each shared box.
  const auto first = parsed(layout.files[0]);
  EXPECT_EQ(first.metadata.at("format"), "pt");
  EXPECT_EQ(first.metadata.at("DCP_VERSION"), "1.0");
  EXPECT_EQ(first.metadata.at("DCP_SHARDING_INFO"),
            R"({"caf\u00e9\"": {"saved_offsets": [0]}, "w": {"saved_offsets": [0, 4]}, )"
            R"("optimizer.w/moment1_0": {"saved_offsets": []}})");
  EXPECT_EQ(first.metadata.at("cairn.sections"), R"({"optimizer.w/moment1_0": ["optimizer", "w/moment1_0"]})");
  const auto second = parsed(layout.files[1]);
  EXPECT_EQ(second.metadata.at("DCP_SHARDING_INFO"), R"({"w": {"saved_offsets": [0, 0]}})");
  EXPECT_FALSE(second.metadata.contains("cairn.sections"));
  EXPECT_EQ(parsed(layout.files[2]).metadata.at("DCP_SHARDING_INFO"), R"({"w": {"saved_offsets": [0, 2]}})");
  EXPECT_THAT(second.tensors.at(0).shape, ElementsAre(4, 2));
  ASSERT_EQ(layout.stored.tensors[w].boxes.size(), 3U);
  EXPECT_EQ(layout.stored.tensors[w].boxes[0].box, (Box{{0, 0}, {4, 2}}));
  EXPECT_EQ(layout.stored.tensors[w].boxes[0].file, 1U);
  EXPECT_EQ(layout.stored.tensors[w].boxes[1].file, 2U);
  EXPECT_EQ(layout.stored.tensors[w].boxes[2].file, 0U);
}

TEST(LayOutShards, SaysWhatToDoAboutAHeaderThatIsTooLarge) {
  std::vector<CatalogTensor> tensors;
  std::vector<Piece> held;
  for (std::uint32_t i = 0; i < 40; ++i) {
    tensors.push_back({"model", "t" + std::to_string(i), DType::kU8, {100}});
    held.push_back({i, i, static_cast<int>(i % 2), {{0}, {100}}});
  }
  LayoutOptions options;
  options.align_bytes = 8;
  const std::uint64_t largest = lay_out_shards(make_catalog(tensors), held, 2, options).files[0].header.size() - 8;
  options.max_header_bytes = largest;
  EXPECT_EQ(lay_out_shards(make_catalog(tensors), held, 2, options).files.size(), 2U);
  options.max_header_bytes = largest - 8;
  EXPECT_THAT(error_of([&] { lay_out_shards(make_catalog(tensors), held, 2, options); }),
              testing::AllOf(HasSubstr("the header of 'shard-00001-model-00001-of-00001.safetensors' would describe 20 "
                                       "tensors and be above the limit of " +
                                       std::to_string(largest - 8) + " bytes"),
                             HasSubstr("give a layout whose ranks hold fewer tensors (a larger pp)")));
}

TEST(LayOutShards, BalancesReplicas) {
  std::vector<CatalogTensor> tensors;
  std::vector<Piece> held;
  for (std::uint32_t i = 0; i < 64; ++i) {
    tensors.push_back({"model", "t" + std::to_string(i), DType::kU8, {100}});
    for (int rank = 0; rank < 4; ++rank) held.push_back({i, i, rank, {{0}, {100}}});
  }
  LayoutOptions options;
  options.align_bytes = 8;
  const FileLayout layout = lay_out_shards(make_catalog(tensors), held, 4, options);
  ASSERT_EQ(layout.files.size(), 4U);
  for (const DataFile& file : layout.files) EXPECT_EQ(file.size_bytes - file.header.size(), 1600U);
}

TEST(LayOutShards, KeepsTensorsWithoutElementsAndSkipsIdleRanks) {
  const Catalog catalog = make_catalog({{"model", "none", DType::kF32, {0, 3}}, {"model", "w", DType::kF32, {2}}});
  const FileLayout layout =
      lay_out_shards(catalog, {{0, 0, 1, {{0, 0}, {0, 3}}}, {0, 0, 2, {{0, 0}, {0, 3}}}, {1, 1, 2, {{0}, {2}}}}, 3, {});
  EXPECT_THAT(names_of(layout), ElementsAre("shard-00002-model-00001-of-00001.safetensors",
                                            "shard-00003-model-00001-of-00001.safetensors"));
  EXPECT_THAT(parsed(layout.files[0]).tensors.at(0).shape, ElementsAre(0, 3));
  ASSERT_EQ(layout.stored.tensors[0].boxes.size(), 1U);
}

TEST(LayOutShards, RefusesHolesAndNamesThatMeet) {
  const Catalog catalog = make_catalog({{"model", "w", DType::kF32, {4}}});
  EXPECT_THAT(error_of([&] {
                lay_out_shards(catalog, {{0, 0, 0, {{0}, {3}}}}, 1, {});
              }),
              HasSubstr("elements [3:4] are held by no rank"));
  EXPECT_THAT(error_of([&] {
                lay_out_shards(catalog, {{1, 0, 0, {{0}, {3}}}}, 1, {});
              }),
              HasSubstr("rank 0 holds tensor number 1"));
  const Catalog clash = make_catalog({{"model", "ema.w", DType::kF32, {1}}, {"ema", "w", DType::kF32, {1}}});
  EXPECT_THAT(error_of([&] { lay_out_shards(clash, {}, 0, {}); }), HasSubstr("under the name 'ema.w'"));
}

}  // namespace
}  // namespace cairn::plan
