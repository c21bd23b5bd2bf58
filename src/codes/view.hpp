// An open checkpoint as a user sees it: F32 moments in place of stored codes and scales, and weights that can be made
// from other weights. A view is only a description; checkpoint/reader.hpp reads the tensors.
//
// Tensors of a view are numbered: first `tensors`, in catalog order; then `parts`, the codes and scales, under their
// stored names; then `casts`. With `as_stored`, the numbers are those of OpenCheckpoint::stored. Names and
// shapes refer to the view's own copy of the stored tensors, and to the checkpoint, which must outlive the view.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "cairn/dtype.hpp"
#include "opening/open.hpp"
#include "plan/tensor_map.hpp"
#include "quant/codec.hpp"

namespace cairn::codes {

enum class Origin {
  kStored,        ///< the stored tensor
  kFirstMoment,   ///< decoded
  kSecondMoment,  ///< decoded
  kCast,          ///< made from a stored tensor of a different dtype (quant/cast.hpp)
  kMapped,        ///< made from parts of View::sources
};

struct ViewTensor {
  std::string_view section;
  std::string_view name;
  DType dtype = DType::kF32;
  std::span<const std::uint64_t> shape;
  Origin origin = Origin::kStored;
  std::uint32_t source = 0;  ///< number of the stored tensor; for moments, an index into View::pairs; for kMapped, into
                             ///< View::mapped
};

/// Both moments of a parameter and their stored tensors.
struct CodedPair {
  const interop::QuantisedMoments* moments = nullptr;
  const quant::Codec* codec = nullptr;
  std::vector<quant::Part> parts;
  std::vector<std::uint32_t> stored;  ///< number of the stored tensor of each part

  /// The box of a part's stored tensor that is needed for `box` of the moments. `scales`: if the moments have scaled
  /// boxes, ScaledBox::scales of the scaled box that contains `box`.
  [[nodiscard]] Box stored_box(std::size_t part, const Box& box, std::uint64_t scales) const;
};

struct ViewOptions {
  bool decode_by_reciprocals = false;     ///< as in cairn::Quantisation
  bool master_weight_compatible = false;  ///< as in cairn::Quantisation
};
ViewOptions view_options(const Options& options);

struct View {
  /// All stored tensors as objects. Null in a loading_view() that does not need them; then `tensors` is also empty.
  std::shared_ptr<const format::StoredCheckpoint> stored;
  std::vector<ViewTensor> tensors;
  std::vector<ViewTensor> parts;
  std::vector<ViewTensor> casts;  ///< this rank's targets in a different float dtype; numbered after `parts`
  std::vector<CodedPair> pairs;
  std::vector<ViewTensor> sources;                  ///< sources of `mapped`
  std::vector<std::vector<plan::MapPiece>> mapped;  ///< the pieces of tensors of the origin kMapped
  quant::DecodeOptions decode;
  bool masters_of_model = false;       ///< model weights replace the master weights, which are not stored
  std::uint64_t* overflows = nullptr;  ///< counts the finite values that a change of dtype makes infinite; null: not
                                       ///< counted
  bool as_stored = true;  ///< every tensor is the stored tensor with its number; `tensors` has codes and scales

  /// By number. Throws std::out_of_range.
  [[nodiscard]] const ViewTensor& at(std::uint32_t number) const {
    if (number < tensors.size()) return tensors[number];
    const std::size_t rest = number - tensors.size();
    return rest < parts.size() ? parts[rest] : casts.at(rest - parts.size());
  }
};

/// decoded_view(), or an empty view if nothing can be decoded or made: loads then find the stored tensors by catalog.
View loading_view(const opening::OpenCheckpoint& checkpoint, const ViewOptions& options);

/// Finds tensors of a view, including a loading_view(), by number; fastest if the numbers ascend.
class ViewCursor {
 public:
  /// The references must outlive the object.
  ViewCursor(const opening::OpenCheckpoint& checkpoint, const View& view)
      : view_(view),
        stored_(checkpoint.stored.tensors),
        size_(view.stored ? static_cast<std::uint32_t>(view.tensors.size()) : checkpoint.stored.tensors.size()) {}

  /// The number of tensors, without parts and casts.
  [[nodiscard]] std::uint32_t size() const { return size_; }
  /// The tensor with this number, which must be in the view. Valid until the next call.
  ViewTensor at(std::uint32_t number) {
    if (view_.stored) return view_.at(number);
    const format::PlacedTensor tensor = stored_.at(number).placed();
    return {tensor.section, tensor.name, tensor.dtype, tensor.shape, Origin::kStored, number};
  }

 private:
  const View& view_;
  plan::Seeker stored_;
  std::uint32_t size_;
};

/// The stored tensors, including codes and scales.
View stored_view(const opening::OpenCheckpoint& checkpoint);

/// Rank-local; the same on all ranks. Throws Error(kFormat) if the manifest's rules for rebuilt weights are invalid.
View decoded_view(const opening::OpenCheckpoint& checkpoint, const ViewOptions& options);

/// The targets of a map whose sources are the tensors of `view`, which must not be mapped itself. The map must outlive
/// the result. Requires: plan::check_map() accepted the map.
View mapped_view(View view, const plan::TensorMap& map);

}  // namespace cairn::codes
