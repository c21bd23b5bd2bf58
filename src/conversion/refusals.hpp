// Refusals of a conversion, before it writes the first byte. Rank-local; throw Error(kUsage or kFormat).
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "opening/open.hpp"
#include "plan/catalog.hpp"

namespace cairn::conversion {

/// Refuses a destination that is the source, holds it, or lies inside a directory of it, where every reader would find
/// it; links are followed.
void refuse_inside(const std::vector<std::filesystem::path>& sources, const std::filesystem::path& destination);

/// Throws if the source omits weights that loads make from others: `option` would be silent about them.
void refuse_omitted(const opening::OpenCheckpoint& source, std::string_view option);

/// Throws if some of the tensors are weights that ZeRO-3 left without their elements.
void refuse_empty_weights(const opening::OpenCheckpoint& source, const plan::Catalog& sources,
                          std::span<const std::uint32_t> numbers);

/// Throws for a section whose file, called after it, would be taken for a part of a set.
void check_sections(const plan::Catalog& targets);

}  // namespace cairn::conversion
