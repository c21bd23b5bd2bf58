#include "checkpoint/convert_source.hpp"

#include <algorithm>

#include "checkpoint/commit.hpp"
#include "checkpoint/engine_choice.hpp"
#include "checkpoint/tensor_reader.hpp"
#include "format/blocks.hpp"

namespace cairn::checkpoint {

plan::Catalog catalog_of(const format::StoredCheckpoint& stored) {
  std::vector<plan::CatalogTensor> tensors;
  for (const auto& tensor : stored.tensors) {
    tensors.push_back({tensor.section, tensor.name, tensor.dtype, tensor.shape, {}});
  }
  return plan::make_catalog(std::move(tensors));
}

std::map<std::string, base::Bytes> carried_files(const OpenCheckpoint& source) {
  std::map<std::string, base::Bytes> files;
  for (const std::string& name : source.carried) {
    const std::string text = read_carried(source, name, kMaxCarriedBytes);
    const auto bytes = base::as_bytes(text);
    files.emplace(name, base::Bytes(bytes.begin(), bytes.end()));
  }
  return files;
}

ReadOptions reading_half(const ReadOptions& options) {
  ReadOptions half = options;
  half.memory_budget_bytes = std::max(options.memory_budget_bytes / 2, smallest_budget(format::kDefaultBlockBytes));
  return half;
}

}  // namespace cairn::checkpoint
