// The tensors of a source that a conversion takes, and the dtype that it gives to weights. Pure.
//
// Patterns are matched against the names that the source shows, before a form renames or transposes tensors.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/dtype.hpp"
#include "cairn/selection.hpp"
#include "codes/view.hpp"
#include "interop/notes.hpp"
#include "plan/catalog.hpp"
#include "plan/tensor_map.hpp"

namespace cairn::conversion {

/// Whether a selection has a pattern, so that it can leave tensors out.
inline bool is_limited(const Selection& select) { return !select.sections.empty() || !select.names.empty(); }

/// The numbers of the selected tensors of a view, ascending. `sources`: catalog_of(view). In a view as stored, codes
/// and scales are selected by the names of their moments or by their own, and always all of a pair.
/// Throws Error(kNotFound), naming `place` and what is there, for a pattern that matches nothing.
std::vector<std::uint32_t> chosen(const codes::View& view, const plan::Catalog& sources, const Selection& select,
                                  std::string_view place);

/// Throws Error(kUsage) if no source has moments that are decoded otherwise with Quantisation::decode_by_reciprocals.
void refuse_idle_reciprocals(std::initializer_list<const opening::OpenCheckpoint*> sources);

/// The tensors with these numbers (ascending).
plan::Catalog part_of(const plan::Catalog& sources, const std::vector<std::uint32_t>& numbers);

/// Makes a map of part_of(sources, numbers) a map of all sources.
void use_all_sources(plan::TensorMap& map, const std::vector<std::uint32_t>& numbers);

/// The tensors of a source, and the numbers of those that are converted.
struct Chosen {
  const plan::Catalog& sources;
  const std::vector<std::uint32_t>& numbers;
};

/// Removes from the files' metadata the other names of tensors that are left out (tied weights, interop/aliases.hpp):
/// neither name could be loaded. Adds a line to `notes` for each.
void drop_aliases(const Chosen& chosen, std::map<std::string, std::string>& metadata, interop::Notes& notes);

/// Gives the floating tensors (F64, F32, F16, BF16) of section model the dtype `to`, in the catalog of targets and in
/// the view that reads them, which is a mapped_view() of it. Other sections, integers, BOOL and C64 stay. Returns the
/// number of tensors whose dtype changes. `config`: the content of the source's config.json, or "".
/// Throws Error(kUsage) if no tensor is concerned, for a model with values of 8 bits or fewer, with a
/// quantization_config, or with floats next to integer weights (the scales belong to the codes), and for a weight that
/// was rounded before.
std::uint64_t cast_weights(plan::Catalog& targets, codes::View& view, DType to, const std::string& config,
                           interop::Notes& notes);

}  // namespace cairn::conversion
