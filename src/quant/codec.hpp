// The interface of the codecs for optimizer state.
//
// A codec codes the two Adam moments of one parameter jointly: m (moment1, exp_avg) and v (moment2, exp_avg_sq), both
// F32 and of the same shape. The codec turns them into stored tensors, its parts: codes and scales. Everything works on
// boxes, so that each rank codes its part of a sharded tensor:
//
//   1. measure() every box into statistics, and merge() the statistics of all boxes and ranks. Only for codecs whose
//      boxes can be cut anywhere; the others code each block separately.
//   2. encode() every box with the statistics of the whole tensor. This makes the box's piece of each part; the same
//      box gives the same bytes on every rank.
//   3. decode() any box from the box's piece of each part.
//
// A box is in the coordinates of view(shape): the tensor itself, or the flattened tensor [n]. The end of this file has
// the three steps for a whole tensor; boxes.hpp has the checks that readers and writers make.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "cairn/box.hpp"
#include "cairn/dtype.hpp"

namespace cairn::quant {

using Shape = std::vector<std::uint64_t>;

/// The name, for messages, and the shape of the moments that are coded.
struct Source {
  std::string name;
  Shape shape;
};

/// A box of both moments in memory, row-major without gaps.
struct ConstMoments {
  std::span<const float> m;
  std::span<const float> v;
};
struct Moments {
  std::span<float> m;
  std::span<float> v;
};

enum class Moment { kFirst, kSecond };
enum class Role { kCodes, kScales };

/// One stored tensor. Its name is a moment's name with a suffix ("@scales", "@q8"), or without one.
struct Part {
  Moment moment = Moment::kFirst;
  std::string suffix;
  Role role = Role::kCodes;
  DType dtype = DType::kU8;
  Shape shape;

  friend bool operator==(const Part&, const Part&) = default;
};

/// The places at which a tensor can be cut into boxes that are coded separately.
enum class Cut {
  kAnywhere,     ///< encode() needs the statistics of the whole tensor
  kWholeBlocks,  ///< boxes of view() that, along the last dimension, begin at a multiple of block_elements and end at a
                 ///< multiple or the dimension's end; each box is coded from its own values alone, without statistics
};

/// The figures of a codec: the RMS error of the update over its RMS, and the RMS of the relative error of sqrt(v).
struct Figures {
  double update_rms = 0;
  double root_rms = 0;
};

/// The properties of a codec that do not depend on the tensor.
struct Traits {
  std::string name;          ///< "q8": its name in options, manifests and file metadata
  unsigned bits = 8;         ///< bits of a value's code, rounded down
  std::string blocks;        ///< in words: the values that share scales
  std::string error_bounds;  ///< in words
  Cut cut = Cut::kAnywhere;
  std::uint64_t group_rows = 0;      ///< with kAnywhere: number of rows (axis 0) whose elements in a column share
                                     ///< scales; 0: all rows
  std::uint64_t block_elements = 1;  ///< consecutive elements that form a block; 1 with kAnywhere
  Figures figures = {};              ///< the figures that README.md states
};

enum class Reduction { kMin, kMax };

/// The results of measure(): for each statistic, one value per position of `box` (row-major). `box` is in the
/// coordinates of the scales.
struct Statistics {
  struct Array {
    Reduction reduction = Reduction::kMax;
    std::vector<float> values;
  };
  Box box;
  std::vector<Array> arrays;
};

/// The rule for dividing a code by the largest code. It differs between versions of the system that wrote the codes;
/// files do not record the version. Codecs with only one rule ignore this.
enum class Division {
  kTrue,        ///< a true division, as in the newest versions
  kReciprocal,  ///< multiplication by the F32 reciprocal; for some codes, the last bit differs
};

struct DecodeOptions {
  Division division = Division::kTrue;
};

using PartBytes = std::span<const std::span<std::byte>>;             ///< one per part: the bytes of the part's box
using ConstPartBytes = std::span<const std::span<const std::byte>>;  ///< one per part: the bytes of the part's box

/// Rank-local, without state, thread-safe. Requires: shapes are coded (left_alone() is empty), and boxes hold at least
/// one element. Throws Error(kInternal) for a box outside view(shape) or a span of the wrong size.
class Codec {
 public:
  Codec() = default;
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;
  virtual ~Codec() = default;

  [[nodiscard]] virtual const Traits& traits() const = 0;

  /// The reason why moments of this shape stay F32, as the end of a sentence; empty if they are coded.
  [[nodiscard]] virtual std::string left_alone(const Shape& shape) const = 0;

  /// The shape in whose coordinates boxes are given: the tensor's own; but the flattened [n] for codecs with
  /// kWholeBlocks, unless the tensor's rows consist of whole blocks.
  [[nodiscard]] virtual Shape view(const Shape& shape) const = 0;

