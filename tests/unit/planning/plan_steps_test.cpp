// The planning steps between messages, with the messages delivered by hand: any number of ranks gets the same catalog,
// and no rank sorts or lays out the whole catalog.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "cairn/error.hpp"
#include "planning/catalog_steps.hpp"
#include "planning/claim_steps.hpp"
#include "planning/layout_steps.hpp"
#include "random.hpp"

namespace cairn::checkpoint {
namespace {

using testing::HasSubstr;

/// Turns the messages that ranks send into the messages that they receive.
std::vector<comm::Messages> delivered(const std::vector<comm::Messages>& outgoing) {
  std::vector<comm::Messages> incoming(outgoing.size(), comm::Messages(outgoing.size()));
  for (std::size_t from = 0; from < outgoing.size(); ++from) {
    for (std::size_t to = 0; to < outgoing.size(); ++to) incoming[to][from] = outgoing[from][to];
  }
  return incoming;
}

Source source_of(const plan::CatalogTensor& tensor) {
  Source source;
  source.section = tensor.section;
  source.name = tensor.name;
  source.dtype = tensor.dtype;
  source.shape = tensor.shape;
  return source;
}

struct Merged {
  plan::PackedCatalog catalog;
  std::size_t largest_stretch_bytes = 0;
};

Merged merge(const std::vector<std::vector<Source>>& state_of) {
  const int ranks = static_cast<int>(state_of.size());
  std::vector<comm::Messages> out;
  for (int rank = 0; rank < ranks; ++rank) {
    out.push_back(planning::describe_to_homes({state_of[static_cast<std::size_t>(rank)]}, rank, ranks));
  }
  std::vector<std::vector<plan::CatalogTensor>> homed;
  comm::Messages samples;
  for (const comm::Messages& in : delivered(out)) {
    homed.push_back(planning::merge_described(in));
    samples.push_back(planning::sample_names(homed.back(), static_cast<int>(samples.size()), ranks));
  }
  out.clear();
  for (const auto& tensors : homed) out.push_back(planning::spread_in_order(tensors, samples));
  Merged merged;
  comm::Messages stretches;
  for (const comm::Messages& in : delivered(out)) {
    stretches.push_back(planning::pack_stretch(in));
    merged.largest_stretch_bytes = std::max(merged.largest_stretch_bytes, stretches.back().size());
  }
  merged.catalog = plan::PackedCatalog(stretches);
  return merged;
}

std::vector<plan::CatalogTensor> experts(std::uint64_t layers, std::uint64_t per_layer) {
  std::vector<plan::CatalogTensor> tensors;
  for (std::uint64_t layer = 0; layer < layers; ++layer) {
    for (std::uint64_t expert = 0; expert < per_layer; ++expert) {
      const std::string name = "model.layers." + std::to_string(layer) + ".experts." + std::to_string(expert) + ".w";
      tensors.push_back({"model", name, DType::kBF16, {8, 8}});
      tensors.push_back({"optimizer", name + "/moment1_0", DType::kF32, {8, 8}});
    }
  }
  return tensors;
}

TEST(CatalogSteps, AnyNumberOfRanksComesToTheCatalog) {
  auto random = test::make_random(1);
  const std::vector<plan::CatalogTensor> tensors = experts(7, 13);
  const plan::Catalog expected = plan::make_catalog(tensors);
  for (const std::size_t ranks : {1U, 2U, 3U, 7U, 64U, 1500U}) {
    std::vector<std::vector<Source>> state_of(ranks);
    for (const plan::CatalogTensor& tensor : tensors) {  // one to three ranks hold each tensor
      for (std::uint64_t i = test::uniform(random, 1, 3); i > 0; --i) {
        state_of[test::uniform(random, 0, ranks - 1)].push_back(source_of(tensor));
      }
    }
    const plan::PackedCatalog catalog = merge(state_of).catalog;
    ASSERT_EQ(catalog.size(), expected.tensors.size()) << ranks;
    for (plan::PackedCatalog::Cursor cursor(catalog, 0); cursor.next();) {
      ASSERT_EQ(cursor.tensor(), expected.tensors[cursor.number()]) << ranks;
    }
    for (const auto& state : state_of) {
      const auto numbers = planning::number_tensors(catalog, state);
      for (std::size_t i = 0; i < state.size(); ++i) {
        ASSERT_EQ(expected.tensors[numbers.at(i)].name, state[i].name);
        ASSERT_EQ(expected.tensors[numbers.at(i)].section, state[i].section);
      }
    }
  }
}

TEST(CatalogSteps, NoRankGetsTheWholeCatalogToSort) {
  for (const std::size_t ranks : {64U, 1024U}) {  // 16 samples per home, and one per home
    std::vector<std::vector<Source>> state_of(ranks);
    std::size_t next = 0;
    for (const plan::CatalogTensor& tensor : experts(50, 150)) state_of[next++ % ranks].push_back(source_of(tensor));
    const Merged merged = merge(state_of);
    EXPECT_EQ(merged.catalog.size(), 15'000U);
    EXPECT_LT(merged.largest_stretch_bytes, merged.catalog.packed_bytes() / 8) << ranks;
  }
}

TEST(CatalogSteps, NothingAtAll) {
  EXPECT_EQ(merge({{}, {}, {}}).catalog.size(), 0U);
  EXPECT_EQ(merge({{}}).catalog.size(), 0U);
}

TEST(CatalogSteps, ContradictionsNameTheRanks) {
  const Source a = source_of({"model", "w", DType::kF32, {4}});
  Source b = a;
  b.shape = {5};
  const auto message = [](const std::vector<std::vector<Source>>& state_of) {
    try {
      merge(state_of);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(message({{a}, {a}, {b}}),
              HasSubstr("tensor 'w' (section model) is F32 [0:4] on rank 0 but F32 [0:5] on rank 2"));
  EXPECT_THAT(message({{}, {a, b}}), HasSubstr("F32 [0:4] on rank 1 but F32 [0:5] on rank 1"));
  EXPECT_THAT(message({{a}, {a, a}}), HasSubstr("no error"));
}

TEST(LayoutSteps, SharesOfAnyNumberOfRanksAreTheWhole) {
  const plan::Catalog catalog = plan::make_catalog(experts(5, 11));
  plan::LayoutOptions options;
  options.max_file_bytes = 1000;
  const plan::FileLayout whole = plan::lay_out_hf(catalog, options);
  const plan::HfLayout files(plan::PackedCatalog(catalog), options);
  ASSERT_GT(whole.files.size(), 20U);
  ASSERT_EQ(whole.index_files.size(), 2U);
  for (const int ranks : {1, 2, 3, 5, 100}) {
    comm::Messages sizes;
    comm::Messages indexes;
    for (int rank = 0; rank < ranks; ++rank) {
      sizes.push_back(planning::header_sizes_of_share(files, rank, ranks));
      indexes.push_back(planning::indexes_of_share(files, rank, ranks));
    }
    if (ranks > 2) {
      EXPECT_TRUE(indexes[0].empty()) << "rank 0 collects";
    }
    EXPECT_EQ(planning::join_indexes(indexes), whole.index_files);
    const auto header_bytes = planning::join_header_sizes(files, sizes);
    ASSERT_EQ(header_bytes.size(), whole.files.size());
    for (std::size_t f = 0; f < header_bytes.size(); ++f) EXPECT_EQ(header_bytes[f], whole.files[f].header.size());
  }
}

TEST(LayoutSteps, ARankGetsHeadersWhereItWritesAndPlacesOfItsOwn) {
  const plan::Catalog catalog = plan::make_catalog(experts(5, 11));
  plan::LayoutOptions options;
  options.max_file_bytes = 1000;
  const plan::FileLayout whole = plan::lay_out_hf(catalog, options);
  const plan::HfLayout files(plan::PackedCatalog(catalog), options);
  std::vector<std::uint64_t> header_bytes;
  for (const auto& file : whole.files) header_bytes.push_back(file.header.size());
  plan::FileLayout layout = files.without_content(header_bytes);
  const std::vector<plan::Extent> extents = {{3, 0, 100, 0}, {4, 4000, 4200, 0}, {5, 4096, 4100, 0}};
  planning::add_headers(layout, files, extents);
  std::size_t headers = 0;
  for (std::size_t f = 0; f < layout.files.size(); ++f) {
    if (layout.files[f].header.empty()) continue;
    EXPECT_EQ(layout.files[f].header, whole.files[f].header);
    ++headers;
  }
  EXPECT_EQ(headers, 2U);
  EXPECT_TRUE(layout.stored.tensors.empty());

  std::vector<plan::Piece> pieces = {{60, 0, 1, {{0, 0}, {4, 8}}}, {2, 1, 1, {}}, {60, 0, 1, {{4, 0}, {4, 8}}}};
  const format::StoredCheckpoint places = planning::place_pieces(layout, files, pieces);
  ASSERT_EQ(places.tensors.size(), 2U);  // only the tensors of the pieces
  const std::uint32_t expected[] = {2, 60};
  for (std::size_t t = 0; t < 2; ++t) {
    const format::StoredTensor& tensor = whole.stored.tensors[expected[t]];
    EXPECT_EQ(places.tensors[t].name, tensor.name);
    ASSERT_EQ(places.tensors[t].boxes.size(), 1U);
    EXPECT_EQ(places.tensors[t].boxes[0].file, tensor.boxes[0].file);
    EXPECT_EQ(places.tensors[t].boxes[0].offset_bytes, tensor.boxes[0].offset_bytes);
    EXPECT_EQ(places.tensors[t].boxes[0].box, tensor.boxes[0].box);
  }
  EXPECT_EQ(pieces[0], (plan::Piece{1, 0, 1, {{0, 0}, {4, 8}}}));
  EXPECT_EQ(pieces[1].tensor, 0U);
  EXPECT_EQ(pieces[2].tensor, 1U);
  std::vector<plan::Piece> none;
  EXPECT_TRUE(planning::place_pieces(layout, files, none).tensors.empty());
}

TEST(ClaimSteps, ClaimsGoToHomesAndPiecesComeBack) {
  const plan::Catalog catalog = plan::make_catalog(
      {{"model", "a", DType::kF32, {256, 512}}, {"model", "b", DType::kF32, {}}, {"model", "c", DType::kF32, {6}}});
  const plan::PackedCatalog packed(catalog);
  const int ranks = 2;
  // Both ranks have all of "a", rank 1 has "b", and each rank has a half of "c". The shards are not in catalog order.
  const std::vector<std::uint32_t> numbers[] = {{2, 0}, {1, 0, 2}};
  const std::vector<plan::MemoryBox> memory[] = {{{0, {{0}, {3}}, {}}, {1, {{0, 0}, {256, 512}}, {}}},
                                                 {{0, {}, {}}, {1, {{0, 0}, {256, 512}}, {}}, {2, {{3}, {3}}, {}}}};
  std::vector<comm::Messages> out;
  for (int rank = 0; rank < ranks; ++rank) {
    out.push_back(planning::claim_boxes(memory[rank], numbers[rank], rank, ranks));
    EXPECT_EQ(out.back()[0].size() + out.back()[1].size(), rank == 0 ? 16U * 2 + 16U * 3 : 16U * 3 + 16U * 3);
  }
  std::vector<comm::Messages> claimed = delivered(out);
  out.clear();
  for (int rank = 0; rank < ranks; ++rank) {
    out.push_back(planning::settle_claims(packed, claimed[static_cast<std::size_t>(rank)], rank));
  }
  const std::vector<comm::Messages> provided = delivered(out);
  const auto first = planning::collect_pieces(provided[0], 0);
  const auto second = planning::collect_pieces(provided[1], 1);
  EXPECT_EQ(first, (std::vector<plan::Piece>{{0, 1, 0, {{0, 0}, {128, 512}}}, {2, 0, 0, {{0}, {3}}}}));
  EXPECT_EQ(second,
            (std::vector<plan::Piece>{{0, 1, 1, {{128, 0}, {128, 512}}}, {2, 2, 1, {{3}, {3}}}, {1, 0, 1, {}}}));

  // "a" is replicated, and written by both ranks.
  const auto replicas = planning::collect_replicas(provided[0]);
  ASSERT_EQ(replicas.size(), 1U);
  EXPECT_EQ(replicas[0], (plan::Replica{0, 1, replicas[0].holders, true}));
  EXPECT_EQ(planning::collect_replicas(provided[1]), (std::vector<plan::Replica>{{0, 1, replicas[0].holders, true}}));

  EXPECT_THROW(planning::collect_pieces(provided[0], 1), Error) << "pieces of another rank";
  std::swap(claimed[0][0], claimed[0][1]);
  EXPECT_THROW(planning::settle_claims(packed, claimed[0], 0), Error) << "claims of another rank";
  comm::Messages cut = provided[1];
  for (base::Bytes& bytes : cut) {
    if (!bytes.empty()) bytes.pop_back();
  }
  EXPECT_THROW(planning::collect_pieces(cut, 1), Error);
  comm::Messages deep = provided[0];
  deep[0][12] = std::byte{9};
  EXPECT_THROW(planning::collect_pieces(deep, 0), Error) << "more dimensions than a box has";
}

}  // namespace
}  // namespace cairn::checkpoint
