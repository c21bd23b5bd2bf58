// A piece consists of the parts of a smaller box, one after another in a slot's memory.
#include "quant/device_stage.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <deque>

#include "base/checked.hpp"
#include "cairn/error.hpp"
#include "quant/boxes.hpp"
#include "shard/box_math.hpp"

namespace cairn::quant {
namespace {

constexpr std::uint64_t kPartUnit = 256;  // parts begin at multiples of this number

struct Place {
  Box box;
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
};

/// A box of moments, and the places of its parts in a slot.
struct Piece {
  Box box;
  std::uint64_t first_element = 0;  ///< number, in the whole box, of the piece's first element
  std::vector<Place> places;
  std::uint64_t bytes = 0;
};

Piece piece_of(const Codec& codec, const Shape& shape, const Box& box) {
  Piece piece;
  piece.box = box;
  const auto parts = codec.parts(shape);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Box where = codec.part_box(shape, i, box);
    const std::uint64_t bytes = bytes_of(parts[i], where);
    piece.places.push_back({where, piece.bytes, bytes});
    piece.bytes = base::round_up(piece.bytes + bytes, kPartUnit);
  }
  return piece;
}

/// The largest count along dimension `d`, from the beginning of the box, that fits and ends at a multiple of `unit` or
/// at the end of the box; 0 if even the smallest does not fit.
std::uint64_t fitting(const Codec& codec, const Shape& shape, Box box, std::size_t d, std::uint64_t unit,
                      std::uint64_t most_bytes) {
  const std::uint64_t begin = box.offset[d];
  const std::uint64_t all = box.shape[d];
  const auto fits = [&](std::uint64_t count) {
    box.shape[d] = count;
    return piece_of(codec, shape, box).bytes <= most_bytes;
  };
  // Rounds a count down so that it ends at a multiple of the unit, or at the end of the box.
  const auto allowed = [&](std::uint64_t count) {
    const std::uint64_t end = (begin + count) / unit * unit;
    return count >= all ? all : end > begin ? end - begin : 0;
  };
  if (fits(all)) return all;
  std::uint64_t low = 0;  // allowed(low) fits or is 0
  std::uint64_t high = all;
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    const std::uint64_t count = allowed(middle);
    if (count == 0 || fits(count)) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return allowed(low);
}

std::vector<Piece> pieces_of(const Codec& codec, const Shape& shape, const Box& box, std::uint64_t most_bytes) {
  std::vector<Piece> pieces;
  std::uint64_t elements = 0;
  for (const Box& smaller : staged_boxes(codec, shape, box, most_bytes)) {
    pieces.push_back(piece_of(codec, shape, smaller));
    pieces.back().first_element = elements;
    elements += elements_of(smaller.shape);
  }
  return pieces;
}

/// One verdict for each piece in flight.
class Verdicts {
 public:
  explicit Verdicts(const gpu::Pipeline& pipeline) : verdicts_(pipeline.slots()) {}
  Verdict& of(std::uint64_t piece) { return verdicts_[piece % verdicts_.size()]; }

 private:
  std::deque<Verdict> verdicts_;
};

/// Cuts along dimension `d`; the dimensions before it have length 1. If not even one index fits, cuts along the next.
void cut_to_fit(const Codec& codec, const Shape& shape, Box rest, std::size_t d, std::uint64_t most_bytes,
                std::vector<Box>& out) {
  const bool has_blocks = codec.traits().cut == Cut::kWholeBlocks;
  const bool is_last = d + 1 == rest.shape.size();
  const std::uint64_t groups = d == 0 ? std::max<std::uint64_t>(codec.traits().group_rows, 1) : 1;
  const std::uint64_t unit = has_blocks ? (is_last ? codec.traits().block_elements : 1) : groups;
  while (rest.shape[d] != 0) {
    std::uint64_t count = fitting(codec, shape, rest, d, unit, most_bytes);
    if (count == 0 && !has_blocks) count = fitting(codec, shape, rest, d, 1, most_bytes);
    if (count == 0 && (is_last || !has_blocks)) {
      throw Error(
          ErrorKind::kUsage,
          fmt::format("GPU pipeline: pieces of {} bytes hold no {} of a box of shape {}; raise the memory budget",
                      most_bytes, has_blocks ? "block" : "row", shard::shape_text(rest.shape)));
    }
    Box piece = rest;
    piece.shape[d] = std::max<std::uint64_t>(count, 1);
    if (count == 0) {
      cut_to_fit(codec, shape, piece, d + 1, most_bytes, out);
    } else {
      out.push_back(piece);
    }
    rest.offset[d] += piece.shape[d];
    rest.shape[d] -= piece.shape[d];
  }
}

}  // namespace

std::vector<Box> staged_boxes(const Codec& codec, const Shape& shape, const Box& box, std::uint64_t most_bytes) {
  std::vector<Box> boxes;
  cut_to_fit(codec, shape, box, 0, most_bytes, boxes);
  return boxes;
}

void encode_to_host(gpu::Pipeline& pipeline, const DeviceCodec& codec, const Source& source, const Box& box,
                    const ConstDeviceMoments& moments, const Statistics& statistics,
                    const std::function<void(const PartPiece&)>& consume) {
  const auto pieces = pieces_of(codec.codec(), source.shape, box, pipeline.piece_bytes());
  const auto moments_of = [&](const Piece& piece) -> ConstDeviceMoments {
    return {moments.m + piece.first_element, moments.v + piece.first_element};
  };
  Verdicts verdicts(pipeline);
  const gpu::Stream other;
  pipeline.to_host(
      pieces.size(),
      [&](std::uint64_t i, gpu::DeviceSpan scratch, const gpu::Stream& stream) {
        const Piece& piece = pieces[i];
        std::vector<gpu::DeviceSpan> parts;
        for (const Place& place : piece.places) parts.push_back(scratch.subspan(place.begin, place.bytes));
        codec.encode(source, piece.box, moments_of(piece), statistics, parts, verdicts.of(i), stream);
        return scratch.subspan(0, piece.bytes);
      },
      [&](std::uint64_t i, std::span<const std::byte> bytes) {
        const Piece& piece = pieces[i];
        codec.raise_encode(source, piece.box, moments_of(piece), verdicts.of(i), other);
        for (std::size_t part = 0; part < piece.places.size(); ++part) {
          const Place& place = piece.places[part];
          if (i != 0 && pieces[i - 1].places[part].box == place.box) continue;  // shared scales, only once
          consume({part, place.box, bytes.subspan(place.begin, place.bytes)});
        }
      });
}

}  // namespace cairn::quant
