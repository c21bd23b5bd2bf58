#include "simulation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>

#include "layouts.hpp"
#include "plan/runs.hpp"
#include "plan/transfer.hpp"
#include "shard/box_math.hpp"

namespace cairn::plan_test {
namespace {

using plan::Claim;
using plan::ExtentMap;
using plan::MemoryPart;
using plan::Transfer;

bool is_packed(DType dtype) { return bits_of(dtype) < 8; }

/// The same shape or offset, counted in cells.
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

std::vector<std::vector<MemoryPart>> parts_to_save(const World& world, const Knobs& knobs) {
  std::vector<std::vector<Claim>> claims(world.catalog.tensors.size());
  for (std::size_t rank = 0; rank < world.held.size(); ++rank) {
    for (std::size_t local = 0; local < world.held[rank].size(); ++local) {
      const Held& held = world.held[rank][local];
      claims[held.tensor].push_back({static_cast<int>(rank), static_cast<std::uint32_t>(local), held.box});
    }
  }
  std::vector<std::vector<MemoryPart>> parts(world.held.size());
  for (std::uint32_t t = 0; t < claims.size(); ++t) {
    for (const auto& p : plan::provide(world.catalog.tensors[t], claims[t], knobs.share_bytes, t)) {
      const auto rank = static_cast<std::size_t>(p.rank);
      parts[rank].push_back({t, p.local, world.held[rank][p.local].box, p.part});
    }
  }
  return parts;
}

/// Every rank's transfers, sent as records, sorted into the lists of the extent owners.
std::vector<std::vector<Transfer>> exchange_records(const std::vector<std::vector<MemoryPart>>& parts,
                                                    const format::StoredCheckpoint& stored, const ExtentMap& extents) {
  std::vector<base::Bytes> mail(parts.size());
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    int last = -1;
    for (const Transfer& t : plan::transfers_of_memory(static_cast<int>(rank), parts[rank], stored, extents)) {
      EXPECT_GE(t.extent_rank, last) << "transfers are not ascending by extent rank";
      last = t.extent_rank;
      plan::append_record(mail[static_cast<std::size_t>(t.extent_rank)], t);
    }
  }
  std::vector<std::vector<Transfer>> out;
  for (const base::Bytes& bytes : mail) out.push_back(plan::parse_records(bytes));
  return out;
}

using VisitRun = std::function<void(const Transfer&, std::uint32_t file, const plan::Run&)>;

/// Carries out the plan: all windows of all extent owners.
void for_all_runs(const std::vector<std::vector<Transfer>>& by_owner, const format::StoredCheckpoint& stored,
                  const ExtentMap& extents, const Knobs& knobs, const VisitRun& visit) {
  for (std::size_t owner = 0; owner < by_owner.size(); ++owner) {
    const auto mine = extents.of(static_cast<int>(owner));
    const auto windows = plan::cut_windows(mine, knobs.window_bytes, knobs.grain_bytes);
    for (const Transfer& transfer : by_owner[owner]) {
      ASSERT_EQ(transfer.extent_rank, static_cast<int>(owner));
      const plan::RunSpace space = plan::run_space(transfer, stored);
      const std::uint32_t file = stored.tensors[transfer.tensor].boxes[transfer.stored].file;
      std::uint64_t moved = 0;
      for (const plan::Window& window : windows) {
        for (const plan::Extent& part : window.parts) {
          if (part.file != file) continue;
          plan::for_each_run(space, part.begin, part.end, [&](const plan::Run& run) {
            ASSERT_TRUE(run.file_offset >= part.begin && run.file_offset + run.length_bytes <= part.end);
            moved += run.length_bytes;
            visit(transfer, file, run);
          });
        }
      }
      EXPECT_GT(moved, 0U) << "a transfer without a byte";
    }
  }
}

/// Counters beside bytes: how often each was written.
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

/// What must be read so that every rank gets what it holds.
std::vector<plan::FileRange> wanted_ranges(const World& world, const format::StoredCheckpoint& stored) {
  std::vector<plan::FileRange> ranges;
  for (const auto& list : world.held) {
    for (const Held& held : list) {
      const auto& tensor = stored.tensors[held.tensor];
      for (const auto& box : tensor.boxes) {
        const auto region = shard::intersect(held.box, box.box);
        if (!region) continue;
        const auto span = plan::file_span({tensor.dtype, box.box, box.offset_bytes, held.box, *region});
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

void hold(World& world, std::uint32_t tensor, const std::vector<Claim>& claims) {
  for (const Claim& claim : claims) world.held[static_cast<std::size_t>(claim.rank)].push_back({tensor, claim.box});
}

void hold_at_random(Seeded& random, World& world, int ranks) {
  world.held.assign(static_cast<std::size_t>(ranks), {});
  for (std::uint32_t t = 0; t < world.catalog.tensors.size(); ++t) {
    const auto& tensor = world.catalog.tensors[t];
    auto claims = random_claims(random, in_cells(tensor.dtype, tensor.shape), ranks);
    for (Claim& claim : claims) {
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
  const ExtentMap extents(plan::whole_files(sizes), static_cast<int>(world.held.size()), knobs.grain_bytes);
  const auto by_owner = exchange_records(parts_to_save(world, knobs), layout.stored, extents);
  std::vector<std::vector<Bytes>> memory;
  for (const auto& list : world.held) {
    memory.emplace_back();
    for (const Held& held : list) memory.back().push_back(box_bytes(world, held.tensor, held.box));
  }
  std::vector<Bytes> files;
  for (const std::uint64_t size : sizes) files.emplace_back(size, std::byte{0});
  auto written = counters_like(files);
  for_all_runs(by_owner, layout.stored, extents, knobs,
               [&](const Transfer& t, std::uint32_t file, const plan::Run& run) {
                 const Bytes& from = memory[static_cast<std::size_t>(t.memory_rank)][t.local];
                 ASSERT_LE(run.memory_offset + run.length_bytes, from.size());
                 std::memcpy(files[file].data() + run.file_offset, from.data() + run.memory_offset, run.length_bytes);
                 for (std::uint64_t i = 0; i < run.length_bytes; ++i) ++written[file][run.file_offset + i];
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
  if (selective) ranges = plan::widen_to_grain(wanted_ranges(world, stored), sizes, knobs.grain_bytes);
  const ExtentMap extents(ranges, static_cast<int>(world.held.size()), knobs.grain_bytes);
  std::vector<std::vector<MemoryPart>> parts(world.held.size());
  std::vector<std::vector<Bytes>> memory(world.held.size());
  std::vector<std::vector<std::vector<std::uint8_t>>> arrived;
  for (std::size_t rank = 0; rank < world.held.size(); ++rank) {
    for (std::uint32_t local = 0; local < world.held[rank].size(); ++local) {
      const Held& held = world.held[rank][local];
      parts[rank].push_back({held.tensor, local, held.box, held.box});
      memory[rank].emplace_back(box_bytes(world, held.tensor, held.box).size(), std::byte{0});
    }
    arrived.push_back(counters_like(memory[rank]));
  }
  const auto by_owner = exchange_records(parts, stored, extents);
  for_all_runs(by_owner, stored, extents, knobs, [&](const Transfer& t, std::uint32_t file, const plan::Run& run) {
    const auto rank = static_cast<std::size_t>(t.memory_rank);
    ASSERT_LE(run.memory_offset + run.length_bytes, memory[rank][t.local].size());
    std::memcpy(memory[rank][t.local].data() + run.memory_offset, files[file].data() + run.file_offset,
                run.length_bytes);
    for (std::uint64_t i = 0; i < run.length_bytes; ++i) ++arrived[rank][t.local][run.memory_offset + i];
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
