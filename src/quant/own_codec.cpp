// Boxes, names and refusals; own_block.cpp codes the blocks.
#include "quant/own_codec.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/checked.hpp"
#include "base/internal_error.hpp"
#include "base/text.hpp"
#include "quant/boxes.hpp"
#include "quant/own_block.hpp"
#include "shard/box_math.hpp"

namespace cairn::quant {
namespace {

using own::kBlockElements;

/// Tensors with fewer elements stay F32: coding them would save too few bytes to be worth the error.
constexpr std::uint64_t kLeastElements = 1024;

/// Tensors with more dimensions stay F32: the stored tensor has one dimension more, and at most 8 can be saved.
constexpr std::size_t kMostDimensions = 7;

std::uint64_t blocks_of(std::uint64_t elements) { return base::ceil_div(elements, kBlockElements); }

/// Whether the blocks of the flattened tensor never cross from one row into the next, so that a box of the tensor can
/// be a box of blocks.
bool has_blocks_in_rows(const Shape& shape) { return shape.back() % kBlockElements == 0; }

/// The position, in the tensor, of element `index` of `box`, which is a box of the view.
std::string position_text(const Shape& shape, const Box& box, std::uint64_t index) {
  if (has_blocks_in_rows(shape)) return shard::shape_text(position_of(box, index));
  return shard::shape_text(position_of(shard::whole(shape), box.offset[0] + index));
}

Error damaged_block(const Codec& codec, const Source& source, const Box& box, std::uint64_t index) {
  return {
      ErrorKind::kFormat,
      fmt::format("optimizer state of '{}': the block of {} codes at {} holds a code that is not in use: the data is "
                  "damaged",
                  base::printable(source.name), codec.traits().name, position_text(source.shape, box, index))};
}

class OwnCodec final : public Codec {
 public:
  OwnCodec(const own::Format& format, const Figures& figures) : format_(format) {
    traits_.name = format.name;
    traits_.bits = format.bits;
    traits_.blocks = fmt::format("{} consecutive elements of the flattened tensor", kBlockElements);
    traits_.error_bounds = fmt::format(
        "for Gaussian m/sqrt(v), log-normal v up to sigma 3, and sqrt(v) far above 1e-8: update {:g} % RMS, "
        "sqrt(v) {:g} % RMS",
        100 * figures.update_rms, 100 * figures.root_rms);
    traits_.figures = figures;
    traits_.cut = Cut::kWholeBlocks;
    traits_.block_elements = kBlockElements;
  }

  const Traits& traits() const override { return traits_; }

  std::string left_alone(const Shape& shape) const override {
    if (shape.size() < 2) return "it has fewer than 2 dimensions";
    if (shape.size() > kMostDimensions) return fmt::format("it has more than {} dimensions", kMostDimensions);
    if (elements_of(shape) < kLeastElements) return fmt::format("it has fewer than {} elements", kLeastElements);
    return {};
  }

  Shape view(const Shape& shape) const override {
    return has_blocks_in_rows(shape) ? shape : Shape{elements_of(shape)};
  }

  std::vector<Part> parts(const Shape& shape) const override {
    require(left_alone(shape).empty(), fmt::format("a tensor of shape {} is not coded", shard::shape_text(shape)));
    Shape stored = view(shape);
    stored.back() = blocks_of(stored.back());
    stored.push_back(format_.block_bytes);
    return {{Moment::kFirst, "@" + traits_.name, Role::kCodes, DType::kU8, std::move(stored)}};
  }

  Box part_box(const Shape& shape, std::size_t part, const Box& box) const override {
    require(part == 0, "there is one part");
    check_box(shape, box);
    Box stored = box;
    stored.offset.back() /= kBlockElements;
    stored.shape.back() = blocks_of(stored.shape.back());
    stored.offset.push_back(0);
    stored.shape.push_back(format_.block_bytes);
    return stored;
  }

  Statistics no_statistics(const Shape&, const Box&) const override { return {}; }
  void measure(const Source&, const Box&, const ConstMoments&, Statistics&) const override {}

