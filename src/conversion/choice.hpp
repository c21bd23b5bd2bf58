// The tensors of a source that a conversion takes. Pure.
//
// Patterns are matched against the names that the source shows, before a form renames or transposes tensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/selection.hpp"
#include "codes/view.hpp"
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

/// The tensors with these numbers (ascending).
plan::Catalog part_of(const plan::Catalog& sources, const std::vector<std::uint32_t>& numbers);

/// Makes a map of part_of(sources, numbers) a map of all sources.
void use_all_sources(plan::TensorMap& map, const std::vector<std::uint32_t>& numbers);

}  // namespace cairn::conversion
