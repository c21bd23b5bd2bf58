// Tensors are split into files in catalog order by the rule of format/hf_index.hpp, then ordered inside a file as in
// the safetensors reference implementation.
#include "plan/hf_layout.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <set>
#include <utility>

#include "base/checked.hpp"
#include "base/digits.hpp"
#include "base/internal_error.hpp"
#include "base/text.hpp"
#include "format/hf_index.hpp"
#include "format/stored_checkpoint.hpp"
#include "shard/box_math.hpp"

namespace cairn::plan {
namespace {

std::string stem_of(const std::string& section, const LayoutOptions& options) {
  const auto own = options.stems.find(section);
  if (own != options.stems.end()) return own->second;
  if (section == "adapter") return "adapter_model";
  return section;
}

/// The number of tensors in each run that stays in one file: one, or all states of a parameter.
std::vector<std::size_t> runs_together(const PackedCatalog& catalog, std::uint32_t first, std::size_t count,
                                       bool keeps_states_together) {
  if (!keeps_states_together) return std::vector<std::size_t>(count, 1);
  std::vector<std::size_t> runs;
  std::string parameter;
  PackedCatalog::Cursor at(catalog, first);
  for (std::size_t i = 0; i < count; ++i) {
    at.next();
    const std::string_view own = at.name().substr(0, at.name().find('/'));
    if (runs.empty() || own != parameter) {
      parameter = own;
      runs.push_back(0);
    }
    ++runs.back();
  }
  return runs;
}

void check_section_name(const std::string& section) {
  const bool has_folder = section.find('/') != std::string::npos;
  if (!has_folder) {
    try {
      format::check_relative_path(section, "section name");
      return;
    } catch (const Error&) {
      // The message below is about section names.
    }
  }
  throw Error(ErrorKind::kUsage, fmt::format("section '{}' cannot name a file; use letters, digits, '_', '-' and '.'",
                                             base::printable(section)));
}

}  // namespace

HfLayout::HfLayout(PackedCatalog catalog, LayoutOptions options)
    : catalog_(std::move(catalog)), options_(std::move(options)), file_of_(catalog_.size()) {
  std::vector<std::uint64_t> sizes;  // sizes of the tensors in the open section
  Section open;
  for (PackedCatalog::Cursor cursor(catalog_, 0); cursor.next();) {
    if (cursor.section() != open.name) {
      add_section(open, sizes);
      open = {std::string(cursor.section()), cursor.number(), cursor.number(), files(), files()};
      sizes.clear();
    }
    const bool known = cursor.same_type() && !sizes.empty();
    sizes.push_back(known ? sizes.back() : format::tensor_bytes(cursor.dtype(), cursor.shape(), cursor.name()));
  }
  add_section(open, sizes);
  check_names();
}

void HfLayout::add_section(Section section, std::span<const std::uint64_t> sizes) {
  if (sizes.empty()) return;
  check_section_name(section.name);
  const std::vector<std::size_t> runs =
      runs_together(catalog_, section.first_tensor, sizes.size(), options_.keeps_states_together);
  std::vector<format::SplitItem> items;
  std::vector<std::size_t> begins = {0};
  items.reserve(runs.size());
  for (const std::size_t length : runs) {
    std::uint64_t bytes = 0;
    for (const std::uint64_t size : sizes.subspan(begins.back(), length))
      bytes = base::add(bytes, size, "size of states");
    items.push_back({bytes, -1});
    begins.push_back(begins.back() + length);
  }
  const std::vector<bool> apart = runs_apart(section, begins);
  Groups groups;
  for (const bool is_apart : {true, false}) {
    std::vector<std::size_t> chosen;
    std::vector<format::SplitItem> chosen_items;
    for (std::size_t run = 0; run < items.size(); ++run) {
      if (apart[run] != is_apart) continue;
      chosen.push_back(run);
      chosen_items.push_back(items[run]);
    }
    if (chosen.empty()) continue;
    Groups split = format::split_hf(chosen_items, options_.max_file_bytes);
    for (std::vector<std::size_t>& group : split) {
      for (std::size_t& run : group) run = chosen[run];
    }
    split = split_headers(section, std::move(split), begins, items);
    groups.insert(groups.end(), std::make_move_iterator(split.begin()), std::make_move_iterator(split.end()));
  }
  const std::string stem = stem_of(section.name, options_);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const bool is_single = groups.size() == 1 && options_.numbers_single_files;
    File file{is_single ? stem + "-00001-of-00001.safetensors" : format::hf_file_name(stem, g, groups.size()),
              static_cast<std::uint32_t>(sections_.size()),
              0,
              {},
              apart[groups[g].front()]};
    for (const std::size_t run : groups[g]) {
      for (std::size_t i = begins[run]; i < begins[run + 1]; ++i) {
        const auto tensor = static_cast<std::uint32_t>(section.first_tensor + i);
        file.tensors.push_back(tensor);
        file.data_bytes = base::add(file.data_bytes, sizes[i], "size of a data file");
        file_of_[tensor] = base::narrow<std::uint32_t>(files_.size(), "number of files");
      }
    }
    tensor_bytes_ = base::add(tensor_bytes_, file.data_bytes, "size of all tensors");
    files_.push_back(std::move(file));
  }
  section.end_tensor += static_cast<std::uint32_t>(sizes.size());
  section.end_file = files();
  sections_.push_back(std::move(section));
}