  void encode(const Source& source, const Box& box, const ConstMoments& moments, const Statistics&,
              PartBytes out) const override {
    check_spans(source.shape, box, out, moments);
    own::Values values;
    own::Block block;
    std::byte* to = out[0].data();
    const std::uint64_t elements = elements_of(box.shape);
    for (std::uint64_t begin = 0; begin < elements; begin += kBlockElements, to += format_.block_bytes) {
      const std::size_t count = std::min<std::uint64_t>(kBlockElements, elements - begin);
      copy_in(moments.m.subspan(begin, count), values.m);
      copy_in(moments.v.subspan(begin, count), values.v);
      if (!own::encode_block(format_, values, block)) refuse(source, box, begin, values);
      std::fill(block.codes.begin() + static_cast<std::ptrdiff_t>(count), block.codes.end(), 0U);
      format_.pack(block, to);
    }
  }

  void store_scales(const Source&, const Box&, const Statistics&, PartBytes) const override {}

  void decode(const Source& source, const Box& box, ConstPartBytes parts, const DecodeOptions&,
              const Moments& out) const override {
    check_spans(source.shape, box, parts, out);
    own::Values values;
    own::Block block;
    const std::byte* from = parts[0].data();
    const std::uint64_t elements = elements_of(box.shape);
    for (std::uint64_t begin = 0; begin < elements; begin += kBlockElements, from += format_.block_bytes) {
      const std::size_t count = std::min<std::uint64_t>(kBlockElements, elements - begin);
      if (!format_.unpack(from, block) || !own::decode_block(format_, block, values)) {
        throw damaged_block(*this, source, box, begin);
      }
      std::copy_n(values.m.begin(), count, out.m.begin() + static_cast<std::ptrdiff_t>(begin));
      std::copy_n(values.v.begin(), count, out.v.begin() + static_cast<std::ptrdiff_t>(begin));
    }
  }

 private:
  static void require(bool condition, std::string_view what, const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) {
    if (!condition) throw base::internal_error(fmt::format("quantisation: {}", what), file, line);
  }

  void check_box(const Shape& shape, const Box& box) const {
    require(left_alone(shape).empty(), fmt::format("a tensor of shape {} is not coded", shard::shape_text(shape)));
    const Shape all = view(shape);
    require(
        shard::fits(box, all) && box.offset.back() % kBlockElements == 0 &&
            (box.shape.back() % kBlockElements == 0 || box.offset.back() + box.shape.back() == all.back()),
        fmt::format("the box at {} of shape {} is not one of whole blocks of {} in {}", shard::shape_text(box.offset),
                    shard::shape_text(box.shape), kBlockElements, shard::shape_text(all)));
  }

  template <class Parts, class BothMoments>
  void check_spans(const Shape& shape, const Box& box, const Parts& parts, const BothMoments& moments) const {
    check_box(shape, box);
    const std::uint64_t elements = elements_of(box.shape);
    require(parts.size() == 1 && parts[0].size() == blocks_of(elements) * format_.block_bytes &&
                moments.m.size() == elements && moments.v.size() == elements,
            "a span has another size than its box");
  }

  /// Copies the values of a block, and fills the rest of a short block with the first value.
  static void copy_in(std::span<const float> from, std::array<float, kBlockElements>& to) {
    const auto end = std::copy(from.begin(), from.end(), to.begin());
    std::fill(end, to.end(), from.front());
  }

  [[noreturn]] void refuse(const Source& source, const Box& box, std::uint64_t begin, const own::Values& values) const {
    std::size_t i = 0;
    while (i + 1 < kBlockElements && !own::is_refused(values.m[i], values.v[i])) ++i;
    throw refused_pair(*this, source, box, begin + i, values.m[i], values.v[i]);
  }

  const own::Format& format_;
  Traits traits_;
};

}  // namespace

Error refused_pair(const Codec& codec, const Source& source, const Box& box, std::uint64_t index, float m, float v) {
  return {
      ErrorKind::kState,
      fmt::format("optimizer state of '{}': m is {} and v is {} at {}, but {} needs finite values, v >= 0 and m "
                  "below 2^40 sqrt(v) (2^13 where v is 0); save it with quant=off",
                  base::printable(source.name), m, v, position_text(source.shape, box, index), codec.traits().name)};
}

const Codec& own_q8() {
  static const OwnCodec codec(own::kQ8, {0.005, 0.006});
  return codec;
}

const Codec& own_q4() {
  static const OwnCodec codec(own::kQ4, {0.07, 0.08});
  return codec;
}

}  // namespace cairn::quant
