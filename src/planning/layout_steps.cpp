#include "planning/layout_steps.hpp"

#include <algorithm>
#include <utility>

#include "base/checked.hpp"
#include "base/internal_error.hpp"
#include "comm/agree.hpp"

namespace cairn::planning {

base::Bytes header_sizes_of_share(const plan::HfLayout& files, int rank, int ranks) {
  base::ByteWriter out;
  const auto step = static_cast<std::uint64_t>(ranks);
  for (auto file = static_cast<std::uint64_t>(rank); file < files.files(); file += step) {
    out.u64(files.header_of(static_cast<std::uint32_t>(file)).bytes.size());
  }
  return out.take();
}

std::vector<std::uint64_t> join_header_sizes(const plan::HfLayout& files, const comm::Messages& shares) {
  std::vector<std::uint64_t> sizes(files.files());
  for (std::size_t rank = 0; rank < shares.size() && rank < sizes.size(); ++rank) {
    base::ByteReader in(shares[rank]);
    for (std::size_t file = rank; file < sizes.size(); file += shares.size()) sizes[file] = in.u64();
    if (!in.done()) throw base::internal_error("more header sizes came than there are files");
  }
  return sizes;
}

base::Bytes indexes_of_share(const plan::HfLayout& files, int rank, int ranks) {
  base::ByteWriter out;
  const auto world = static_cast<std::size_t>(ranks);
  for (std::size_t section = (static_cast<std::size_t>(rank) + world - 1) % world; section < files.sections();
       section += world) {
    const plan::IndexFile index = files.index_of(section);
    if (index.name.empty()) continue;
    out.text(index.name);
    out.text(index.text);
  }
  return out.take();
}

std::map<std::string, std::string> join_indexes(comm::Messages shares) {
  std::map<std::string, std::string> indexes;
  for (base::Bytes& share : shares) {
    comm::MessageReader in(share);
    while (!in.done()) {
      const std::string_view name = in.text();
      indexes.emplace(name, in.text());
    }
    share = {};  // indexes are long: each share is freed once it is copied
  }
  return indexes;
}

void add_headers(plan::FileLayout& layout, const plan::HfLayout& files, std::span<const plan::Extent> extents) {
  for (const plan::Extent& extent : extents) {
    const std::uint64_t header_bytes = layout.files[extent.file].size_bytes - files.data_bytes_of(extent.file);
    if (extent.begin >= header_bytes || !layout.files[extent.file].header.empty()) continue;
    files.add_header(layout, extent.file, files.header_of(extent.file));
  }
}

format::StoredCheckpoint place_pieces(const plan::FileLayout& layout, const plan::HfLayout& files,
                                      std::span<plan::Piece> pieces) {
  std::vector<std::uint32_t> tensors;
  for (const plan::Piece& piece : pieces) tensors.push_back(piece.tensor);
  std::sort(tensors.begin(), tensors.end());
  tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
  for (plan::Piece& piece : pieces) {
    const auto at = std::lower_bound(tensors.begin(), tensors.end(), piece.tensor);
    piece.tensor = static_cast<std::uint32_t>(at - tensors.begin());
  }
  return files.places_of(layout, tensors);
}

std::vector<std::uint64_t> exchange_header_sizes(comm::Communicator& communicator, const plan::HfLayout& files) {
  base::Bytes mine;
  comm::agree(communicator, "measure the headers",
              [&] { mine = header_sizes_of_share(files, communicator.rank(), communicator.size()); });
  const comm::Messages all = communicator.all_gather(mine);
  std::vector<std::uint64_t> sizes;
  comm::agree(communicator, "collect the sizes of headers", [&] { sizes = join_header_sizes(files, all); });
  return sizes;
}

std::map<std::string, std::string> exchange_indexes(comm::Communicator& communicator, const plan::HfLayout& files) {
  base::Bytes mine;
  comm::agree(communicator, "make the indexes",
              [&] { mine = indexes_of_share(files, communicator.rank(), communicator.size()); });
  comm::Messages shares = communicator.gather(mine, 0);
  mine = {};
  std::map<std::string, std::string> indexes;
  comm::agree_on_root(communicator, "collect the indexes", 0, [&] { indexes = join_indexes(std::move(shares)); });
  return indexes;
}

}  // namespace cairn::planning
