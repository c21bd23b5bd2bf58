// Values that are NaN or infinite in what a save writes, counted tensor by tensor where checksums are made.
//
// Bytes come in any order, from windows, runs that bypass them, and on all ranks; a value may even be cut between two
// of them (blocks whose size is no multiple of 8 bytes). What is cut waits for the rest of it, at the end on the rank
// that the tensor chooses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "cairn/checks.hpp"
#include "cairn/dtype.hpp"
#include "comm/communicator.hpp"
#include "plan/catalog.hpp"
#include "plan/file_layout.hpp"
#include "plan/hf_layout.hpp"
#include "quant/non_finite.hpp"

namespace cairn::checkpoint {

/// A tensor of floats in a file: all of its bytes.
struct FloatsInFile {
  std::uint32_t file = 0;
  std::uint32_t tensor = 0;  ///< number in the catalog
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  DType dtype = DType::kF32;
};

/// Those of the files that `is_wanted` says; ascending by (file, begin). `layout` has the files' sizes.
std::vector<FloatsInFile> floats_in_files(const plan::HfLayout& files, const plan::FileLayout& layout,
                                          std::span<const std::uint32_t> wanted);

/// Of one save. Rank-local.
class NonFiniteCounter {
 public:
  /// `floats` must outlive it.
  explicit NonFiniteCounter(std::span<const FloatsInFile> floats) : floats_(floats), counts_(floats.size()) {}

  /// Each byte of a file once, on any rank. Throws nothing: what fails is kept until check().
  void add(std::uint32_t file, std::uint64_t offset, std::span<const std::byte> bytes) noexcept;
  /// Throws Error(kInternal) when memory was short.
  void check() const;

  /// Values of which others have the rest: of (tensor, number of the value), its bytes where they are in it.
  struct Part {
    std::array<std::byte, 8> bytes = {};
    std::uint64_t has = 0;  ///< bit of each byte that is there
    DType dtype = DType::kF32;
  };
  using Parts = std::map<std::pair<std::uint64_t, std::uint64_t>, Part>;
  /// Adds to `into`, whose whole values are counted in `counts` by tensor and go.
  static void merge(const Parts& parts, Parts& into, std::map<std::uint64_t, quant::NonFiniteCount>& counts);

  [[nodiscard]] std::span<const FloatsInFile> floats() const { return floats_; }
  [[nodiscard]] std::span<const quant::NonFiniteCount> counts() const { return counts_; }
  [[nodiscard]] const Parts& parts() const { return parts_; }

 private:
  void add_to(std::size_t tensor, std::uint64_t begin, std::span<const std::byte> bytes);
  void add_part(const FloatsInFile& tensor, std::uint64_t begin, std::span<const std::byte> bytes);

  std::span<const FloatsInFile> floats_;
  std::vector<quant::NonFiniteCount> counts_;
  Parts parts_;
  bool has_failed_ = false;
};

/// Collective. Of all ranks; `catalog` names the tensors, on rank 0. The same on all ranks.
NonFiniteValues collect_non_finite(comm::Communicator& communicator, const NonFiniteCounter& counter,
                                   const plan::PackedCatalog& catalog);

/// "3 values of 2 tensors are not finite: ...": what is said of them, for a warning or an error.
std::string words_of(const NonFiniteValues& values);

}  // namespace cairn::checkpoint
