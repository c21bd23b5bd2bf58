#include "simulation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>

#include "layouts.hpp"
#include "plan/runs.hpp"
#include "plan/transfers.hpp"
#include "shard/box_math.hpp"

namespace cairn::plan_test {
namespace {

using plan::ExtentMap;
using plan::MemoryBox;
using plan::Piece;
using plan::Runs;

bool is_packed(DType dtype) { return bits_of(dtype) < 8; }

/// A shape or an offset, counted in cells instead of elements.
std::vector<std::uint64_t> in_cells(DType dtype, std::vector<std::uint64_t> values) {
  if (is_packed(dtype)) values.back() /= 4;
  return values;
}

std::uint64_t cell_bytes(DType dtype) { return is_packed(dtype) ? bits_of(dtype) / 2 : bits_of(dtype) / 8; }

Bytes random_truth(Seeded& random, const plan::CatalogTensor& tensor) {
  const auto cells = shard::elements_of(in_cells(tensor.dtype, tensor.shape));
  return test::random_bytes(random.engine(), cells * cell_bytes(tensor.dtype));
}

std::vector<std::uint64_t> sizes_of(const format::StoredCheckpoint& stored) {
  std::vector<std::uint64_t> sizes;
  for (const auto& file : stored.files) sizes.push_back(file.size_bytes);
  return sizes;
}

/// Each rank's memory boxes.
std::vector<std::vector<MemoryBox>> memory_boxes(const World& world) {
  std::vector<std::vector<MemoryBox>> boxes;
  for (const auto& list : world.held) {
    boxes.emplace_back();
    for (const Held& held : list) boxes.back().push_back({held.tensor, held.box, {}});
  }
  return boxes;
}

std::vector<std::vector<Piece>> pieces_to_save(const World& world, const Knobs& knobs) {
  std::vector<std::vector<Piece>> claims(world.catalog.tensors.size());
  for (Piece& piece : held_pieces(world)) claims[piece.tensor].push_back(std::move(piece));
  std::vector<std::vector<Piece>> pieces(world.held.size());
  for (std::uint32_t t = 0; t < claims.size(); ++t) {
    for (Piece& piece : plan::provide(world.catalog.tensors[t], claims[t], knobs.share_bytes, t)) {
      pieces[static_cast<std::size_t>(piece.rank)].push_back(std::move(piece));
    }
  }
  return pieces;
}

/// Every rank's transfers, sent to the aggregators.
std::vector<std::vector<Runs>> exchange_transfers(const World& world, const std::vector<std::vector<Piece>>& pieces,
                                                  const format::StoredCheckpoint& stored, const ExtentMap& extents) {
  const auto memory = memory_boxes(world);
  std::vector<base::Bytes> messages(pieces.size());
  for (std::size_t rank = 0; rank < pieces.size(); ++rank) {
    int last = -1;
    for (const Runs& runs : plan::transfers_of_memory(pieces[rank], memory[rank], stored, extents)) {
      EXPECT_GE(runs.file_rank, last) << "transfers are not ascending by file rank";
      last = runs.file_rank;
      plan::append_runs(messages[static_cast<std::size_t>(runs.file_rank)], runs);
    }
  }
  std::vector<std::vector<Runs>> out;
  for (std::size_t rank = 0; rank < messages.size(); ++rank) {
    out.push_back(plan::parse_runs(messages[rank], static_cast<int>(rank)));
  }
  return out;
}

using VisitRun = std::function<void(const Runs&, const plan::Run&)>;

/// Carries out the plan: visits the runs in all windows of all aggregators.
void for_all_runs(const std::vector<std::vector<Runs>>& by_aggregator, const ExtentMap& extents, const Knobs& knobs,
                  const VisitRun& visit) {
  for (std::size_t aggregator = 0; aggregator < by_aggregator.size(); ++aggregator) {
    const auto mine = extents.of(static_cast<int>(aggregator));
    const auto windows = plan::cut_windows(mine, knobs.window_bytes, knobs.block_bytes);
    for (const Runs& runs : by_aggregator[aggregator]) {
      std::uint64_t moved = 0;
      for (const plan::Window& window : windows) {
        for (const plan::Extent& part : window.parts) {
          if (part.file != runs.file) continue;
          plan::for_each_run(runs, part.begin, part.end, [&](const plan::Run& run) {
            ASSERT_TRUE(run.file_offset >= part.begin && run.file_offset + run.length_bytes <= part.end);
            moved += run.length_bytes;
            visit(runs, run);
          });
        }
      }
      EXPECT_GT(moved, 0U) << "a transfer without a byte";
    }
  }
}

/// Counters of the writes to each byte, all 0.
std::vector<std::vector<std::uint8_t>> counters_like(const std::vector<Bytes>& files) {
  std::vector<std::vector<std::uint8_t>> out;
  for (const Bytes& file : files) out.emplace_back(file.size(), std::uint8_t{0});
  return out;
}

std::uint64_t count_equal(const std::vector<std::uint8_t>& counts, std::size_t begin, std::size_t end,
                          std::uint8_t value) {
  return static_cast<std::uint64_t>(std::count(counts.begin() + static_cast<std::ptrdiff_t>(begin),
                                               counts.begin() + static_cast<std::ptrdiff_t>(end), value));
}

/// The file ranges that some rank needs.
std::vector<plan::FileRange> wanted_ranges(const World& world, const format::StoredCheckpoint& stored) {
  std::vector<plan::FileRange> ranges;
  for (const auto& list : world.held) {
    for (const Held& held : list) {
      const auto& tensor = stored.tensors[held.tensor];
      for (const auto& box : tensor.boxes) {
        const auto region = shard::intersect(held.box, box.box);
        if (!region) continue;
        const auto span = plan::file_span(tensor.dtype, box, *region);
        ranges.push_back({box.file, span.begin, span.end});
      }
    }
  }
  return ranges;
}

}  // namespace

World random_world(Seeded& random) {
  static constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kU8, DType::kF4, DType::kF6E3M2, DType::kI64};
  static const std::string kSections[] = {"model", "model", "optimizer", "ema"};
  std::vector<plan::CatalogTensor> tensors;
  for (std::uint64_t i = random.between(1, 8); i > 0; --i) {
    plan::CatalogTensor tensor{kSections[random.between(0, 3)], "t." + std::to_string(i), kTypes[random.between(0, 5)],
                               random_shape(random, 4, 8)};
    if (is_packed(tensor.dtype)) {
      if (tensor.shape.empty()) tensor.shape.push_back(1);
      tensor.shape.back() *= 4;
    }
    tensors.push_back(std::move(tensor));
  }
  World world;
  world.catalog = plan::make_catalog(std::move(tensors));
  for (const auto& tensor : world.catalog.tensors) world.truth.push_back(random_truth(random, tensor));
  return world;
}

