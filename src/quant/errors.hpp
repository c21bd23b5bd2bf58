// Errors of decoded moments. Sums are double; their last bits depend on the order of addition.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quant/codec.hpp"

namespace cairn::quant {

/// Sums over any number of values; update = m / (sqrt(v) + 1e-8).
class ErrorSums {
 public:
  /// Requires: four spans of equal length, v >= 0.
  void add(const ConstMoments& given, const ConstMoments& decoded);
  void merge(const ErrorSums& other);
  /// Weighs the sums as if each value had been added `weight` times.
  void weigh(double weight);

  [[nodiscard]] double elements() const { return elements_; }
  /// The update's RMS error over the RMS of the update; 0 if nothing differs, otherwise infinity if all updates are 0.
  [[nodiscard]] double update_rms() const;
  /// Largest error of an update over the RMS of the update.
  [[nodiscard]] double update_max() const;
  /// RMS of the relative error of sqrt(v), where v > 0.
  [[nodiscard]] double root_rms() const;
  [[nodiscard]] double root_max() const { return root_max_; }
  /// Largest absolute error of m, and of v.
  [[nodiscard]] double first_max() const { return first_max_; }
  [[nodiscard]] double second_max() const { return second_max_; }

 private:
  static constexpr std::size_t kRun = 128;
  static void add_run(const float* m, const float* v, const float* decoded_m, const float* decoded_v, ErrorSums& into);

  double elements_ = 0;
  double update_error_ = 0;
  double update_ = 0;
  double update_max_ = 0;
  double root_error_ = 0;
  double roots_ = 0;
  double root_max_ = 0;
  double first_max_ = 0;
  double second_max_ = 0;
};

// Errors of a coded tensor, measured in all of its blocks, or estimated from a few.
//
// Decoding and comparing every block takes longer than coding. So a save without a report or limit of errors takes a
// sample: on the host, of each kind (BlockKind), the first four blocks of a tensor that a rank codes, then one in 191.
// Each kind is weighted by its share of the tensor, so that a few bad blocks are neither missed nor overrated.
//
// Codecs with scales of columns have no blocks. For them a block is a run of up to 128 elements of a row, or a few
// whole rows where rows are narrow. Its scales are those of its columns. Rows differ as scales do not say (the rows of
// an embedding that were seen, and those that were not), so a tensor of fewer than 16 times 191 blocks has one block in
// fewer sampled.

/// kHard, for q8 and q4: v spans more octaves than the published figures cover, or is so small that its error affects
/// the update. For codecs with scales of columns: in one of them a step of r is larger than the smallest r.
enum class BlockKind { kUsual, kHard };

/// The kind of a stored block of q8 or q4, from its first bytes.
[[nodiscard]] BlockKind kind_of_block(std::span<const std::byte> block);

/// The errors of a tensor on one rank, or merged from several ranks. Trivially copyable.
class TensorErrors {
 public:
  /// Adds values without sampling: all of them are measured.
  void add_all(const ConstMoments& given, const ConstMoments& decoded);

  /// Counts a block of `elements`. True if it belongs to the sample, which has the first four blocks of each kind and
  /// one in `one_in`; then add_block() must follow.
  [[nodiscard]] bool take_block(BlockKind kind, std::uint64_t elements, std::uint64_t one_in);
  /// Counts a block that is measured in any case.
  void count_block(BlockKind kind, std::uint64_t elements);
  void add_block(BlockKind kind, const ConstMoments& given, const ConstMoments& decoded);

  void merge(const TensorErrors& other);

  /// The errors of the whole tensor, as estimated from the measured values.
  [[nodiscard]] ErrorSums estimate() const;
  [[nodiscard]] std::uint64_t elements_measured() const;

  /// True if the errors exceed the published figures; in a sample, by more than chance explains (a share of
  /// 0.2 / sqrt(blocks)).
  [[nodiscard]] bool exceed_figures(const Traits& traits) const;

 private:
  struct Kind {
    ErrorSums sums;
    std::uint64_t seen_elements = 0;
    std::uint64_t seen_blocks = 0;
    std::uint64_t measured_blocks = 0;
  };
  std::array<Kind, 2> kinds_;
  bool is_sample_ = false;
};

/// A box that has just been coded.
struct CodedBox {
  const Codec& codec;
  const Source& source;
  const Box& box;      ///< box of the codec's view
  ConstMoments given;  ///< the moments that were coded
  PartBytes parts;     ///< the codes and scales
};

/// A range of a box's elements, numbered within the box. For q8 and q4 it consists of whole blocks.
struct ElementRange {
  std::uint64_t begin = 0;
  std::uint64_t end = ~std::uint64_t{0};  ///< clipped to the end of the box
};

/// Decodes the box, and adds the errors of the range.
void add_errors(const CodedBox& coded, ElementRange range, TensorErrors& errors);

/// Adds the errors of a sample of the blocks that begin in the range.
void sample_errors(const CodedBox& coded, ElementRange range, TensorErrors& errors);

/// A few runs of whole blocks, for a box from which bringing each run takes time: four blocks in 16 Mi elements, or
/// eight single ones where blocks of a row share its values (codecs with scales of columns).
[[nodiscard]] std::vector<ElementRange> few_runs(const Codec& codec, const Box& box);

/// Adds the errors of a sample that the caller chose: `coded.given` has only the moments of these blocks, which follow
/// each other in the box from element `begin` on.
void add_run(const CodedBox& coded, std::uint64_t begin, TensorErrors& errors);

}  // namespace cairn::quant
