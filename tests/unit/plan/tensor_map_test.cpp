// Maps of tensors: errors about invalid maps name the target, and parts and transposed copies have the right elements.
#include "plan/tensor_map.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cairn/error.hpp"
#include "cut_out.hpp"
#include "plan/runs.hpp"
#include "plan/strides.hpp"
#include "random_map.hpp"

namespace cairn::plan {
namespace {

using test::uniform;
using testing::AllOf;
using testing::HasSubstr;

const Catalog kSources = {{{"model", "a", DType::kF32, {4, 6}},
                           {"model", "b", DType::kF32, {4, 2}},
                           {"model", "c", DType::kF4, {4, 6}},
                           {"model", "d", DType::kBF16, {4, 6}},
                           {"model", "e", DType::kF32, {0, 6}}}};

std::string problem_of(std::vector<std::uint64_t> shape, std::vector<MapPiece> pieces, DType dtype = DType::kF32) {
  TensorMap map;
  map.catalog.tensors = {{"model", "t", dtype, std::move(shape)}};
  map.sources = {0};
  map.pieces[0] = std::move(pieces);
  try {
    check_map(map, kSources);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("tensor 't' (section model) cannot be made: "));
    return error.what();
  }
  return "";
}

TEST(TensorMap, WhatItsPiecesDoNotMakeIsRefusedByName) {
  const MapPiece a{0, {{0, 0}, {4, 6}}, {0, 0}, {0, 1}};
  const MapPiece b{1, {{0, 0}, {4, 2}}, {0, 6}, {0, 1}};
  EXPECT_EQ(problem_of({4, 8}, {a, b}), "");
  EXPECT_EQ(problem_of({6, 4}, {reversed(0, kSources.tensors[0].shape)}), "");
  EXPECT_EQ(problem_of({0, 6}, {}), "");
  EXPECT_THAT(problem_of({4, 9}, {a, b}), HasSubstr("[0:4, 8:9] has no source"));
  EXPECT_THAT(problem_of({4, 8}, {b}), HasSubstr("[0:4, 0:6] has no source"));
  EXPECT_THAT(problem_of({4, 7}, {a, b}), HasSubstr("[0:4, 6:8] is not inside it"));
  EXPECT_THAT(problem_of({4, 8}, {a, b, b}), HasSubstr("[0:4, 6:8] has two sources"));
  EXPECT_THAT(problem_of({4, 8}, {a, {1, {{0, 0}, {4, 2}}, {0, 5}, {0, 1}}}), HasSubstr("overlap"));
  EXPECT_THAT(problem_of({4, 6}, {{3, {{0, 0}, {4, 6}}, {0, 0}, {0, 1}}}), HasSubstr("its dtype is not that of 'd'"));
  EXPECT_THAT(problem_of({4, 6}, {{0, {{0, 1}, {4, 6}}, {0, 0}, {0, 1}}}), HasSubstr("[0:4, 1:7] is not inside 'a'"));
  EXPECT_THAT(problem_of({4, 6}, {{0, {{0, 0}, {4, 6}}, {0, 0}, {0, 0}}}), HasSubstr("order"));
  EXPECT_THAT(problem_of({4, 6}, {{0, {{0, 0}, {4, 6}}, {0, 0}, {0}}}), HasSubstr("order"));
  EXPECT_THAT(problem_of({4, 6}, {{4, {{0, 0}, {0, 6}}, {0, 0}, {0, 1}}}), HasSubstr("[0:4, 0:6] has no source"));
  EXPECT_EQ(problem_of({6, 0}, {reversed(4, kSources.tensors[4].shape)}), "");
  EXPECT_THAT(problem_of({4, 6}, {{9, {{0, 0}, {4, 6}}, {0, 0}, {0, 1}}}), HasSubstr("no source number 9"));
  EXPECT_THAT(problem_of({6, 4}, {reversed(2, kSources.tensors[2].shape)}, DType::kF4),
              AllOf(HasSubstr("elements of F4 share bytes"), HasSubstr("transposed"), HasSubstr("'c'")));
}

TEST(TensorMap, WholeSourcesMustBeAlike) {
  TensorMap map = as_they_are(kSources);
  EXPECT_NO_THROW(check_map(map, kSources));
  map.sources[0] = 1;
  EXPECT_THROW(check_map(map, kSources), Error);
}

TEST(TensorMap, SortingKeepsWhatBelongsTogether) {
  TensorMap map;
  map.catalog.tensors = {{"model", "z", DType::kF32, {6, 4}}, {"model", "y", DType::kF32, {4, 2}}};
  map.sources = {0, 1};
  map.pieces[0] = {reversed(0, kSources.tensors[0].shape)};
  const TensorMap sorted = in_catalog_order(map);
  EXPECT_EQ(sorted.catalog.tensors[1].name, "z");
  EXPECT_EQ(sorted.sources, (std::vector<std::uint32_t>{1, 0}));
  EXPECT_TRUE(sorted.pieces.contains(1));
  map.catalog.tensors[1].name = "z";
  EXPECT_THROW((void)in_catalog_order(map), Error);
}

DType dtype_of_whole_bytes(std::mt19937_64& random) {
  DType dtype = DType::kF4;
  while (bits_of(dtype) < 8) dtype = static_cast<DType>(uniform(random, 0, kDTypeCount - 1));
  return dtype;
}

/// Sources with only a few different dtypes, so that some can be joined.
Catalog random_sources(std::mt19937_64& random) {
  std::vector<DType> dtypes = {dtype_of_whole_bytes(random), dtype_of_whole_bytes(random), DType::kF6E2M3};
  Catalog sources;
  for (std::size_t i = 0; i < 8; ++i) {
    CatalogTensor tensor{"model", std::to_string(i), dtypes[uniform(random, 0, 2)], {}, {}};
    for (std::uint64_t d = uniform(random, 0, 4); d > 0; --d) {
      tensor.shape.push_back(uniform(random, uniform(random, 0, 9) == 0 ? 0 : 1, d < 3 ? 40 : 5));
    }
    if (tensor.dtype == DType::kF6E2M3) tensor.shape.push_back(8);
    sources.tensors.push_back(std::move(tensor));
  }
  return sources;
}

/// A box of a target in separate memory, sometimes with gaps.
struct Wanted {
  Wanted(std::mt19937_64& random, const CatalogTensor& target) {
    for (const std::uint64_t size : target.shape) {
      const std::uint64_t begin = uniform(random, 0, 2) == 0 ? uniform(random, 0, size - 1) : 0;
      memory.box.offset.push_back(begin);
      memory.box.shape.push_back(uniform(random, 0, 2) == 0 ? uniform(random, 1, size - begin) : size - begin);
    }
    if (uniform(random, 0, 1) == 0) {
      std::uint64_t stride = 1;
      memory.strides.resize(target.shape.size());
      for (std::size_t d = target.shape.size(); d-- > 0;) {
        memory.strides[d] = stride;
        stride *= memory.box.shape[d] + uniform(random, 0, 2);
      }
    }
    bytes.resize(span_elements(memory.box.shape, memory.strides).value() * bits_of(target.dtype) / 8);
    memory.bytes = bytes;
  }
  /// The elements without the gaps.
  [[nodiscard]] base::Bytes elements(DType dtype) const {
    base::Bytes out(shard::elements_of(memory.box) * bits_of(dtype) / 8);
    for_each_run(runs_of(dtype, {0, 0, memory.box}, memory, memory.box), [&](const Run& run) {
      std::memcpy(out.data() + run.file_offset, bytes.data() + run.memory_offset, run.length_bytes);
    });
    return out;
  }
  base::Bytes bytes;
  MemoryBox memory;
};

/// Copies like a reader: by runs, but through a buffer if the part is transposed.
void bring(DType dtype, const CatalogTensor& source, const base::Bytes& from, const MemoryBox& part) {
  if (!is_turned(part)) {
    const Runs runs = runs_of(dtype, {0, 0, shard::whole(source.shape)}, part, part.box);
    for_each_run(runs, [&](const Run& run) {
      std::memcpy(part.bytes.data() + run.memory_offset, from.data() + run.file_offset, run.length_bytes);
    });
    return;
  }
  const base::Bytes read = test::cut_out(from, source.shape, bits_of(dtype) / 8, {part.box});
  copy_turned(dtype, part.box, read, part);
}

TEST(TensorMap, AnyBoxOfAnyTargetIsMadeOfParts) {
  auto random = test::make_random(7);
  for (int round = 0; round < 150; ++round) {
    const Catalog sources = random_sources(random);
    std::vector<base::Bytes> bytes;
    for (const CatalogTensor& source : sources.tensors) {
      bytes.push_back(test::random_bytes(random, shard::elements_of(source.shape) * bits_of(source.dtype) / 8));
    }
    const TensorMap map = test::random_map(random, sources);
    ASSERT_NO_THROW(check_map(map, sources));
    for (const auto& [number, pieces] : map.pieces) {
      const CatalogTensor& target = map.catalog.tensors[number];
      const Wanted wanted(random, target);
      std::uint64_t elements = 0;
      for (const MapPiece& piece : pieces) {
        const auto part = part_of_source(piece, target.dtype, wanted.memory);
        if (!part) continue;
        bring(target.dtype, sources.tensors[piece.source], bytes[piece.source], *part);
        elements += shard::elements_of(part->box);
        MemoryBox planned = wanted.memory;
        planned.bytes = {};
        EXPECT_EQ(part_of_source(piece, target.dtype, planned)->box, part->box);
      }
      EXPECT_EQ(elements, shard::elements_of(wanted.memory.box));
      const base::Bytes whole = test::made_by(map, number, sources, bytes);
      ASSERT_EQ(wanted.elements(target.dtype),
                test::cut_out(whole, target.shape, bits_of(target.dtype) / 8, {wanted.memory.box}))
          << shard::to_string(wanted.memory.box) << " of " << name_of(target.dtype) << " "
          << shard::shape_text(target.shape);
    }
  }
}

}  // namespace
}  // namespace cairn::plan
