// torch DCP's sharded safetensors, as HuggingFaceStorageWriter(save_distributed=True) of torch 2.8 and later writes
// them.
//
// A file has at most one box of a tensor, under the tensor's name; `__metadata__` has the first element of each box.
// Readers list the directory and ignore the numbers in file names. torch's consolidation fails on a file without
// tensors, so a rank that stores nothing has no file. The global shape is not stored: readers take the largest end of
// all boxes.
#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "base/checked.hpp"
#include "base/internal_error.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "cairn/tensor.hpp"
#include "format/safetensors.hpp"
#include "plan/coverage.hpp"
#include "plan/file_layout.hpp"
#include "shard/box_math.hpp"

namespace cairn::plan {
namespace {

/// Box number `stored` of a tensor.
struct Placed {
  std::uint32_t tensor = 0;
  std::uint32_t stored = 0;
};
using FileContent = std::vector<Placed>;

/// Escaped as Python's json.dumps does it. ShardLayout refuses sections that are not UTF-8, encode_header names.
std::string json_text(const std::string& text) { return base::json_quoted(text, {.ascii = true, .is_lenient = true}); }

/// Written as Python's json.dumps does it: {"name": {"saved_offsets": [0, 8]}, ...}.
std::string sharding_info(const std::vector<std::string>& names, const FileContent& content,
                          const format::StoredCheckpoint& stored) {
  std::string out = "{";
  for (const Placed& placed : content) {
    if (out.size() > 1) out += ", ";
    out += fmt::format("{}: {{\"saved_offsets\": [{}]}}", json_text(names[placed.tensor]),
                       base::joined(stored.tensors[placed.tensor].boxes[placed.stored].box.offset));
  }
  return out + "}";
}

/// {"name as stored": ["section", "name"], ...} for the tensors outside section "model"; empty if there are none.
std::string section_info(const std::vector<std::string>& names, const FileContent& content, const Catalog& catalog) {
  std::string out;
  for (const Placed& placed : content) {
    const CatalogTensor& tensor = catalog.tensors[placed.tensor];
    if (tensor.section == "model") continue;
    out += fmt::format("{}{}: [{}, {}]", out.empty() ? "{" : ", ", json_text(names[placed.tensor]),
                       json_text(tensor.section), json_text(tensor.name));
  }
  return out.empty() ? out : out + "}";
}

class ShardLayout {
 public:
  ShardLayout(const Catalog& catalog, std::size_t ranks, const LayoutOptions& options)
      : catalog_(catalog), options_(options), content_(ranks), bytes_(ranks, 0) {
    for (const CatalogTensor& tensor : catalog.tensors) {
      if (!base::is_utf8(tensor.section)) {
        throw Error(ErrorKind::kUsage,
                    fmt::format("section '{}' is not UTF-8, so no header can hold it; rename its files "
                                "in the source",
                                base::printable(tensor.section)));
      }
      names_.push_back(tensor.section == "model" ? tensor.name : tensor.section + "." + tensor.name);
      layout_.stored.tensors.push_back({tensor.section, tensor.name, tensor.dtype, tensor.shape, {}});
    }
    std::set<std::string_view> seen;
    for (const std::string& name : names_) {
      if (seen.insert(name).second) continue;
      throw Error(ErrorKind::kUsage, fmt::format("two tensors would both be stored under the name '{}'; rename one",
                                                 base::printable(name)));
    }
  }

  /// Assigns every distinct box of the tensor to that holder of the box that stores the fewest bytes so far.
  void assign(std::uint32_t tensor, std::vector<Piece> claims) {
    const CatalogTensor& described = catalog_.tensors[tensor];
    int first_rank = claims.empty() ? 0 : claims.front().rank;
    for (const Piece& claim : claims) first_rank = std::min(claim.rank, first_rank);
    std::vector<ReplicaGroup> groups = check_coverage(described, std::move(claims));
    if (groups.empty()) {
      groups.push_back({shard::whole(described.shape), {{first_rank, 0}}});  // without elements, but part of the state
    }
    std::map<int, std::size_t> boxes_of_rank;
    for (ReplicaGroup& group : groups) {
      const auto least =
          std::min_element(group.holders.begin(), group.holders.end(),
                           [&](const auto& a, const auto& b) { return bytes_of(a.rank) < bytes_of(b.rank); });
      auto& stored_boxes = layout_.stored.tensors[tensor].boxes;
      const auto number = base::narrow<std::uint32_t>(stored_boxes.size(), "number of boxes of a tensor");
      auto& files = content_[static_cast<std::size_t>(least->rank)];
      const std::size_t file = boxes_of_rank[least->rank]++;
      if (file == files.size()) files.emplace_back();
      files[file].push_back({tensor, number});
      bytes_of(least->rank) += format::tensor_bytes(described.dtype, group.box.shape, described.name);
      stored_boxes.push_back({0, 0, std::move(group.box)});
    }
  }