std::vector<Piece> held_pieces(const World& world) {
  std::vector<Piece> pieces;
  for (std::size_t rank = 0; rank < world.held.size(); ++rank) {
    for (std::uint32_t local = 0; local < world.held[rank].size(); ++local) {
      const Held& held = world.held[rank][local];
      pieces.push_back({held.tensor, local, static_cast<int>(rank), held.box});
    }
  }
  return pieces;
}

void hold(World& world, std::uint32_t tensor, const std::vector<Piece>& claims) {
  for (const Piece& claim : claims) world.held[static_cast<std::size_t>(claim.rank)].push_back({tensor, claim.box});
}

void hold_at_random(Seeded& random, World& world, int ranks) {
  world.held.assign(static_cast<std::size_t>(ranks), {});
  for (std::uint32_t t = 0; t < world.catalog.tensors.size(); ++t) {
    const auto& tensor = world.catalog.tensors[t];
    auto claims = random_claims(random, in_cells(tensor.dtype, tensor.shape), ranks);
    for (Piece& claim : claims) {
      if (!is_packed(tensor.dtype)) continue;
      claim.box.offset.back() *= 4;
      claim.box.shape.back() *= 4;
    }
    hold(world, t, claims);
  }
}

Bytes box_bytes(const World& world, std::uint32_t tensor, const Box& box) {
  const auto& described = world.catalog.tensors[tensor];
  const std::uint64_t width = cell_bytes(described.dtype);
  const auto shape = in_cells(described.dtype, described.shape);
  const auto offset = in_cells(described.dtype, box.offset);
  const auto counts = in_cells(described.dtype, box.shape);
  const std::uint64_t cells = shard::elements_of(counts);
  Bytes out(cells * width);
  for (std::uint64_t i = 0; i < cells; ++i) {
    std::uint64_t rest = i;
    std::uint64_t flat = 0;
    std::uint64_t stride = 1;
    for (std::size_t d = counts.size(); d-- > 0;) {
      flat += (offset[d] + rest % counts[d]) * stride;
      rest /= counts[d];
      stride *= shape[d];
    }
    std::memcpy(out.data() + i * width, world.truth[tensor].data() + flat * width, width);
  }
  return out;
}

