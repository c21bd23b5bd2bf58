#include "interop/rank_slices.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "base/digits.hpp"
#include "base/text.hpp"
#include "interop/file_names.hpp"

namespace cairn::interop {

const std::string* rank_slice(const DataSet& set, const Reading& reading) {
  const auto is_of_adapter = [](const format::TensorEntry& tensor) {
    return tensor.name.find("lora_") != std::string_view::npos;
  };
  if (reading.directory().is_of_cairn()) return nullptr;
  const auto& headers = reading.directory().safetensors;
  for (const std::string& file : set.index_file.empty() ? set.files : set.index.files) {
    if (!names_a_rank(file)) continue;
    const auto header = headers.find(file);  // read_sets() reports a missing file
    if (header == headers.end()) continue;
    const auto& tensors = header->second.tensors;
    if (tensors.empty() || !std::ranges::all_of(tensors, is_of_adapter)) return &file;
  }
  return nullptr;
}

void refuse_rank_slices(const DataSet& set, const Reading& reading) {
  if (set.index_file.empty() && !reading.directory().is_of_cairn()) {
    const auto part = std::ranges::find_if(set.files, looks_numbered);
    if (part != set.files.end()) {
      throw reading.error(ErrorKind::kFormat, *part,
                          "by its name this is one of several files, but such names are not read; call them "
                          "'model-00001-of-00002.safetensors' and so on");
    }
  }
  const std::string* const file = rank_slice(set, reading);
  if (file == nullptr) return;
  throw reading.error(ErrorKind::kFormat, *file,
                      "its name says that it holds one rank's slices, and nothing here says how they make up whole "
                      "tensors; join them with the program that wrote them, or rename the file if it is whole");
}

void warn_of_alike_files(Reading& reading, const std::function<NameSum(const std::string& file)>& names_of) {
  if (reading.directory().is_of_cairn()) return;
  std::map<std::string, std::vector<std::string>> numbered;  // by the name without its numbers
  for (const auto& [name, set] : reading.sets()) {
    if (set.index_file.empty() && set.files.size() == 1)
      numbered[base::without_numbers(name)].push_back(set.files.front());
  }
  for (const auto& [name, files] : numbered) {
    if (files.size() == 1) continue;
    const NameSum names = names_of(files.front());
    const auto is_alike = [&](const std::string& file) { return names_of(file) == names; };
    const auto alike = static_cast<std::uint64_t>(std::ranges::count_if(files, is_alike));
    if (names.count == 0 || alike == 1) continue;
    const std::string& second = *std::ranges::find_if(files.begin() + 1, files.end(), is_alike);
    reading.warn(
        fmt::format("{} and {}{} hold tensors of the same names: if they are slices of ranks, join them with "
                    "the program that wrote them, and if they are several steps, give one file; as they are, "
                    "each is a section",
                    shown(files.front()), shown(second),
                    alike == 2 ? "" : fmt::format(" and {} more", base::group_digits(alike - 2))));
  }
}

}  // namespace cairn::interop