  FileLayout finish() {
    for (std::size_t rank = 0; rank < content_.size(); ++rank) {
      for (std::size_t k = 0; k < content_[rank].size(); ++k) {
        add_file(fmt::format("shard-{:05d}-model-{:05d}-of-{:05d}.safetensors", rank + 1, k + 1, content_[rank].size()),
                 content_[rank][k]);
      }
    }
    return std::move(layout_);
  }

 private:
  std::uint64_t& bytes_of(int rank) { return bytes_[static_cast<std::size_t>(rank)]; }

  void add_file(const std::string& name, const FileContent& content) {
    std::vector<Tensor> tensors;
    for (const Placed& placed : content) {
      tensors.push_back({names_[placed.tensor], catalog_.tensors[placed.tensor].dtype, box_of(placed).box.shape});
    }
    auto metadata = options_.metadata;
    metadata["DCP_SHARDING_INFO"] = sharding_info(names_, content, layout_.stored);
    metadata["DCP_VERSION"] = "1.0";
    metadata["format"] = "pt";
    if (std::string sections = section_info(names_, content, catalog_); !sections.empty()) {
      metadata["cairn.sections"] = std::move(sections);
    }
    format::EncodedHeader header = encoded(name, tensors, metadata);
    const auto file = base::narrow<std::uint32_t>(layout_.files.size(), "number of files");
    for (std::size_t i = 0; i < content.size(); ++i) {
      format::StoredBox& box = box_of(content[i]);
      box.file = file;
      box.offset_bytes = header.bytes.size() + header.data_offset[i];
    }
    const std::uint64_t size = base::add(header.bytes.size(), header.data_bytes, "size of a data file");
    layout_.stored.files.push_back({name, size});
    layout_.files.push_back({name, "model", std::move(header.bytes), size});
  }

  /// The header of a file. A rank's boxes are not spread over more files than their tensors need.
  [[nodiscard]] format::EncodedHeader encoded(const std::string& name, const std::vector<Tensor>& tensors,
                                              const std::map<std::string, std::string>& metadata) const {
    try {
      format::EncodedHeader header = format::encode_header(tensors, metadata, options_.align_bytes);
      if (header.bytes.size() - format::kPrefixBytes <= options_.max_header_bytes) return header;
    } catch (const format::SafetensorsError& error) {
      if (error.safetensors_kind() != format::SafetensorsErrorKind::kHeaderTooLarge) throw;
    }
    throw format::SafetensorsError(
        format::SafetensorsErrorKind::kHeaderTooLarge,
        fmt::format("the header of '{}' would describe {} and be above the limit of {} bytes, and files of a rank's "
                    "shards are not split: give a layout whose ranks hold fewer tensors (a larger pp), or convert to "
                    "Hugging Face files, which are",
                    name, base::counted(tensors.size(), "tensor"), options_.max_header_bytes));
  }

  format::StoredBox& box_of(const Placed& placed) { return layout_.stored.tensors[placed.tensor].boxes[placed.stored]; }

  const Catalog& catalog_;
  const LayoutOptions& options_;
  std::vector<std::string> names_;                 ///< name of each tensor, as stored
  std::vector<std::vector<FileContent>> content_;  ///< content of each rank, file by file
  std::vector<std::uint64_t> bytes_;               ///< bytes that each rank stores so far
  FileLayout layout_;
};

std::vector<std::vector<Piece>> claims_by_tensor(const Catalog& catalog, std::vector<Piece> held) {
  std::vector<std::vector<Piece>> claims(catalog.tensors.size());
  for (Piece& piece : held) {
    if (piece.tensor >= claims.size()) {
      throw base::internal_error(
          fmt::format("rank {} holds tensor number {} of a catalog of {}", piece.rank, piece.tensor, claims.size()));
    }
    claims[piece.tensor].push_back(std::move(piece));
  }
  return claims;
}

}  // namespace

FileLayout lay_out_shards(const Catalog& catalog, std::vector<Piece> held, int ranks, const LayoutOptions& options) {
  std::vector<std::vector<Piece>> claims = claims_by_tensor(catalog, std::move(held));
  ShardLayout layout(catalog, base::narrow<std::size_t>(ranks, "number of virtual ranks"), options);
  for (std::size_t tensor = 0; tensor < claims.size(); ++tensor) {
    layout.assign(static_cast<std::uint32_t>(tensor), std::move(claims[tensor]));
  }
  return layout.finish();
}

}  // namespace cairn::plan