std::vector<bool> HfLayout::runs_apart(const Section& section, std::span<const std::size_t> begins) const {
  std::vector<bool> apart(begins.size() - 1, static_cast<bool>(options_.is_apart));
  if (!options_.is_apart) return apart;
  PackedCatalog::Cursor at(catalog_, section.first_tensor);
  for (std::size_t run = 0; run < apart.size(); ++run) {
    for (std::size_t i = begins[run]; i < begins[run + 1]; ++i) {
      at.next();
      if (!options_.is_apart(at)) apart[run] = false;
    }
  }
  return apart;
}

HfLayout::Groups HfLayout::split_headers(const Section& section, Groups groups, std::span<const std::size_t> begins,
                                         std::span<const format::SplitItem> items) const {
  std::vector<std::uint64_t> run_bytes(items.size());  // in the header, but for the digits of offsets
  PackedCatalog::Cursor at(catalog_, section.first_tensor);
  for (std::size_t run = 0; run < items.size(); ++run) {
    for (std::size_t i = begins[run]; i < begins[run + 1]; ++i) {
      at.next();
      run_bytes[run] += format::entry_bytes(stored_dtype(at.dtype()), at.shape(), at.name(), 0);
      if (at.coding().empty() || !options_.writes_codings) continue;
      run_bytes[run] += format::quoted_bytes(format::kCodingKey) + format::quoted_bytes(at.name()) +
                        format::quoted_bytes(at.coding());
    }
  }
  const auto own = options_.metadata_of.find(section.name);
  std::uint64_t first_bytes = std::string_view(R"({"__metadata__":{},})").size();
  for (const auto& [key, value] : own == options_.metadata_of.end() ? options_.metadata : own->second) {
    first_bytes += format::quoted_bytes(key) + format::quoted_bytes(value) + 2;
  }
  constexpr std::uint64_t kPrefixBytes = 8;
  const std::uint64_t align_bytes = std::max<std::uint64_t>(options_.align_bytes, 1);  // 0 is refused with the header
  const std::uint64_t framed = options_.max_header_bytes + kPrefixBytes;
  const std::uint64_t most_bytes = framed / align_bytes * align_bytes;  // with the prefix
  Groups split;
  for (std::vector<std::size_t>& group : groups) {
    std::uint64_t data_bytes = 0;
    for (const std::size_t run : group) data_bytes += items[run].bytes;
    const std::uint64_t digits = base::digits_of(data_bytes);
    std::uint64_t bytes = kPrefixBytes + first_bytes;
    std::vector<std::size_t> open;
    for (const std::size_t run : group) {
      const std::uint64_t more = run_bytes[run] + 2 * digits * (begins[run + 1] - begins[run]);
      if (!open.empty() && bytes + more > most_bytes) {
        split.push_back(std::exchange(open, {}));
        bytes = kPrefixBytes + first_bytes;
      }
      bytes += more;
      open.push_back(run);
    }
    split.push_back(std::move(open));
  }
  return split;
}

DType HfLayout::stored_dtype(DType dtype) const {
  return options_.bf16_as_u16 && dtype == DType::kBF16 ? DType::kU16 : dtype;
}

format::StoredTensor HfLayout::stored_tensor(CatalogTensor tensor, std::uint32_t file,
                                             std::uint64_t offset_bytes) const {
  const DType dtype = stored_dtype(tensor.dtype);
  format::StoredBox where{file, offset_bytes, shard::whole(tensor.shape)};
  return {std::move(tensor.section), std::move(tensor.name), dtype, std::move(tensor.shape), {std::move(where)}};
}

std::vector<std::uint32_t> HfLayout::group_of_files() const {
  std::vector<std::uint32_t> groups;
  groups.reserve(files_.size());
  for (const File& file : files_) groups.push_back(2 * file.section + (file.is_apart ? 0 : 1));
  return groups;
}

