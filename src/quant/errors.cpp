#include "quant/errors.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <type_traits>
#include <vector>

#include "base/checked.hpp"
#include "quant/boxes.hpp"
#include "quant/own_grid.hpp"
#include "quant/own_math.hpp"

namespace cairn::quant {
namespace {

constexpr double kEpsilon = 1e-8;

double over(double error, double scale) {
  if (error == 0) return 0;
  return scale == 0 ? std::numeric_limits<double>::infinity() : error / scale;
}

static_assert(std::is_trivially_copyable_v<TensorErrors>);

constexpr std::uint64_t kFirstBlocks = 4;
constexpr std::uint64_t kOneBlockIn = 191;  // a prime: unlike 128, it seldom divides the number of blocks in a row

/// 128 values of log-normal v with sigma 3 span about 23 octaves.
constexpr std::int32_t kUsualOctaves = 24;

/// For v below 2^-44, sqrt(v) is below 24 * 1e-8.
constexpr std::int32_t kSmallestUsual = -44;

/// Elements of a block of a codec that has no blocks of its own, and the least number of blocks in a tensor's sample.
constexpr std::uint64_t kRunElements = 128;
constexpr std::uint64_t kLeastBlocks = 16;

bool has_blocks(const Codec& codec) { return codec.traits().cut == Cut::kWholeBlocks; }

/// The places of a box's blocks, in the order of its elements: the codec's own blocks, or runs of up to 128 elements
/// that lie in one row, or in a few whole rows where these are narrow. The elements of a block follow each other.
class BlockPlaces {
 public:
  BlockPlaces(const Codec& codec, const Box& box)
      : elements_(elements_of(box.shape)),
        step_(has_blocks(codec) ? codec.traits().block_elements : kRunElements),
        width_(has_blocks(codec) ? elements_ : box.shape.back()),
        in_row_(base::ceil_div(width_, step_)),
        rows_(std::max<std::uint64_t>(step_ / width_, 1)) {}

  [[nodiscard]] std::uint64_t blocks() const { return base::ceil_div(elements_, rows_ * width_) * in_row_; }
  [[nodiscard]] std::uint64_t in_row() const { return in_row_; }
  [[nodiscard]] std::uint64_t width() const { return width_; }

  /// The first row and column of a block.
  [[nodiscard]] std::uint64_t row_of(std::uint64_t block) const { return block / in_row_ * rows_; }
  [[nodiscard]] std::uint64_t column_of(std::uint64_t block) const { return block % in_row_ * step_; }
  [[nodiscard]] std::uint64_t begin_of(std::uint64_t block) const { return row_of(block) * width_ + column_of(block); }
  [[nodiscard]] std::uint64_t rows_of(std::uint64_t block) const {
    return std::min(rows_, elements_ / width_ - row_of(block));
  }
  [[nodiscard]] std::uint64_t columns_of(std::uint64_t block) const {
    return std::min(step_, width_ - column_of(block));
  }
  [[nodiscard]] std::uint64_t elements_in(std::uint64_t block) const { return rows_of(block) * columns_of(block); }

  /// The first block that begins at an element or behind it.
  [[nodiscard]] std::uint64_t block_from(std::uint64_t element) const {
    const std::uint64_t rows = rows_ * width_;
    return element / rows * in_row_ + base::ceil_div(element % rows, in_row_ == 1 ? rows : step_);
  }