std::vector<Bytes> simulate_save(const World& world, const plan::FileLayout& layout, const Knobs& knobs) {
  const auto sizes = sizes_of(layout.stored);
  const ExtentMap extents(plan::whole_files(sizes), static_cast<int>(world.held.size()), knobs.block_bytes);
  const auto by_aggregator = exchange_transfers(world, pieces_to_save(world, knobs), layout.stored, extents);
  std::vector<std::vector<Bytes>> memory;
  for (const auto& list : world.held) {
    memory.emplace_back();
    for (const Held& held : list) memory.back().push_back(box_bytes(world, held.tensor, held.box));
  }
  std::vector<Bytes> files;
  for (const std::uint64_t size : sizes) files.emplace_back(size, std::byte{0});
  auto written = counters_like(files);
  for_all_runs(by_aggregator, extents, knobs, [&](const Runs& runs, const plan::Run& run) {
    const Bytes& from = memory[static_cast<std::size_t>(runs.memory_rank)][runs.local];
    ASSERT_LE(run.memory_offset + run.length_bytes, from.size());
    std::memcpy(files[runs.file].data() + run.file_offset, from.data() + run.memory_offset, run.length_bytes);
    for (std::uint64_t i = 0; i < run.length_bytes; ++i) ++written[runs.file][run.file_offset + i];
  });
  for (std::size_t f = 0; f < files.size(); ++f) {
    const std::size_t data = layout.files[f].header.size();
    EXPECT_EQ(count_equal(written[f], 0, data, 0), data) << "a rank's memory went into the header of file " << f;
    EXPECT_EQ(count_equal(written[f], data, files[f].size(), 1), files[f].size() - data) << "file " << f;
    std::memcpy(files[f].data(), layout.files[f].header.data(), data);
  }
  return files;
}

std::uint64_t simulate_load(const World& world, const format::StoredCheckpoint& stored, const std::vector<Bytes>& files,
                            const Knobs& knobs, bool selective) {
  const auto sizes = sizes_of(stored);
  auto ranges = plan::whole_files(sizes);
  if (selective) ranges = plan::widen_to_blocks(wanted_ranges(world, stored), sizes, knobs.block_bytes);
  const ExtentMap extents(ranges, static_cast<int>(world.held.size()), knobs.block_bytes);
  std::vector<std::vector<Piece>> pieces(world.held.size());
  for (Piece& piece : held_pieces(world)) pieces[static_cast<std::size_t>(piece.rank)].push_back(std::move(piece));
  std::vector<std::vector<Bytes>> memory(world.held.size());
  std::vector<std::vector<std::vector<std::uint8_t>>> arrived;
  for (std::size_t rank = 0; rank < world.held.size(); ++rank) {
    for (std::uint32_t local = 0; local < world.held[rank].size(); ++local) {
      const Held& held = world.held[rank][local];
      memory[rank].emplace_back(box_bytes(world, held.tensor, held.box).size(), std::byte{0});
    }
    arrived.push_back(counters_like(memory[rank]));
  }
  const auto by_aggregator = exchange_transfers(world, pieces, stored, extents);
  for_all_runs(by_aggregator, extents, knobs, [&](const Runs& runs, const plan::Run& run) {
    const auto rank = static_cast<std::size_t>(runs.memory_rank);
    ASSERT_LE(run.memory_offset + run.length_bytes, memory[rank][runs.local].size());
    std::memcpy(memory[rank][runs.local].data() + run.memory_offset, files[runs.file].data() + run.file_offset,
                run.length_bytes);
    for (std::uint64_t i = 0; i < run.length_bytes; ++i) ++arrived[rank][runs.local][run.memory_offset + i];
  });
  std::uint64_t checked = 0;
  for (std::size_t rank = 0; rank < memory.size(); ++rank) {
    for (std::size_t local = 0; local < memory[rank].size(); ++local) {
      const Held& held = world.held[rank][local];
      const std::size_t size = memory[rank][local].size();
      EXPECT_EQ(count_equal(arrived[rank][local], 0, size, 1), size) << "rank " << rank << " box " << local;
      EXPECT_EQ(memory[rank][local], box_bytes(world, held.tensor, held.box)) << "rank " << rank << " box " << local;
      checked += size;
    }
  }
  return checked;
}

}  // namespace cairn::plan_test