/// Two sections may need the same file name, such as "adapter" and "adapter_model".
void HfLayout::check_names() const {
  std::set<std::string_view> seen;
  for (const File& file : files_) {
    if (seen.insert(file.name).second) continue;
    throw Error(ErrorKind::kUsage,
                fmt::format("two sections would both write file '{}' (one of them is '{}'); rename one",
                            base::printable(file.name), base::printable(sections_[file.section].name)));
  }
}

void HfLayout::for_each_tensor(std::uint32_t file,
                               const std::function<void(const PackedCatalog::Cursor&)>& visit) const {
  const std::vector<std::uint32_t>& members = files_[file].tensors;
  PackedCatalog::Cursor cursor(catalog_, members.empty() ? 0 : members.front());
  for (const std::uint32_t member : members) {
    // Skips the few tensors between two members that were too large for this file.
    do cursor.next();
    while (cursor.number() != member);
    visit(cursor);
  }
}

std::vector<Tensor> HfLayout::content_of(std::uint32_t file) const {
  std::vector<Tensor> tensors;
  tensors.reserve(files_[file].tensors.size());
  for_each_tensor(file, [&](const PackedCatalog::Cursor& at) {
    tensors.push_back({std::string(at.name()), stored_dtype(at.dtype()), {at.shape().begin(), at.shape().end()}});
  });
  return tensors;
}

format::EncodedHeader HfLayout::header_of(std::uint32_t file) const {
  const auto own = options_.metadata_of.find(sections_[files_[file].section].name);
  std::map<std::string, std::string> metadata = own == options_.metadata_of.end() ? options_.metadata : own->second;
  for_each_tensor(file, [&](const PackedCatalog::Cursor& at) {
    if (!at.coding().empty() && options_.writes_codings)
      metadata.insert_or_assign(fmt::format("{}{}", format::kCodingKey, at.name()), at.coding());
  });
  try {
    return format::encode_header(content_of(file), metadata, options_.align_bytes);
  } catch (const format::SafetensorsError& error) {  // the state cannot be written; no file is broken
    throw Error(ErrorKind::kUsage,
                fmt::format("file '{}' cannot be written: {}", base::printable(files_[file].name), error.what()));
  }
}

FileLayout HfLayout::without_content(std::span<const std::uint64_t> header_bytes) const {
  if (header_bytes.size() != files_.size()) {
    throw base::internal_error(
        fmt::format("{} header sizes were given for {} files", header_bytes.size(), files_.size()));
  }
  FileLayout layout;
  layout.files.reserve(files_.size());
  layout.stored.files.reserve(files_.size());
  for (std::size_t f = 0; f < files_.size(); ++f) {
    const std::uint64_t size = base::add(header_bytes[f], files_[f].data_bytes, "size of a data file");
    layout.files.push_back({files_[f].name, sections_[files_[f].section].name, {}, size});
    layout.stored.files.push_back({files_[f].name, size});
  }
  return layout;
}

void HfLayout::add_header(FileLayout& layout, std::uint32_t file, format::EncodedHeader header) const {
  const File& source = files_[file];
  const std::uint64_t header_bytes = header.bytes.size();
  if (header_bytes + source.data_bytes != layout.files[file].size_bytes) {
    throw base::internal_error(
        fmt::format("file '{}' has a header of {} bytes and {} bytes of tensors, but {} bytes were agreed on",
                    base::printable(source.name), header_bytes, source.data_bytes, layout.files[file].size_bytes));
  }
  layout.files[file].header = std::move(header.bytes);
}

void HfLayout::add_file(FileLayout& layout, std::uint32_t file, format::EncodedHeader header) const {
  const std::vector<std::uint64_t> offsets = std::move(header.data_offset);
  add_header(layout, file, std::move(header));
  const std::uint64_t header_bytes = layout.files[file].header.size();
  std::size_t m = 0;
  for_each_tensor(file, [&](const PackedCatalog::Cursor& at) {
    layout.stored.tensors[at.number()] = stored_tensor(at.tensor(), file, header_bytes + offsets[m++]);
  });
}