  /// The stored tensors for both moments of this shape, in a fixed order.
  [[nodiscard]] virtual std::vector<Part> parts(const Shape& shape) const = 0;

  /// The box of a part that holds the codes or scales of `box`.
  [[nodiscard]] virtual Box part_box(const Shape& shape, std::size_t part, const Box& box) const = 0;

  /// Neutral statistics that cover `box`: merging them changes nothing. With kWholeBlocks: empty.
  [[nodiscard]] virtual Statistics no_statistics(const Shape& shape, const Box& box) const = 0;

  /// Adds the values of a box to statistics that cover it. With kWholeBlocks: does nothing.
  virtual void measure(const Source& source, const Box& box, const ConstMoments& moments, Statistics& into) const = 0;

  /// `statistics`: the statistics of the whole tensor, covering at least the box; with kWholeBlocks: empty.
  virtual void encode(const Source& source, const Box& box, const ConstMoments& moments, const Statistics& statistics,
                      PartBytes out) const = 0;

  /// Stores only the scales of a box: `out` has no bytes for parts of role kCodes. With kWholeBlocks:
  /// does nothing, because scales are stored among the codes.
  virtual void store_scales(const Source& source, const Box& box, const Statistics& statistics,
                            PartBytes out) const = 0;

  virtual void decode(const Source& source, const Box& box, ConstPartBytes parts, const DecodeOptions& options,
                      const Moments& out) const = 0;
};

[[nodiscard]] std::span<const Codec* const> all_codecs();

/// The codec with that name. Throws Error(kUsage), listing the valid names, for any other name.
[[nodiscard]] const Codec& find_codec(std::string_view name);

// Merging: computes a tensor's statistics from the statistics of its boxes, for any cut and in any order.
//
// In a save, a rank merges the statistics of all ranks' boxes (codes/coding_exchange.hpp). In a conversion, each rank
// measures its boxes into statistics of the whole tensor, whose arrays MPI reduces over the ranks, element by element.
// In both reductions NaN takes precedence over every number, so the result does not depend on the order. MPI does not
// promise this for floating point, so reduction_keys() turns both reductions into one reduction of integers.

/// The larger or the smaller of a and b; NaN if either is NaN.
inline float reduced(Reduction reduction, float a, float b) {
  const bool takes_b = reduction == Reduction::kMax ? b > a : b < a;
  return takes_b || b != b ? b : a;
}

/// into[i] = reduced(into[i], from[i]). Requires equal lengths.
void merge(Reduction reduction, std::span<float> into, std::span<const float> from);

/// Merges `from` into `into` where their boxes overlap. Throws Error(kInternal) if the two differ in the number of
/// arrays or of dimensions.
void merge(Statistics& into, const Statistics& from);

/// All values of all arrays as integers below 2^32. Their maximum stands for the reduced value, whatever the array's
/// reduction: the element-wise maximum over ranks merges the ranks' statistics, if all have the same box.
[[nodiscard]] std::vector<std::uint64_t> reduction_keys(const Statistics& statistics);

/// Sets all values from their keys. Throws Error(kInternal) if there are too many or too few keys.
void take_reduction_keys(std::span<const std::uint64_t> keys, Statistics& statistics);

/// The index, in each array, of the statistic at `position` of the scales. Throws Error(kInternal) if `statistics` does
/// not cover `length` positions along the last dimension, beginning there.
[[nodiscard]] std::size_t index_in(const Statistics& statistics, const std::vector<std::uint64_t>& position,
                                   std::uint64_t length);

// A whole tensor in one call: for tools, tests, and tensors that one rank holds whole.

/// The bytes of each part, in the order of Codec::parts().
using Encoded = std::vector<base::Bytes>;

/// The names of the two moments of one parameter.
struct MomentNames {
  std::string first;   ///< "w/moment1_0"
  std::string second;  ///< "w/moment2_0"

  friend bool operator==(const MomentNames&, const MomentNames&) = default;
};

/// The name under which a part is stored.
[[nodiscard]] std::string stored_name(const Part& part, const MomentNames& names);

/// Throws Error(kInternal) if the codec leaves tensors of this shape alone, or the moments have the wrong size.
[[nodiscard]] Encoded encode_whole(const Codec& codec, const Source& source, const ConstMoments& moments);

/// Encodes a box with the statistics of the whole tensor.
[[nodiscard]] Encoded encode_box(const Codec& codec, const Source& source, const Box& box, const ConstMoments& moments,
                                 const Statistics& statistics);

void decode_whole(const Codec& codec, const Source& source, const Encoded& encoded, const DecodeOptions& options,
                  const Moments& out);

}  // namespace cairn::quant