 private:
  std::uint64_t elements_;
  std::uint64_t step_;
  std::uint64_t width_;
  std::uint64_t in_row_;
  std::uint64_t rows_;
};

/// The sample has one block in so many. For a codec without blocks of its own, the blocks that follow each other in the
/// sample have different places in a row.
std::uint64_t one_block_in(const CodedBox& coded, std::uint64_t in_row) {
  if (has_blocks(coded.codec)) return kOneBlockIn;
  const std::uint64_t blocks = elements_of(coded.source.shape) / kRunElements;
  std::uint64_t one_in = std::clamp<std::uint64_t>(blocks / kLeastBlocks, 1, kOneBlockIn);
  while (std::gcd(one_in, in_row) != 1) --one_in;
  return one_in;
}

/// The kind of columns that have scales of their own: hard if the step of a column's r is larger than the smallest r.
BlockKind kind_of_columns(unsigned bits, std::span<const std::byte> r_min, std::span<const std::byte> r_max) {
  std::array<float, kRunElements> low{};
  std::array<float, kRunElements> high{};
  std::memcpy(low.data(), r_min.data(), r_min.size());
  std::memcpy(high.data(), r_max.data(), r_max.size());
  const auto steps = static_cast<float>((1U << bits) - 1);
  int is_hard = 0;
  for (std::size_t i = 0; i < kRunElements; ++i) is_hard |= high[i] - low[i] > steps * low[i] ? 1 : 0;
  return is_hard != 0 ? BlockKind::kHard : BlockKind::kUsual;
}

/// The blocks of a box that has been coded.
class BlocksOfBox {
 public:
  explicit BlocksOfBox(const CodedBox& coded) : coded_(coded), places_(coded.codec, coded.box) {
    if (has_blocks(coded.codec)) return;
    for (const Part& part : coded.codec.parts(coded.source.shape)) roles_.push_back(part.role);
    is_matrix_ = coded.box.shape.size() > 1;
    group_rows_ = coded.codec.traits().group_rows;
    // The last two parts are the smallest and the largest r.
    kinds_.resize(coded.parts.back().size() / sizeof(float) / scale_columns() * places_.in_row());
  }

  [[nodiscard]] const BlockPlaces& places() const { return places_; }

  [[nodiscard]] BlockKind kind(std::uint64_t block) {
    if (has_blocks(coded_.codec)) return kind_of_block(bytes_of_block(block));
    const Groups groups = groups_of(block);
    BlockKind kind = BlockKind::kUsual;
    for (std::uint64_t group = groups.begin; group < groups.end; ++group) kind = std::max(kind, kind_in(group, block));
    return kind;
  }

  /// Decodes the block and adds its errors. The block's moments begin at element `place` of coded.given.
  void measure(std::uint64_t block, std::uint64_t place, BlockKind kind, TensorErrors& errors) const {
    const std::uint64_t length = places_.elements_in(block);
    std::vector<float> m(length);
    std::vector<float> v(length);
    Box box{position_of(coded_.box, places_.begin_of(block)), Shape(coded_.box.shape.size(), 1)};
    box.shape.front() = places_.rows_of(block);
    box.shape.back() = places_.columns_of(block);
    coded_.codec.decode(coded_.source, box, parts_of(block), {}, {m, v});
    errors.add_block(kind, {coded_.given.m.subspan(place, length), coded_.given.v.subspan(place, length)}, {m, v});
  }

 private:
  /// Rows of scales, counted from the first of the box's.
  struct Groups {
    std::uint64_t begin = 0;
    std::uint64_t end = 1;
  };

  [[nodiscard]] std::span<const std::byte> bytes_of_block(std::uint64_t block) const {
    const std::uint64_t bytes = coded_.parts[0].size() / places_.blocks();
    return coded_.parts[0].subspan(block * bytes, bytes);
  }

  [[nodiscard]] std::uint64_t scale_columns() const { return is_matrix_ ? places_.width() : 1; }

  [[nodiscard]] Groups groups_of(std::uint64_t block) const {
    if (group_rows_ == 0) return {};
    const std::uint64_t first = coded_.box.offset[0] / group_rows_;
    const std::uint64_t row = coded_.box.offset[0] + places_.row_of(block);
    return {row / group_rows_ - first, (row + places_.rows_of(block) - 1) / group_rows_ - first + 1};
  }

  /// The bytes of a block's scales in one of the parts.
  [[nodiscard]] std::span<const std::byte> scales_of(std::size_t part, std::uint64_t block, Groups groups) const {
    const std::uint64_t begin = groups.begin * scale_columns() + (is_matrix_ ? places_.column_of(block) : 0);
    const std::uint64_t count = (groups.end - groups.begin) * (is_matrix_ ? places_.columns_of(block) : 1);
    return coded_.parts[part].subspan(begin * sizeof(float), count * sizeof(float));
  }

