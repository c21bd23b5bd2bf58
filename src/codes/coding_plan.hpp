// Chooses the rank that codes each part of a moment: every block of a codec is coded by one rank.
//
// Replicas share the coding in the same way as the writing of uncoded tensors: the ranks' boxes of the first moments
// are claimed and assigned (claim_steps.hpp), and the second moments follow. A rank codes the whole blocks among the
// pieces that it must provide (own pieces). The rest is split: parts of blocks, and pieces with gaps in the flattened
// view. The elements of split blocks travel to the block's home (coding_exchange.hpp).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "codes/moment_pairs.hpp"
#include "comm/communicator.hpp"
#include "format/stored_checkpoint.hpp"
#include "plan/catalog.hpp"
#include "plan/coverage.hpp"
#include "planning/describe.hpp"

namespace cairn::codes {

/// Pieces of this rank's moments; Piece::tensor is a number in the catalog of first moments.
struct Pieces {
  std::vector<plan::Piece> own;    ///< coded by this rank itself; in coordinates of the codec's view
  std::vector<plan::Piece> split;  ///< coded block by block at the block's home; in coordinates of the tensor
};

/// Cuts `whole`, a piece of a tensor of `shape`, into own and split pieces, and appends them. Pure.
void cut_box(const quant::Codec& codec, const quant::Shape& shape, const plan::Piece& whole, Pieces& into);

/// A tensor of the catalog of first moments, in the form that codecs need.
struct CodedTensor {
  std::string section;
  quant::MomentNames names;
  quant::Source source;  ///< name and shape of the first moment
  const quant::Codec* codec = nullptr;
  std::vector<quant::Part> parts;
};

/// Requires: moments_of() recognises the name, and the codec codes the shape.
CodedTensor make_coded_tensor(const quant::Codec& codec, const plan::CatalogTensor& moment);

/// The description of the tensor's codes in file metadata.
format::Coding coding_of(const CodedTensor& tensor);

/// Converts a box of the codec's view to boxes of the tensor, in the order of the view.
std::vector<Box> boxes_in_tensor(const CodedTensor& tensor, const Box& box);

/// Whether a codec stores scales separately, which several ranks can share.
bool has_scales(const quant::Codec& codec);

struct CodingPlan {
  SortedState sorted;
  std::map<std::string, const quant::Codec*> codecs;  ///< by section
  plan::PackedCatalog firsts;                         ///< the first moments of all ranks
  Pieces pieces;                                      ///< pieces of this rank
  std::vector<plan::Replica> replicas;                ///< this rank's replicas of first moments; the same for second
  /// Ends of the ranges of tensor numbers whose scales are combined together; empty if no tensor has scales.
  std::vector<std::uint32_t> scale_batches;
  std::map<std::string, std::string> codec_names;  ///< by section, for sections with a tensor to be coded
  std::uint64_t spared_bytes = 0;                  ///< bytes of all coded moments, less those of their codes and scales
  std::vector<std::string> idle;                   ///< idle_codecs()

  [[nodiscard]] CodedTensor tensor(std::uint32_t number) const;
};

/// Collective. Throws like codecs_of(), sort_state(), exchange_catalog() and exchange_claims().
CodingPlan make_coding_plan(comm::Communicator& communicator, std::span<const Source> state,
                            const Quantisation& quantisation);

/// This rank's boxes of first moments and of second moments, in the same order.
struct MomentBoxes {
  std::vector<plan::MemoryBox> first;
  std::vector<plan::MemoryBox> second;
};
MomentBoxes moment_boxes(const SortedState& sorted, std::span<const Source> state);

}  // namespace cairn::codes