format::StoredCheckpoint HfLayout::places_of(const FileLayout& layout, std::span<const std::uint32_t> tensors) const {
  if (!tensors.empty() && tensors.back() >= catalog_.size()) {
    throw base::internal_error(
        fmt::format("the place of tensor number {} of {} is asked for", tensors.back(), catalog_.size()));
  }
  format::StoredCheckpoint places;
  places.tensors.resize(tensors.size());
  std::vector<std::uint32_t> order(tensors.size());  // by file
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return file_of_[tensors[a]] < file_of_[tensors[b]]; });
  for (std::size_t first = 0, last = 0; first < order.size(); first = last) {
    const std::uint32_t file = file_of_[tensors[order[first]]];
    std::vector<Wanted> wanted;
    for (; last < order.size() && file_of_[tensors[order[last]]] == file; ++last) {
      wanted.push_back({tensors[order[last]], &places.tensors[order[last]]});
    }
    put_places(layout, file, wanted);
  }
  return places;
}

void HfLayout::put_places(const FileLayout& layout, std::uint32_t file, std::span<const Wanted> wanted) const {
  struct Member {
    format::StoredOrder order;
    std::uint64_t bytes = 0;
    std::size_t wanted = 0;  // position in `wanted`; wanted.size() if not wanted
  };
  std::vector<Member> members;
  std::deque<std::string> names;  // owns the names in `members`
  std::size_t found = 0;
  for_each_tensor(file, [&](const PackedCatalog::Cursor& at) {
    const bool is_wanted = found < wanted.size() && wanted[found].tensor == at.number();
    names.emplace_back(at.name());
    members.push_back({{stored_dtype(at.dtype()), names.back()},
                       format::tensor_bytes(at.dtype(), at.shape(), at.name()),
                       is_wanted ? found : wanted.size()});
    if (is_wanted) *wanted[found++].to = stored_tensor(at.tensor(), file, 0);
  });
  if (found != wanted.size()) {
    throw base::internal_error(fmt::format("{} of {} tensors are in file number {}", found, wanted.size(), file));
  }
  std::sort(members.begin(), members.end(), [](const Member& a, const Member& b) { return a.order < b.order; });
  std::uint64_t offset = layout.files[file].size_bytes - files_[file].data_bytes;  // after the header
  for (const Member& member : members) {
    if (member.wanted < wanted.size()) wanted[member.wanted].to->boxes[0].offset_bytes = offset;
    offset += member.bytes;
  }
}

std::string HfLayout::index_name(std::size_t section) const {
  return stem_of(sections_[section].name, options_) + ".safetensors.index.json";
}

IndexFile HfLayout::index_of(std::size_t section) const {
  if (options_.index_of) return options_.index_of(*this, section);
  const Section& source = sections_[section];
  if (source.end_file - source.first_file < 2) return {};
  std::vector<std::size_t> name_begins;
  name_begins.reserve(source.end_tensor - source.first_tensor + 1);
  std::string names;  // end to end
  format::IndexTotals totals;
  for (PackedCatalog::Cursor at(catalog_, source.first_tensor); at.next() && at.number() < source.end_tensor;) {
    name_begins.push_back(names.size());
    names += at.name();
    if (source.name != "model") continue;
    totals.parameters = base::add(totals.parameters, shard::elements_of(at.shape()), "number of parameters");
  }
  name_begins.push_back(names.size());
  std::vector<std::string> files;
  for (std::uint32_t f = source.first_file; f < source.end_file; ++f) {
    files.push_back(files_[f].name);
    totals.size_bytes = base::add(totals.size_bytes, files_[f].data_bytes, "total size of a section");
  }
  std::vector<format::IndexEntry> entries;
  entries.reserve(name_begins.size());
  for (std::size_t i = 0; i + 1 < name_begins.size(); ++i) {
    const auto name = std::string_view(names).substr(name_begins[i], name_begins[i + 1] - name_begins[i]);
    entries.push_back({name, file_of_[source.first_tensor + i] - source.first_file});
  }
  return {index_name(section), format::encode_hf_index(entries, files, totals)};
}

FileLayout lay_out_hf(const Catalog& catalog, const LayoutOptions& options) {
  const HfLayout files(PackedCatalog(catalog), options);
  std::vector<format::EncodedHeader> headers;
  std::vector<std::uint64_t> header_bytes;
  for (std::uint32_t f = 0; f < files.files(); ++f) {
    headers.push_back(files.header_of(f));
    header_bytes.push_back(headers.back().bytes.size());
  }
  FileLayout layout = files.without_content(header_bytes);
  layout.stored.tensors.resize(files.catalog().size());
  for (std::uint32_t f = 0; f < files.files(); ++f) files.add_file(layout, f, std::move(headers[f]));
  for (std::size_t section = 0; section < files.sections(); ++section) {
    IndexFile index = files.index_of(section);
    if (!index.name.empty()) layout.index_files.emplace(std::move(index.name), std::move(index.text));
  }
  return layout;
}

}  // namespace cairn::plan
