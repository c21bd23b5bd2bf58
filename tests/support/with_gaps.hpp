// A shard's boxes in memory with random gaps between and inside them, and the same bytes end to end, copied element by
// element without any code of Cairn.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "random.hpp"

namespace cairn::test {

class WithGaps {
 public:
  WithGaps(const Shard& shard, std::mt19937_64& random) : placements_(shard.boxes.size()) {
    const unsigned bits = bits_of(shard.dtype);
    std::vector<std::vector<std::size_t>> places(shard.boxes.size());  // positions of the bytes of each box
    std::vector<std::size_t> order(shard.boxes.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    std::uint64_t end = 0;  // in elements
    for (const std::size_t i : order) {
      const std::vector<std::uint64_t>& shape = shard.boxes[i].shape;
      Placement& placement = placements_[i];
      placement.offset = end + 8 * uniform(random, 0, 2);
      if (bits >= 8) placement.offset += uniform(random, 0, 5);
      if (bits >= 8 && uniform(random, 0, 3) != 0) placement.strides = random_strides(shape, random);
      std::uint64_t elements = 1;
      for (const std::uint64_t n : shape) elements *= n;
      const std::uint64_t step = bits >= 8 ? 1 : 8;  // elements that fill whole bytes, whatever the dtype
      for (std::uint64_t element = 0; element < elements; element += step) {
        const std::uint64_t at =
            placement.offset + (placement.strides.empty() ? element : element_place(shape, placement.strides, element));
        for (std::size_t b = 0; b < bits * std::min(step, elements - element) / 8; ++b) {
          places[i].push_back(at * bits / 8 + b);
        }
        end = std::max(end, at + step);
      }
    }
    for (const auto& of_box : places) places_.insert(places_.end(), of_box.begin(), of_box.end());
    const auto last = std::max_element(places_.begin(), places_.end());
    memory_.assign(last == places_.end() ? 0 : *last + 1, kUntouched);
  }

  [[nodiscard]] const std::vector<Placement>& placements() const { return placements_; }
  /// The memory ends with the last element, so that sanitizers detect accesses past it.
  std::vector<std::byte>& memory() { return memory_; }

  /// put() copies contiguous bytes to their positions in the memory; bytes() copies them back.
  void put(std::span<const std::byte> bytes) {
    for (std::size_t i = 0; i < places_.size(); ++i) memory_[places_[i]] = bytes[i];
  }
  [[nodiscard]] std::vector<std::byte> bytes() const {
    std::vector<std::byte> out(places_.size());
    for (std::size_t i = 0; i < places_.size(); ++i) out[i] = memory_[places_[i]];
    return out;
  }
  /// Number of bytes that do not belong to an element.
  [[nodiscard]] std::size_t gap_bytes() const { return memory_.size() - places_.size(); }
  /// Number of gap bytes that are unchanged.
  [[nodiscard]] std::size_t untouched_gap_bytes() const {
    std::vector<std::byte> gaps = memory_;
    for (const std::size_t place : places_) gaps[place] = ~kUntouched;
    return static_cast<std::size_t>(std::count(gaps.begin(), gaps.end(), kUntouched));
  }

 private:
  static constexpr std::byte kUntouched{0xa5};

  static std::vector<std::uint64_t> random_strides(const std::vector<std::uint64_t>& shape, std::mt19937_64& random) {
    std::vector<std::uint64_t> strides(shape.size());
    std::uint64_t span = 1;
    for (std::size_t d = shape.size(); d-- > 0;) {
      strides[d] = shape[d] == 1 ? uniform(random, 0, 99) : span == 1 ? 1 : span + uniform(random, 0, 3);
      if (shape[d] > 1) span += (shape[d] - 1) * strides[d];
    }
    return strides;
  }

  static std::uint64_t element_place(const std::vector<std::uint64_t>& shape, const std::vector<std::uint64_t>& strides,
                                     std::uint64_t element) {
    std::uint64_t at = 0;
    for (std::size_t d = shape.size(); d-- > 0;) {
      at += element % shape[d] * strides[d];
      element /= shape[d];
    }
    return at;
  }

  std::vector<Placement> placements_;
  std::vector<std::size_t> places_;  // position of each byte
  std::vector<std::byte> memory_;
};

/// Sources or targets, moved from contiguous memory to memory with gaps.
template <class Entry>
class Gapped {
 public:
  Gapped(std::vector<Entry> entries, int rank) : dense_(std::move(entries)), entries_(dense_) {
    std::mt19937_64 random = make_random(static_cast<std::uint64_t>(rank));
    for (Entry& entry : entries_) {
      WithGaps& memory = memory_.emplace_back(entry, random);
      entry.placements = memory.placements();
      entry.data = memory.memory().data();
    }
    if constexpr (std::is_same_v<Entry, Source>) {
      for (std::size_t i = 0; i < entries_.size(); ++i) {
        memory_[i].put({static_cast<const std::byte*>(dense_[i].data), memory_[i].bytes().size()});
      }
    }
  }

  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }

  /// Copies the loaded bytes to the dense targets. Expects that no gap was written.
  void finish_load() const {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const std::vector<std::byte> bytes = memory_[i].bytes();
      if (!bytes.empty()) std::memcpy(dense_[i].data, bytes.data(), bytes.size());
      EXPECT_EQ(memory_[i].untouched_gap_bytes(), memory_[i].gap_bytes()) << entries_[i].name;
    }
  }
  [[nodiscard]] std::size_t gap_bytes() const {
    std::size_t sum = 0;
    for (const WithGaps& memory : memory_) sum += memory.gap_bytes();
    return sum;
  }

 private:
  std::vector<Entry> dense_;
  std::vector<Entry> entries_;
  std::deque<WithGaps> memory_;
};

}  // namespace cairn::test
