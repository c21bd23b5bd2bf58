#include "conversion/refusals.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <string>
#include <system_error>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "format/manifest.hpp"
#include "interop/empty_weights.hpp"
#include "interop/file_names.hpp"
#include "os/file.hpp"

namespace cairn::conversion {

namespace fs = std::filesystem;

void refuse_inside(const std::vector<fs::path>& sources, const fs::path& destination) {
  const auto real = [](const fs::path& path) {
    std::error_code failed;
    const fs::path absolute = os::absolute_path(path);
    const fs::path found = fs::weakly_canonical(absolute, failed);
    const fs::path clean = failed ? absolute.lexically_normal() : found;
    return clean.has_filename() ? clean : clean.parent_path();
  };
  const auto lies_in = [&](const fs::path& inner, const fs::path& outer) {
    const fs::path relative = real(inner).lexically_relative(real(outer));
    return !relative.empty() && *relative.begin() != "..";
  };
  for (const fs::path& source : sources) {
    const bool is_around = lies_in(source, destination);
    if (!is_around && (!fs::is_directory(source) || !lies_in(destination, source))) continue;
    throw Error(
        ErrorKind::kUsage,
        fmt::format("'{}' {} '{}', which is to be converted; choose a place outside of it", os::shown(destination),
                    !is_around                     ? "lies in"
                    : lies_in(destination, source) ? "is"
                                                   : "holds",
                    os::shown(source)),
        {0, destination.native()});
  }
}

void refuse_omitted(const opening::OpenCheckpoint& source, std::string_view option) {
  if (!source.manifest || !source.manifest->extra.contains(format::kRebuiltKey)) return;
  throw Error(ErrorKind::kUsage,
              fmt::format("'{}' leaves weights out that loads make from others, and {} cannot tell which of them are "
                          "wanted: give --quant off, which writes them all",
                          os::shown(source.directory), option));
}

void refuse_empty_weights(const opening::OpenCheckpoint& source, const plan::Catalog& sources,
                          std::span<const std::uint32_t> numbers) {
  const interop::EmptyWeights empty = interop::empty_weights(source.stored.tensors);
  const std::set<std::string_view> names(empty.names.begin(), empty.names.end());
  const auto is_empty = [&](std::uint32_t number) {
    const plan::CatalogTensor& tensor = sources.tensors[number];
    return tensor.shape == std::vector<std::uint64_t>{0} && names.contains(tensor.name);
  };
  if (names.empty() || std::ranges::none_of(numbers, is_empty)) return;
  throw Error(ErrorKind::kFormat, fmt::format("'{}' is not converted: {}; --section and --name convert the others",
                                              os::shown(source.directory), empty.words));
}

void check_sections(const plan::Catalog& targets) {
  const std::string* last = nullptr;
  for (const plan::CatalogTensor& tensor : targets.tensors) {
    if (last != nullptr && *last == tensor.section) continue;
    last = &tensor.section;
    if (!interop::parse_data_name(tensor.section).numbered) continue;
    throw Error(
        ErrorKind::kUsage,
        fmt::format("the file of section '{}' would look like one part of a set; rename its files in the source",
                    base::printable(tensor.section)));
  }
}

}  // namespace cairn::conversion
