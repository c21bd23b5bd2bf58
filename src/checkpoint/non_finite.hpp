// Counts the NaN and infinite values of a save, by tensor, as checksums are made.
//
// Bytes come in any order, on all ranks, from windows and from runs that bypass the windows. Values may be cut if the
// block size is not a multiple of 8 bytes: their parts are kept, and joined at the end on one rank, the tensor's home.
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

/// The place of a tensor of floats in a file.
struct FloatsInFile {
  std::uint32_t file = 0;
  std::uint32_t tensor = 0;  ///< number in the catalog
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  DType dtype = DType::kF32;
};

/// The tensors of floats in the `wanted` files, except empty ones, by (file, begin). `layout` has the files' sizes.
std::vector<FloatsInFile> floats_in_files(const plan::HfLayout& files, const plan::FileLayout& layout,
                                          std::span<const std::uint32_t> wanted);

/// The counts of one save. Rank-local.
class NonFiniteCounter {
 public:
  /// `floats` must outlive the object.
  explicit NonFiniteCounter(std::span<const FloatsInFile> floats) : floats_(floats), counts_(floats.size()) {}

  /// Each byte of a file must be added once, on any rank. A failure is kept for check().
  void add(std::uint32_t file, std::uint64_t offset, std::span<const std::byte> bytes) noexcept;
  /// Throws Error(kInternal) if memory was short in add().
  void check() const;

  /// A value of which only some bytes are known, at their places.
  struct Part {
    std::array<std::byte, 8> bytes = {};
    std::uint64_t has = 0;  ///< a bit for each known byte
    DType dtype = DType::kF32;
  };
  using Parts = std::map<std::pair<std::uint64_t, std::uint64_t>, Part>;  ///< by (tensor, number of the value)
  /// Adds `parts` to `into`. Values that become complete are removed and counted in `counts`, by tensor.
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

/// Collective: the sums over all ranks, the same on all ranks. `catalog` is needed on rank 0, for the names of tensors.
NonFiniteValues collect_non_finite(comm::Communicator& communicator, const NonFiniteCounter& counter,
                                   const plan::PackedCatalog& catalog);

/// "3 values are not finite: ...", for a warning or an error.
std::string words_of(const NonFiniteValues& values);

}  // namespace cairn::checkpoint
