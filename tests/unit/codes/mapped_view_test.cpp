// Reading through a map: boxes of targets that are split, joined and transposed have exactly the bits that the map
// makes from the whole tensors, for every dtype of whole bytes, stored or decoded.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "checkpoint/load.hpp"
#include "coded_state.hpp"
#include "codes/decoder.hpp"
#include "cut_out.hpp"
#include "plan/strides.hpp"
#include "random_map.hpp"
#include "simulated.hpp"
#include "temp_dir.hpp"

namespace cairn::test {
namespace {

using codes::View;
using opening::OpenCheckpoint;
using plan::MemoryBox;

/// Like write_state(), but adds tensors of every dtype.
Truth write_all_dtypes(const std::filesystem::path& directory) {
  Truth truth = write_state(directory, quant::Division::kTrue);
  auto random = make_random(4);
  FileTensors more;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    for (const std::vector<std::uint64_t>& shape : std::vector<std::vector<std::uint64_t>>{
             {41, 24}, {24, 56}, {3, 5, 8}, {8, 7, 8}, {16}, {0, 8}, {2, 3, 1, 4}}) {
      FileTensor tensor{dtype, shape, random_bytes(random, shard::elements_of(shape) * bits_of(dtype) / 8)};
      const std::string name = std::to_string(more.size()) + "." + std::string(name_of(dtype));
      truth[{"adapter", name}] = tensor.bytes;
      more[name] = std::move(tensor);
    }
  }
  write_safetensors(directory / "adapter_model.safetensors", more, {});
  return truth;
}

plan::Catalog catalog_of(const View& view) {
  plan::Catalog catalog;
  for (const codes::ViewTensor& tensor : view.tensors) {
    catalog.tensors.push_back({std::string(tensor.section),
                               std::string(tensor.name),
                               tensor.dtype,
                               {tensor.shape.begin(), tensor.shape.end()},
                               {}});
  }
  return catalog;
}

/// A box of a target in separate memory: sometimes with gaps, at an odd address, or in a different dtype.
struct Wish {
  Wish(View& view, std::uint32_t of, std::mt19937_64& random) : number(of) {
    const codes::ViewTensor& tensor = view.at(of);
    dtype = tensor.dtype;
    memory.tensor = of;
    std::uint64_t stride = 1;
    for (const std::uint64_t size : tensor.shape) {
      const std::uint64_t begin = uniform(random, 0, 1) == 0 ? 0 : uniform(random, 0, size);
      memory.box.offset.push_back(begin);
      memory.box.shape.push_back(uniform(random, 0, 1) == 0 ? size - begin : uniform(random, 0, size - begin));
    }
    if (bits_of(dtype) >= 8 && uniform(random, 0, 2) == 0) {
      memory.strides.resize(memory.box.shape.size());
      for (std::size_t d = memory.box.shape.size(); d-- > 0;) {
        memory.strides[d] = stride;
        stride *= memory.box.shape[d] + uniform(random, 0, 2);
      }
    } else if (bits_of(dtype) < 8) {
      memory.box = shard::whole(tensor.shape);
    }
    if (dtype == DType::kF32 && uniform(random, 0, 4) == 0) {
      dtype = DType::kBF16;
      view.casts.push_back(tensor);
      view.casts.back().dtype = dtype;
      if (view.casts.back().origin == codes::Origin::kStored) view.casts.back().origin = codes::Origin::kCast;
      memory.tensor = static_cast<std::uint32_t>(view.tensors.size() + view.parts.size() + view.casts.size() - 1);
    }
    const std::uint64_t bytes = plan::span_elements(memory.box.shape, memory.strides).value() * bits_of(dtype) / 8;
    const std::uint64_t shift = uniform(random, 0, 2) == 0 ? uniform(random, 1, 3) : 0;
    place.resize(bytes + shift);
    memory.bytes = std::span(place).subspan(shift);
  }

  /// The elements without the gaps.
  [[nodiscard]] base::Bytes elements() const {
    base::Bytes out(shard::elements_of(memory.box) * bits_of(dtype) / 8);
    plan::for_each_run(plan::runs_of(dtype, {0, 0, memory.box}, memory, memory.box), [&](const plan::Run& run) {
      std::memcpy(out.data() + run.file_offset, memory.bytes.data() + run.memory_offset, run.length_bytes);
    });
    return out;
  }

