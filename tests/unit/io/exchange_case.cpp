#include "exchange_case.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>

#include "device_memory_support.hpp"
#include "io/device_copies.hpp"
#include "io/exchange.hpp"
#include "plan/transfers.hpp"
#include "random.hpp"

namespace cairn::test {
namespace {

constexpr std::byte kUntouched{0xA5};

std::uint64_t product(std::span<const std::uint64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
}

std::uint64_t bytes_of(const Box& box, DType dtype) { return product(box.shape) * bits_of(dtype) / 8; }

/// Copies the elements of `region` from one row-major box to another, bit by bit.
void copy_elements(DType dtype, const Box& region, const Box& from_box, const std::byte* from, const Box& to_box,
                   std::byte* to) {
  const std::uint64_t bits = bits_of(dtype);
  const std::size_t rank = region.shape.size();
  std::vector<std::uint64_t> at = region.offset;
  const auto position = [&](const Box& box) {
    std::uint64_t flat = 0;
    for (std::size_t d = 0; d < rank; ++d) flat = flat * box.shape[d] + (at[d] - box.offset[d]);
    return flat * bits;
  };
  for (std::uint64_t left = product(region.shape); left > 0; --left) {
    const std::uint64_t source = position(from_box);
    const std::uint64_t target = position(to_box);
    for (std::uint64_t bit = 0; bit < bits; bit += bits % 8 == 0 ? 8 : 1) {
      if (bits % 8 == 0) {
        to[(target + bit) / 8] = from[(source + bit) / 8];
        continue;
      }
      const std::byte value = (from[(source + bit) / 8] >> ((source + bit) % 8)) & std::byte{1};
      std::byte& out = to[(target + bit) / 8];
      const auto shift = (target + bit) % 8;
      out = (out & ~(std::byte{1} << shift)) | (value << shift);
    }
    for (std::size_t d = rank; d-- > 0;) {
      if (++at[d] < region.offset[d] + region.shape[d]) break;
      at[d] = region.offset[d];
    }
  }
}

/// Cuts a box into random pieces. The last dimension of a packed type stays whole, so that cuts fall between bytes.
std::vector<Box> random_pieces(std::mt19937_64& random, const Box& whole, DType dtype, int cuts) {
  std::vector<Box> pieces{whole};
  for (int i = 0; i < cuts; ++i) {
    const Box chosen = pieces[uniform(random, 0, pieces.size() - 1)];
    if (chosen.shape.empty()) break;
    const std::size_t dims = chosen.shape.size() - (bits_of(dtype) % 8 == 0 ? 0 : 1);
    if (dims == 0) break;
    const std::size_t d = uniform(random, 0, dims - 1);
    if (chosen.shape[d] < 2) continue;
    Box& first = *std::find(pieces.begin(), pieces.end(), chosen);
    const std::uint64_t cut = uniform(random, 1, chosen.shape[d] - 1);
    first.shape[d] = cut;
    Box second = chosen;
    second.offset[d] += cut;
    second.shape[d] -= cut;
    pieces.push_back(second);
  }
  return pieces;
}

/// A random box inside `whole` that contains `inner`; for a packed type, the last dimension stays whole.
Box random_around(std::mt19937_64& random, const Box& whole, const Box& inner, DType dtype) {
  Box out = inner;
  const std::size_t dims = whole.shape.size();
  for (std::size_t d = 0; d < dims; ++d) {
    if (bits_of(dtype) % 8 != 0 && d + 1 == dims) {
      out.offset[d] = whole.offset[d];
      out.shape[d] = whole.shape[d];
      continue;
    }
    const std::uint64_t end = inner.offset[d] + inner.shape[d];
    out.offset[d] = uniform(random, 0, 2) == 0 ? inner.offset[d] : uniform(random, whole.offset[d], inner.offset[d]);
    const std::uint64_t new_end =
        uniform(random, 0, 2) == 0 ? end : uniform(random, end, whole.offset[d] + whole.shape[d]);
    out.shape[d] = new_end - out.offset[d];
  }
  return out;
}

std::vector<std::uint64_t> random_shape(std::mt19937_64& random, DType dtype, std::uint64_t bytes) {
  const std::uint64_t rank = uniform(random, bits_of(dtype) % 8 == 0 ? 0 : 2, 4);
  std::vector<std::uint64_t> shape(rank, 1);
  std::uint64_t elements = std::max<std::uint64_t>(1, bytes * 8 / bits_of(dtype));
  for (std::size_t d = 0; d < rank; ++d) {
    const bool last = d + 1 == rank;
    shape[d] = last ? std::max<std::uint64_t>(1, elements) : uniform(random, 1, std::min<std::uint64_t>(elements, 40));
    elements /= shape[d];
  }
  if (rank > 1) std::shuffle(shape.begin(), shape.end(), random);
  if (bits_of(dtype) % 8 != 0) shape.back() = (shape.back() + 7) / 8 * 8;
  return shape;
}

void add_tensors(std::mt19937_64& random, ExchangeCase& c) {
  const DType types[] = {DType::kBF16, DType::kF32, DType::kU8, DType::kF64, DType::kF4, DType::kF6E2M3, DType::kI64};
  const std::uint64_t tensors = uniform(random, 1, 8);
  const std::uint64_t files = uniform(random, 1, 4);
  std::vector<std::uint64_t> end(files);
  for (auto& header : end) header = uniform(random, 0, 50);
  for (std::uint64_t t = 0; t < tensors; ++t) {
    format::StoredTensor tensor;
    tensor.section = "model";
    tensor.name = "t" + std::to_string(t);
    tensor.dtype = types[uniform(random, 0, std::size(types) - 1)];
    tensor.shape = random_shape(random, tensor.dtype, uniform(random, 0, 3) == 0 ? 16 : c.shape.tensor_bytes);
    const Box whole{std::vector<std::uint64_t>(tensor.shape.size(), 0), tensor.shape};
    for (const Box& box : random_pieces(random, whole, tensor.dtype, static_cast<int>(uniform(random, 0, 3)))) {
      const auto file = static_cast<std::uint32_t>(uniform(random, 0, files - 1));
      tensor.boxes.push_back({file, end[file], box});
      end[file] += bytes_of(box, tensor.dtype) + (uniform(random, 0, 3) == 0 ? uniform(random, 1, 9) : 0);
    }
    c.stored.tensors.push_back(tensor);
  }
  for (std::uint64_t f = 0; f < files; ++f) {
    c.stored.files.push_back({"f" + std::to_string(f), end[f]});
    c.files.push_back(random_bytes(random, end[f]));
  }
}

void add_pieces(std::mt19937_64& random, ExchangeCase& c) {
  c.memory.resize(static_cast<std::size_t>(c.shape.ranks));
  c.pieces.resize(static_cast<std::size_t>(c.shape.ranks));
  const auto add = [&](std::uint64_t rank, std::uint32_t tensor, const Box& memory_box, const Box& piece) {
    auto& mine = c.memory[rank];
    c.pieces[rank].push_back({tensor, static_cast<std::uint32_t>(mine.size()), static_cast<int>(rank), piece});
    mine.push_back({tensor, memory_box, {}});
  };
  for (std::uint32_t t = 0; t < c.stored.tensors.size(); ++t) {
    const format::StoredTensor& tensor = c.stored.tensors[t];
    const Box whole{std::vector<std::uint64_t>(tensor.shape.size(), 0), tensor.shape};
    const auto last_rank = static_cast<std::uint64_t>(c.shape.ranks) - 1;
    for (const Box& piece : random_pieces(random, whole, tensor.dtype, 6)) {
      const std::uint64_t holders = c.shape.replicas ? uniform(random, 0, 3) : 1;
      for (std::uint64_t h = 0; h < holders; ++h) {
        add(uniform(random, 0, last_rank), t, random_around(random, whole, piece, tensor.dtype), piece);
      }
    }
  }
}

plan::ExtentMap extents_of(const ExchangeCase& c) {
  std::vector<std::uint64_t> sizes;
  for (const auto& file : c.stored.files) sizes.push_back(file.size_bytes);
  return {plan::whole_files(sizes), c.shape.aggregators, c.shape.block_bytes};
}

/// The expected memory of a rank: pieces hold the files' bytes, and the rest is untouched.
std::vector<base::Bytes> memory_of(const ExchangeCase& c, int rank) {
  std::vector<base::Bytes> memory;
  for (const plan::Piece& piece : c.pieces[static_cast<std::size_t>(rank)]) {
    const format::StoredTensor& tensor = c.stored.tensors[piece.tensor];
    const Box& memory_box = c.memory[static_cast<std::size_t>(rank)][piece.local].box;
    base::Bytes bytes(bytes_of(memory_box, tensor.dtype), kUntouched);
    for (const format::StoredBox& box : tensor.boxes) {
      Box common = piece.box;
      bool empty = false;
      for (std::size_t d = 0; d < common.shape.size(); ++d) {
        const std::uint64_t begin = std::max(box.box.offset[d], piece.box.offset[d]);
        const std::uint64_t end =
            std::min(box.box.offset[d] + box.box.shape[d], piece.box.offset[d] + piece.box.shape[d]);
        empty = empty || begin >= end;
        common.offset[d] = begin;
        common.shape[d] = begin < end ? end - begin : 0;
      }
      if (empty) continue;
      copy_elements(tensor.dtype, common, box.box, c.files[box.file].data() + box.offset_bytes, memory_box,
                    bytes.data());
    }
    memory.push_back(std::move(bytes));
  }
  return memory;
}

comm::SharedMemory::Reach reach_of(const ExchangeCase& c) {
  return c.shape.share_memory ? comm::SharedMemory::Reach::kNode : comm::SharedMemory::Reach::kOwn;
}

/// Device copies with the smallest slots; null for a rank without boxes on a device.
std::unique_ptr<io::DeviceCopies> device_copies(const ExchangeCase& c, int rank) {
  const auto& boxes = c.memory[static_cast<std::size_t>(rank)];
  if (std::none_of(boxes.begin(), boxes.end(), plan::is_on_device)) return nullptr;
  return std::make_unique<io::DeviceCopies>(io::DeviceCopies::kLeastBytes);
}

io::Exchange make_exchange(comm::Communicator& communicator, const ExchangeCase& c, const plan::ExtentMap& extents,
                           io::WindowPool& pool, io::DeviceCopies* device) {
  const auto rank = static_cast<std::size_t>(communicator.rank());
  return io::Exchange(communicator, c.stored.files, extents, c.shape.window_bytes, pool,
                      plan::transfers_of_memory(c.pieces[rank], c.memory[rank], c.stored, extents),
                      {c.shape.buffer_bytes, device});
}

/// A rank's memory boxes with these bytes, on the host or the device, as in the case.
class RankMemory {
 public:
  RankMemory(const ExchangeCase& c, int rank, std::vector<base::Bytes> bytes)
      : host_(std::move(bytes)), boxes_(c.memory[static_cast<std::size_t>(rank)]) {
    for (std::size_t l = 0; l < boxes_.size(); ++l) {
      boxes_[l].bytes = host_[l];
      if (boxes_[l].memory == Memory::kHost) continue;
      const DeviceBytes& device = device_.try_emplace(l, std::span<const std::byte>(host_[l])).first->second;
      boxes_[l].bytes = {device.data(), device.size()};
    }
  }

