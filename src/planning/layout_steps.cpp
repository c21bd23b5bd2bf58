#include "planning/layout_steps.hpp"

#include <algorithm>

#include "cairn/error.hpp"

namespace cairn::checkpoint {

base::Bytes header_sizes_of_share(const plan::HfLayout& files, int rank, int ranks) {
  base::ByteWriter out;
  const auto step = static_cast<std::uint64_t>(ranks);
  for (auto file = static_cast<std::uint64_t>(rank); file < files.files(); file += step) {
    out.u64(files.header_of(static_cast<std::uint32_t>(file)).bytes.size());
  }
  return out.take();
}

std::vector<std::uint64_t> join_header_sizes(const plan::HfLayout& files, const comm::Mail& shares) {
  std::vector<std::uint64_t> sizes(files.files());
  for (std::size_t rank = 0; rank < shares.size() && rank < sizes.size(); ++rank) {
    base::ByteReader in(shares[rank]);
    for (std::size_t file = rank; file < sizes.size(); file += shares.size()) sizes[file] = in.u64();
    if (!in.done()) throw Error(ErrorKind::kInternal, "more header sizes came than there are files");
  }
  return sizes;
}

base::Bytes indexes_of_share(const plan::HfLayout& files, int rank, int ranks) {
  base::ByteWriter out;
  const auto world = static_cast<std::size_t>(ranks);
  for (std::size_t section = (static_cast<std::size_t>(rank) + world - 1) % world; section < files.sections();
       section += world) {
    const plan::HfLayout::Index index = files.index_of(section);
    if (index.name.empty()) continue;
    out.text(index.name);
    out.text(index.text);
  }
  return out.take();
}

std::map<std::string, std::string> join_indexes(comm::Mail shares) {
  std::map<std::string, std::string> indexes;
  for (base::Bytes& share : shares) {
    comm::MailReader in(share);
    while (!in.done()) {
      const std::string_view name = in.text();
      indexes.emplace(name, in.text());
    }
    share = {};  // texts are long: not two copies of all of them
  }
  return indexes;
}

void add_needed_content(plan::FileLayout& layout, const plan::HfLayout& files, std::span<const plan::Extent> extents,
                        std::span<const plan::MemoryPart> parts) {
  std::vector<std::uint32_t> own_tensors;
  std::uint32_t tensors = 0;  // the rank needs none behind
  for (const plan::MemoryPart& part : parts) {
    own_tensors.push_back(part.tensor);
    tensors = std::max(tensors, part.tensor + 1);
  }
  for (const plan::Extent& extent : extents) tensors = std::max(tensors, files.tensors_of(extent.file).back() + 1);
  layout.stored.tensors.resize(tensors);
  std::vector<std::uint32_t> written;  // files, ascending as extents are
  for (const plan::Extent& extent : extents) {
    if (!written.empty() && written.back() == extent.file) continue;
    written.push_back(extent.file);
    const std::uint64_t header_bytes = layout.files[extent.file].size_bytes - files.data_bytes_of(extent.file);
    if (extent.begin < header_bytes) {
      files.add_file(layout, extent.file, files.header_of(extent.file));
    } else {
      files.add_places(layout, files.tensors_of(extent.file));
    }
  }
  const auto place = [&](std::uint32_t tensor) { return std::pair(files.file_of(tensor), tensor); };
  std::sort(own_tensors.begin(), own_tensors.end(), [&](auto a, auto b) { return place(a) < place(b); });
  own_tensors.erase(std::unique(own_tensors.begin(), own_tensors.end()), own_tensors.end());
  for (std::size_t first = 0, last = 0; first < own_tensors.size(); first = last) {
    const std::uint32_t file = files.file_of(own_tensors[first]);
    while (last < own_tensors.size() && files.file_of(own_tensors[last]) == file) ++last;
    if (std::binary_search(written.begin(), written.end(), file)) continue;
    files.add_places(layout, std::span(own_tensors).subspan(first, last - first));
  }
}

}  // namespace cairn::checkpoint
