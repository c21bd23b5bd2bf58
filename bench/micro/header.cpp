// Benchmarks of the header and the index for all 91,991 model tensors of DeepSeek-V3.
#include <benchmark/benchmark.h>

#include <algorithm>

#include "cairn/tensor.hpp"
#include "check.hpp"
#include "format/hf_index.hpp"
#include "format/safetensors.hpp"
#include "shard/model.hpp"

namespace cairn::micro {
namespace {

const std::map<std::string, std::string> kMetadata = {{"format", "pt"}};

const std::vector<Tensor>& tensors() {
  static const std::vector<Tensor> all = [] {
    std::vector<Tensor> out;
    for (const Tensor& tensor : shard::model_by_name("deepseek-v3").tensors) {
      out.push_back({tensor.name, tensor.dtype, tensor.shape});
    }
    return out;
  }();
  return all;
}

void encode_header(benchmark::State& state) {
  require(tensors().size() == 91'991, "DeepSeek-V3 has another number of tensors");
  for (auto _ : state) benchmark::DoNotOptimize(format::encode_header(tensors(), kMetadata, 4096));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(tensors().size()));
}
BENCHMARK(encode_header)->Unit(benchmark::kMillisecond);

void parse_header(benchmark::State& state) {
  const format::EncodedHeader header = format::encode_header(tensors(), kMetadata, 4096);
  const std::string_view json = std::string_view(header.bytes).substr(format::kPrefixBytes);
  const std::uint64_t file_bytes = header.bytes.size() + header.data_bytes;
  const format::SafetensorsHeader parsed = format::parse_header(json, file_bytes, "benchmark");
  require(parsed.tensors.size() == tensors().size() && parsed.metadata == kMetadata, "tensors were lost");
  for (std::size_t place = 0; place < parsed.tensors.size(); ++place) {
    const std::size_t i = header.order[place];
    require(parsed.tensors[place].name == tensors()[i].name && parsed.tensors[place].begin == header.data_offset[i],
            "a tensor came back elsewhere");
  }
  for (auto _ : state) benchmark::DoNotOptimize(format::parse_header(json, file_bytes, "benchmark"));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(tensors().size()));
}
BENCHMARK(parse_header)->Unit(benchmark::kMillisecond);

void encode_index(benchmark::State& state) {
  const std::vector<std::string> files = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"};
  std::vector<format::IndexEntry> entries;
  for (const Tensor& tensor : tensors()) {
    entries.push_back({tensor.name, static_cast<std::uint32_t>(entries.size() % 2)});
  }
  const std::string text = format::encode_hf_index(entries, files, {1, 2});
  const auto parsed = format::parse_hf_index(text, "benchmark");
  require(parsed.tensors.size() == entries.size(), "tensors were lost");
  for (const format::IndexEntry& entry : entries) {
    const format::IndexEntry* const found = parsed.find(entry.name);
    require(found != nullptr && parsed.file_of(*found) == files[entry.file], "a tensor came back in another file");
  }
  for (auto _ : state) benchmark::DoNotOptimize(format::encode_hf_index(entries, files, {1, 2}));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(entries.size()));
}
BENCHMARK(encode_index)->Unit(benchmark::kMillisecond);

void parse_index(benchmark::State& state) {
  const std::vector<std::string> files = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"};
  std::vector<format::IndexEntry> entries;
  for (const Tensor& tensor : tensors()) entries.push_back({tensor.name, entries.size() % 2 != 0});
  const std::string text = format::encode_hf_index(entries, files, {1, 2});
  require(format::parse_hf_index(text, "benchmark").tensors.size() == entries.size(), "tensors were lost");
  for (auto _ : state) benchmark::DoNotOptimize(format::parse_hf_index(text, "benchmark"));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(entries.size()));
}
BENCHMARK(parse_index)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace cairn::micro