  [[nodiscard]] BlockKind kind_in(std::uint64_t group, std::uint64_t block) {
    std::optional<BlockKind>& kind = kinds_[group * places_.in_row() + block % places_.in_row()];
    if (!kind) {
      const Groups groups = {group, group + 1};
      const std::size_t last = roles_.size() - 1;
      kind = kind_of_columns(coded_.codec.traits().bits, scales_of(last - 1, block, groups),
                             scales_of(last, block, groups));
    }
    return *kind;
  }

  [[nodiscard]] std::vector<std::span<const std::byte>> parts_of(std::uint64_t block) const {
    if (has_blocks(coded_.codec)) return {bytes_of_block(block)};
    std::vector<std::span<const std::byte>> parts;
    const Groups groups = groups_of(block);
    for (std::size_t part = 0; part < roles_.size(); ++part) {
      const bool is_code = roles_[part] == Role::kCodes;  // a byte each
      parts.push_back(is_code ? coded_.parts[part].subspan(places_.begin_of(block), places_.elements_in(block))
                              : scales_of(part, block, groups));
    }
    return parts;
  }

  const CodedBox& coded_;
  BlockPlaces places_;
  // Only for codecs without blocks of their own:
  std::vector<Role> roles_;  // of the parts
  bool is_matrix_ = false;
  std::uint64_t group_rows_ = 0;
  std::vector<std::optional<BlockKind>> kinds_;  // of columns that were looked at, by group and block of a row
};

}  // namespace

/// The inner loop becomes vector code: each sum has four parts, and each part adds up every fourth value.
CAIRN_QUANT_CLONES void ErrorSums::add_run(const float* m, const float* v, const float* decoded_m,
                                           const float* decoded_v, ErrorSums& into) {
  constexpr std::size_t kSums = 4;
  double update_error[kSums] = {};
  double update[kSums] = {};
  double update_max[kSums] = {};
  double root_error[kSums] = {};
  double root_max[kSums] = {};
  double roots[kSums] = {};
  double first_max[kSums] = {};
  double second_max[kSums] = {};
  for (std::size_t i = 0; i < kRun; i += kSums) {
    for (std::size_t k = 0; k < kSums; ++k) {
      const double given_m = m[i + k];
      const double given_v = v[i + k];
      const double found_m = decoded_m[i + k];
      const double found_v = decoded_v[i + k];
      const double root = std::sqrt(given_v);
      const double found_root = std::sqrt(found_v);
      const double step = given_m / (root + kEpsilon);
      const double error = std::abs(found_m / (found_root + kEpsilon) - step);
      const double relative = given_v > 0 ? std::abs(found_root / root - 1) : 0.0;
      update_error[k] += error * error;
      update[k] += step * step;
      update_max[k] = update_max[k] < error ? error : update_max[k];
      root_error[k] += relative * relative;
      root_max[k] = root_max[k] < relative ? relative : root_max[k];
      roots[k] += given_v > 0 ? 1.0 : 0.0;
      const double first = std::abs(found_m - given_m);
      const double second = std::abs(found_v - given_v);
      first_max[k] = first_max[k] < first ? first : first_max[k];
      second_max[k] = second_max[k] < second ? second : second_max[k];
    }
  }
  for (std::size_t k = 0; k < kSums; ++k) {
    into.update_error_ += update_error[k];
    into.update_ += update[k];
    into.update_max_ = std::max(into.update_max_, update_max[k]);
    into.root_error_ += root_error[k];
    into.root_max_ = std::max(into.root_max_, root_max[k]);
    into.roots_ += roots[k];
    into.first_max_ = std::max(into.first_max_, first_max[k]);
    into.second_max_ = std::max(into.second_max_, second_max[k]);
  }
  into.elements_ += static_cast<double>(kRun);
}

void ErrorSums::add(const ConstMoments& given, const ConstMoments& decoded) {
  std::size_t begin = 0;
  for (; begin + kRun <= given.m.size(); begin += kRun) {
    add_run(given.m.data() + begin, given.v.data() + begin, decoded.m.data() + begin, decoded.v.data() + begin, *this);
  }
  const std::size_t rest = given.m.size() - begin;
  if (rest == 0) return;
  // The rest of the run is filled with pairs that add nothing.
  std::array<std::array<float, kRun>, 4> values{};
  const std::array<std::span<const float>, 4> from = {given.m, given.v, decoded.m, decoded.v};
  for (std::size_t i = 0; i < from.size(); ++i) std::ranges::copy(from[i].subspan(begin, rest), values[i].begin());
  add_run(values[0].data(), values[1].data(), values[2].data(), values[3].data(), *this);
  elements_ -= static_cast<double>(kRun - rest);
}

void ErrorSums::merge(const ErrorSums& other) {
  elements_ += other.elements_;
  update_error_ += other.update_error_;
  update_ += other.update_;
  update_max_ = std::max(update_max_, other.update_max_);
  root_error_ += other.root_error_;
  roots_ += other.roots_;
  root_max_ = std::max(root_max_, other.root_max_);
  first_max_ = std::max(first_max_, other.first_max_);
  second_max_ = std::max(second_max_, other.second_max_);
}

void ErrorSums::weigh(double weight) {
  for (double* sum : {&elements_, &update_error_, &update_, &root_error_, &roots_}) *sum *= weight;
}

double ErrorSums::update_rms() const { return over(std::sqrt(update_error_), std::sqrt(update_)); }

double ErrorSums::update_max() const { return over(update_max_, std::sqrt(update_ / std::max(elements_, 1.0))); }

double ErrorSums::root_rms() const { return std::sqrt(root_error_ / std::max(roots_, 1.0)); }

BlockKind kind_of_block(std::span<const std::byte> block) {
  std::uint32_t word = 0;
  for (std::size_t i = sizeof word; i-- > 0;) word = word << 8 | std::to_integer<std::uint32_t>(block[i]);
  const own::Scales scales = own::scales_of(word);
  const std::int32_t range = own::range_of(scales.range);
  const std::int32_t high = static_cast<std::int32_t>(scales.low) * own::kLowStep - 149 * own::kOctave + range;
  const bool is_hard = range > kUsualOctaves * own::kOctave || high < kSmallestUsual * own::kOctave;
  return is_hard ? BlockKind::kHard : BlockKind::kUsual;
}

void TensorErrors::add_all(const ConstMoments& given, const ConstMoments& decoded) {
  Kind& all = kinds_[0];
  all.sums.add(given, decoded);
  all.seen_elements += given.m.size();
}

bool TensorErrors::take_block(BlockKind kind, std::uint64_t elements, std::uint64_t one_in) {
  const std::uint64_t number = kinds_[static_cast<std::size_t>(kind)].seen_blocks;
  count_block(kind, elements);
  return number < kFirstBlocks || number % one_in == 0;
}

void TensorErrors::count_block(BlockKind kind, std::uint64_t elements) {
  is_sample_ = true;
  Kind& of = kinds_[static_cast<std::size_t>(kind)];
  of.seen_elements += elements;
  of.seen_blocks += 1;
}

void TensorErrors::add_block(BlockKind kind, const ConstMoments& given, const ConstMoments& decoded) {
  Kind& of = kinds_[static_cast<std::size_t>(kind)];
  of.sums.add(given, decoded);
  of.measured_blocks += 1;
}

void TensorErrors::merge(const TensorErrors& other) {
  for (std::size_t k = 0; k < kinds_.size(); ++k) {
    kinds_[k].sums.merge(other.kinds_[k].sums);
    kinds_[k].seen_elements += other.kinds_[k].seen_elements;
    kinds_[k].seen_blocks += other.kinds_[k].seen_blocks;
    kinds_[k].measured_blocks += other.kinds_[k].measured_blocks;
  }
  is_sample_ |= other.is_sample_;
}

ErrorSums TensorErrors::estimate() const {
  ErrorSums all;
  for (const Kind& kind : kinds_) {
    if (kind.sums.elements() == 0) continue;
    ErrorSums sums = kind.sums;
    sums.weigh(static_cast<double>(kind.seen_elements) / sums.elements());
    all.merge(sums);
  }
  return all;
}

std::uint64_t TensorErrors::elements_measured() const {
  double elements = 0;
  for (const Kind& kind : kinds_) elements += kind.sums.elements();
  return static_cast<std::uint64_t>(elements);
}

bool TensorErrors::exceed_figures(const Traits& traits) const {
  const Figures& figures = traits.figures;
  const auto blocks = static_cast<double>(kinds_[0].measured_blocks + kinds_[1].measured_blocks);
  const double allowed = is_sample_ ? 1 + 0.2 / std::sqrt(std::max(blocks, 1.0)) : 1;
  const ErrorSums errors = estimate();
  return errors.update_rms() > allowed * figures.update_rms || errors.root_rms() > allowed * figures.root_rms;
}

void add_errors(const CodedBox& coded, ElementRange range, TensorErrors& errors) {
  const std::size_t elements = coded.given.m.size();
  std::vector<float> m(elements);
  std::vector<float> v(elements);
  const std::vector<std::span<const std::byte>> parts(coded.parts.begin(), coded.parts.end());
  coded.codec.decode(coded.source, coded.box, parts, {}, {m, v});
  const std::size_t begin = std::min(range.begin, elements);
  const std::size_t count = std::min(range.end, elements) - begin;
  errors.add_all({coded.given.m.subspan(begin, count), coded.given.v.subspan(begin, count)},
                 {std::span(m).subspan(begin, count), std::span(v).subspan(begin, count)});
}

void sample_errors(const CodedBox& coded, ElementRange range, TensorErrors& errors) {
  BlocksOfBox blocks(coded);
  const BlockPlaces& places = blocks.places();
  const std::uint64_t all = places.blocks();
  const std::uint64_t one_in = one_block_in(coded, places.in_row());
  for (std::uint64_t block = places.block_from(range.begin); block < all; ++block) {
    const std::uint64_t begin = places.begin_of(block);
    if (begin >= range.end) return;
    const BlockKind kind = blocks.kind(block);
    if (errors.take_block(kind, places.elements_in(block), one_in)) blocks.measure(block, begin, kind, errors);
  }
}

std::vector<ElementRange> few_runs(const Codec& codec, const Box& box) {
  constexpr std::uint64_t kRunEvery = 1ULL << 24;
  constexpr std::uint64_t kRunBlocks = 4;
  const BlockPlaces places(codec, box);
  const std::uint64_t all = places.blocks();
  std::vector<ElementRange> runs;
  const auto add = [&](std::uint64_t block, std::uint64_t count) {
    const std::uint64_t last = std::min(block + count, all) - 1;
    runs.push_back({places.begin_of(block), places.begin_of(last) + places.elements_in(last)});
  };
  const std::uint64_t elements = elements_of(box.shape);
  if (has_blocks(codec)) {
    for (std::uint64_t begin = 0; begin < elements; begin += kRunEvery) add(places.block_from(begin), kRunBlocks);
    return runs;
  }
  // Single blocks, since neighbours share scales or a row. Multiples of the golden ratio spread over rows and columns.
  constexpr double kGolden = 0.6180339887498949;
  const std::uint64_t count = std::min(all, 2 * kRunBlocks * base::ceil_div(elements, kRunEvery));
  for (std::uint64_t i = 0; i < count; ++i) {
    const double place = static_cast<double>(i) * kGolden;
    const auto spread = static_cast<std::uint64_t>((place - std::floor(place)) * static_cast<double>(all));
    add(count == all ? i : std::min(spread, all - 1), 1);
  }
  return runs;
}

void add_run(const CodedBox& coded, std::uint64_t begin, TensorErrors& errors) {
  BlocksOfBox blocks(coded);
  const BlockPlaces& places = blocks.places();
  const std::uint64_t end = begin + coded.given.m.size();
  for (std::uint64_t block = places.block_from(begin); block < places.blocks(); ++block) {
    const std::uint64_t at = places.begin_of(block);
    if (at >= end) return;
    const BlockKind kind = blocks.kind(block);
    errors.count_block(kind, places.elements_in(block));
    blocks.measure(block, at - begin, kind, errors);
  }
}

}  // namespace cairn::quant