  [[nodiscard]] std::span<const plan::MemoryBox> boxes() const { return boxes_; }
  [[nodiscard]] std::vector<base::Bytes> bytes() const {
    std::vector<base::Bytes> all = host_;
    for (const auto& [l, device] : device_) {
      const std::vector<std::byte> found = device.bytes();
      all[l].assign(found.begin(), found.end());
    }
    return all;
  }

 private:
  std::vector<base::Bytes> host_;
  std::map<std::size_t, DeviceBytes> device_;
  std::vector<plan::MemoryBox> boxes_;
};

/// For each byte of the files, whether it belongs to a tensor.
std::vector<std::vector<bool>> covered_bytes(const ExchangeCase& c) {
  std::vector<std::vector<bool>> covered;
  for (const auto& file : c.stored.files) covered.emplace_back(file.size_bytes, false);
  for (const auto& tensor : c.stored.tensors) {
    for (const auto& box : tensor.boxes) {
      const auto begin = covered[box.file].begin() + static_cast<std::ptrdiff_t>(box.offset_bytes);
      std::fill(begin, begin + static_cast<std::ptrdiff_t>(bytes_of(box.box, tensor.dtype)), true);
    }
  }
  return covered;
}

}  // namespace

ExchangeCase make_exchange_case(std::mt19937_64& random, const ExchangeShape& shape) {
  ExchangeCase c;
  c.shape = shape;
  add_tensors(random, c);
  add_pieces(random, c);
  for (std::size_t rank = 0; shape.on_device && rank < c.memory.size(); ++rank) {
    for (std::size_t l = 0; l < c.memory[rank].size(); ++l) {
      if ((rank + l) % 3 != 0) c.memory[rank][l].memory = Memory::kDevice;
    }
  }
  return c;
}

std::uint64_t check_gather(comm::Communicator& communicator, const ExchangeCase& c) {
  const plan::ExtentMap extents = extents_of(c);
  io::WindowPool pool(communicator, c.shape.window_bytes, reach_of(c));
  const auto device = device_copies(c, communicator.rank());
  io::Exchange exchange = make_exchange(communicator, c, extents, pool, device.get());
  const RankMemory memory(c, communicator.rank(), memory_of(c, communicator.rank()));
  const auto covered = covered_bytes(c);
  std::uint64_t compared = 0;
  std::uint64_t wrong = 0;
  for (std::uint64_t round = 0; round < exchange.rounds(); ++round) {
    const io::WindowBuffer window = exchange.window(round);
    std::fill(window.buffer.begin(), window.buffer.end(), kUntouched);
    const std::uint64_t arrived = exchange.gather(round, memory.boxes());
    std::uint64_t expected = 0;
    for (std::size_t p = 0; window.window != nullptr && p < window.window->parts.size(); ++p) {
      const plan::Extent& part = window.window->parts[p];
      const std::byte* buffer = window.buffer.data() + window.window->offsets[p];
      for (std::uint64_t i = part.begin, at = 0; i < part.end; ++i, ++at, ++compared) {
        const bool has_tensor = covered[part.file][i];
        expected += has_tensor ? 1 : 0;
        wrong += buffer[at] != (has_tensor ? c.files[part.file][i] : kUntouched) ? 1 : 0;
      }
    }
    EXPECT_EQ(arrived, expected) << "rank " << communicator.rank() << " round " << round;
  }
  EXPECT_EQ(wrong, 0U) << "wrong bytes in the windows of rank " << communicator.rank();
  EXPECT_TRUE(memory.bytes() == memory_of(c, communicator.rank())) << "a gather changed memory";
  return compared;
}

std::uint64_t check_scatter(comm::Communicator& communicator, const ExchangeCase& c) {
  const plan::ExtentMap extents = extents_of(c);
  io::WindowPool pool(communicator, c.shape.window_bytes, reach_of(c));
  const auto device = device_copies(c, communicator.rank());
  io::Exchange exchange = make_exchange(communicator, c, extents, pool, device.get());
  const std::vector<base::Bytes> expected = memory_of(c, communicator.rank());
  std::vector<base::Bytes> untouched;
  for (const base::Bytes& box : expected) untouched.emplace_back(box.size(), kUntouched);
  const RankMemory memory(c, communicator.rank(), std::move(untouched));
  std::uint64_t arrived = 0;
  for (std::uint64_t round = 0; round < exchange.rounds(); ++round) {
    const io::WindowBuffer window = exchange.window(round);
    for (std::size_t p = 0; window.window != nullptr && p < window.window->parts.size(); ++p) {
      const plan::Extent& part = window.window->parts[p];
      std::copy_n(c.files[part.file].begin() + static_cast<std::ptrdiff_t>(part.begin), part.end - part.begin,
                  window.buffer.begin() + static_cast<std::ptrdiff_t>(window.window->offsets[p]));
    }
    arrived += exchange.scatter(round, memory.boxes());
  }
  std::uint64_t wanted = 0;
  for (const plan::Piece& piece : c.pieces[static_cast<std::size_t>(communicator.rank())]) {
    wanted += bytes_of(piece.box, c.stored.tensors[piece.tensor].dtype);
  }
  EXPECT_EQ(arrived, wanted) << "rank " << communicator.rank();
  std::uint64_t compared = 0;
  const std::vector<base::Bytes> found = memory.bytes();
  for (std::size_t l = 0; l < found.size(); ++l) {
    EXPECT_TRUE(found[l] == expected[l]) << "memory box " << l << " of rank " << communicator.rank();
    compared += found[l].size();
  }
  return compared;
}

namespace {

std::uint64_t check_both(comm::Communicator& communicator, std::mt19937_64& random, ExchangeShape shape) {
  std::uint64_t compared = check_gather(communicator, make_exchange_case(random, shape));
  shape.replicas = true;
  compared += check_scatter(communicator, make_exchange_case(random, shape));
  return compared;
}

}  // namespace

std::uint64_t check_short_runs(comm::Communicator& communicator, ExchangeShape shape, std::uint64_t seed, int repeats) {
  auto random = make_random(seed);
  std::uint64_t compared = 0;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    shape.share_memory = repeat % 2 == 0;
    shape.block_bytes = uniform(random, 1, 300);
    shape.window_bytes = shape.block_bytes * uniform(random, 1, 20);
    shape.buffer_bytes = uniform(random, 0, 1) == 0 ? 0 : 64ULL << 20;
    compared += check_both(communicator, random, shape);
  }
  return compared;
}

std::uint64_t check_long_runs(comm::Communicator& communicator, ExchangeShape shape, std::uint64_t seed) {
  auto random = make_random(seed);
  std::uint64_t compared = 0;
  for (int repeat = 0; repeat < 4; ++repeat) {
    shape.share_memory = repeat == 3;
    shape.block_bytes = 4096;
    shape.window_bytes = 1ULL << 20;
    shape.buffer_bytes = repeat == 0 ? 0 : 4ULL << 20;
    shape.tensor_bytes = 2ULL << 20;
    compared += check_both(communicator, random, shape);
  }
  return compared;
}

}  // namespace cairn::test