  std::uint32_t number;
  DType dtype;
  base::Bytes place;
  MemoryBox memory;
};

struct Mapped {
  Mapped(const OpenCheckpoint& opened, const Truth& truth, std::mt19937_64& random)
      : view(codes::decoded_view(opened, {false, true})), sources(catalog_of(view)), map(random_map(random, sources)) {
    for (const plan::CatalogTensor& source : sources.tensors) bytes.push_back(truth.at({source.section, source.name}));
    plan::check_map(map, sources);
    view = codes::mapped_view(view, map);
  }
  [[nodiscard]] base::Bytes expected(const Wish& wish) const {
    const plan::CatalogTensor& target = map.catalog.tensors[wish.number];
    base::Bytes whole = made_by(map, wish.number, sources, bytes);
    if (wish.dtype != target.dtype) {
      base::Bytes cast(whole.size() / 2);
      quant::cast_values(target.dtype, whole, wish.dtype, cast);
      whole = std::move(cast);
    }
    if (bits_of(target.dtype) < 8) return whole;
    return cut_out(whole, target.shape, bits_of(wish.dtype) / 8, {wish.memory.box});
  }
  View view;
  plan::Catalog sources;
  plan::TensorMap map;
  std::vector<base::Bytes> bytes;  ///< bytes of each source
};

class AnyMap : public testing::TestWithParam<std::tuple<int, std::uint64_t>> {};

TEST_P(AnyMap, GivesTheBoxesThatItMakesOfWholeTensors) {
  const auto [ranks, budget_bytes] = GetParam();
  const TempDir directory;
  const Truth truth = write_all_dtypes(directory.path());
  comm::run_simulated(ranks, [&, budget_bytes = budget_bytes](comm::Communicator& communicator) {
    const OpenCheckpoint opened = opening::open_checkpoint(communicator, directory.path());
    auto random = make_random(20 + static_cast<std::uint64_t>(communicator.rank()));
    for (int round = 0; round < 3; ++round) {
      Mapped mapped(opened, truth, random);
      std::vector<Wish> wishes;
      for (std::uint64_t n = uniform(random, 0, 80); n > 0; --n) {
        const auto number = static_cast<std::uint32_t>(uniform(random, 0, mapped.view.tensors.size() - 1));
        wishes.emplace_back(mapped.view, number, random);
      }
      std::vector<MemoryBox> wanted;
      for (const Wish& wish : wishes) wanted.push_back(wish.memory);
      checkpoint::ReadOptions options;
      options.engine = "posix";
      options.memory_budget_bytes = 32 << 20;
      options.decoding_bytes = budget_bytes;
      checkpoint::Loader(communicator, opened, &mapped.view, options).load(wanted);
      for (const Wish& wish : wishes) {
        EXPECT_EQ(wish.elements(), mapped.expected(wish))
            << mapped.view.at(wish.number).name << " " << shard::to_string(wish.memory.box) << " of "
            << shard::shape_text(mapped.view.at(wish.number).shape);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(RanksAndMemory, AnyMap,
                         testing::Combine(testing::Values(1, 3), testing::Values(6000, 200'000, 16 << 20)));

TEST(MappedView, NamesAloneCostNothing) {
  const TempDir directory;
  write_safetensors(directory / "model.safetensors",
                    {{"a", counted(DType::kF32, {4, 6})}, {"b", counted(DType::kI8, {3})}}, {});
  const OpenCheckpoint opened = opening::open_here(directory.path());
  const View view = codes::decoded_view(opened, {});
  plan::TensorMap map = plan::as_they_are(catalog_of(view));
  map.catalog.tensors[1].name = "c";
  const View renamed = codes::mapped_view(view, map);
  EXPECT_TRUE(renamed.as_stored);
  EXPECT_EQ(renamed.at(1).name, "c");
  map.pieces[0] = {plan::reversed(0, map.catalog.tensors[0].shape)};
  map.catalog.tensors[0].shape = {6, 4};
  const View turned = codes::mapped_view(view, map);
  EXPECT_FALSE(turned.as_stored);
  EXPECT_EQ(turned.at(0).origin, codes::Origin::kMapped);
  EXPECT_EQ(turned.at(1).origin, codes::Origin::kStored);
}

}  // namespace
}  // namespace cairn::test
