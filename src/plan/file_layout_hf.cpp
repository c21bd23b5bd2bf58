// Hugging Face files: split by the rule of format/hf_split.hpp in catalog order, then ordered inside a file as the
// safetensors reference does.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>

#include "base/checked.hpp"
#include "base/units.hpp"
#include "format/hf_index.hpp"
#include "format/hf_split.hpp"
#include "format/safetensors.hpp"
#include "plan/file_layout.hpp"
#include "shard/box_math.hpp"

namespace cairn::plan {
namespace {

/// Tensors [first, last) of the catalog: one section.
struct SectionRange {
  std::size_t first = 0;
  std::size_t last = 0;
};

std::string stem_of(const std::string& section) {
  if (section == "adapter") return "adapter_model";
  return section;
}

void check_section_name(const std::string& section) {
  const bool has_folder = section.find('/') != std::string::npos;
  if (!has_folder) {
    try {
      format::check_relative_path(section, "section name");
      return;
    } catch (const Error&) {
      // The message below says it for sections.
    }
  }
  throw Error(ErrorKind::kUsage, fmt::format("section '{}' cannot name a file; use letters, digits, '_', '-' and '.'",
                                             base::printable(section)));
}

class HfLayout {
 public:
  HfLayout(const Catalog& catalog, const LayoutOptions& options) : catalog_(catalog), options_(options) {
    for (const CatalogTensor& tensor : catalog.tensors) {
      layout_.stored.tensors.push_back({tensor.section, tensor.name, tensor.dtype, tensor.shape, {}});
    }
  }

  FileLayout run() {
    const auto& tensors = catalog_.tensors;
    for (SectionRange range; range.first < tensors.size(); range.first = range.last) {
      range.last = range.first;
      while (range.last < tensors.size() && tensors[range.last].section == tensors[range.first].section) ++range.last;
      add_section(range);
    }
    check_names();
    return std::move(layout_);
  }

 private:
  void add_section(SectionRange range) {
    const std::string& section = catalog_.tensors[range.first].section;
    check_section_name(section);
    std::vector<format::SplitItem> items;
    for (std::size_t i = range.first; i < range.last; ++i) {
      const CatalogTensor& tensor = catalog_.tensors[i];
      items.push_back({format::tensor_bytes(tensor.dtype, tensor.shape, tensor.name), -1});
    }
    const auto groups = format::split_hf(items, options_.max_file_bytes);
    const std::string stem = stem_of(section);
    std::map<std::string, std::string> weight_map;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const std::string name = format::hf_file_name(stem, g, groups.size());
      for (const std::size_t i : groups[g]) weight_map[catalog_.tensors[range.first + i].name] = name;
      add_file(name, range, groups[g]);
    }
    if (groups.size() > 1) add_index(stem, range, items, weight_map);
  }

  void add_file(const std::string& name, SectionRange range, std::span<const std::size_t> members) {
    std::vector<format::TensorToStore> tensors;
    for (const std::size_t i : members) {
      const CatalogTensor& tensor = catalog_.tensors[range.first + i];
      tensors.push_back({tensor.name, tensor.dtype, tensor.shape});
    }
    format::EncodedHeader header = format::encode_header(tensors, options_.metadata, options_.align_bytes);
    const auto file = base::narrow<std::uint32_t>(layout_.files.size(), "number of files");
    const std::uint64_t size = base::add(header.bytes.size(), header.data_bytes, "size of a data file");
    for (std::size_t m = 0; m < members.size(); ++m) {
      const std::size_t tensor = range.first + members[m];
      layout_.stored.tensors[tensor].boxes = {
          {file, header.bytes.size() + header.data_offset[m], shard::whole(catalog_.tensors[tensor].shape)}};
    }
    layout_.stored.files.push_back({name, size});
    layout_.files.push_back({name, catalog_.tensors[range.first].section, std::move(header.bytes), size});
  }

  void add_index(const std::string& stem, SectionRange range, std::span<const format::SplitItem> items,
                 const std::map<std::string, std::string>& weight_map) {
    std::uint64_t total_size = 0;
    for (const format::SplitItem& item : items)
      total_size = base::add(total_size, item.bytes, "total size of a section");
    std::uint64_t parameters = 0;
    if (catalog_.tensors[range.first].section == "model") {
      for (std::size_t i = range.first; i < range.last; ++i) {
        parameters = base::add(parameters, shard::elements_of(catalog_.tensors[i].shape), "number of parameters");
      }
    }
    layout_.index_files[stem + ".safetensors.index.json"] = format::encode_hf_index(weight_map, total_size, parameters);
  }

  /// Two sections may ask for one file name: "adapter" and "adapter_model", say.
  void check_names() const {
    std::set<std::string> seen;
    for (const DataFile& file : layout_.files) {
      if (seen.insert(file.name).second) continue;
      throw Error(ErrorKind::kUsage,
                  fmt::format("two sections would both write file '{}' (one of them is '{}'); rename one",
                              base::printable(file.name), base::printable(file.section)));
    }
  }

  const Catalog& catalog_;
  const LayoutOptions& options_;
  FileLayout layout_;
};

}  // namespace

FileLayout lay_out_hf(const Catalog& catalog, const LayoutOptions& options) { return HfLayout(catalog, options).run(); }

}  // namespace cairn::plan
