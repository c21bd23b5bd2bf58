#include "coded_files.hpp"

#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <stdexcept>

#include "environment.hpp"
#include "format/safetensors.hpp"
#include "format/stored_checkpoint.hpp"
#include "shard/box_math.hpp"

namespace cairn::test {

FileTensor counted(DType dtype, std::vector<std::uint64_t> shape) {
  const std::uint64_t bytes = bits_of(dtype) / 8;
  FileTensor tensor{dtype, std::move(shape), {}};
  tensor.bytes.resize(shard::elements_of(tensor.shape) * bytes);
  for (std::uint64_t i = 0; i < tensor.bytes.size() / bytes; ++i) {
    const std::uint64_t value = i * 0x9e3779b97f4a7c15ULL >> 3;
    std::memcpy(tensor.bytes.data() + i * bytes, &value, bytes);
  }
  return tensor;
}

FileTensor transposed(const FileTensor& tensor) {
  const std::uint64_t bytes = bits_of(tensor.dtype) / 8;
  FileTensor out{tensor.dtype, {tensor.shape[1], tensor.shape[0]}, base::Bytes(tensor.bytes.size())};
  for (std::uint64_t r = 0; r < tensor.shape[0]; ++r) {
    for (std::uint64_t c = 0; c < tensor.shape[1]; ++c) {
      std::memcpy(out.bytes.data() + (c * tensor.shape[0] + r) * bytes,
                  tensor.bytes.data() + (r * tensor.shape[1] + c) * bytes, bytes);
    }
  }
  return out;
}

void write_safetensors(const std::filesystem::path& path, const FileTensors& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<Tensor> stored;
  std::vector<const base::Bytes*> contents;
  for (const auto& [name, tensor] : tensors) {
    stored.push_back({name, tensor.dtype, tensor.shape});
    contents.push_back(&tensor.bytes);
  }
  const format::EncodedHeader header = format::encode_header(stored, metadata, 64);
  std::string content = header.bytes;
  for (const std::size_t i : header.order) {
    if (contents[i]->size() != format::tensor_bytes(stored[i].dtype, stored[i].shape, stored[i].name)) {
      throw std::runtime_error("content of '" + stored[i].name + "' has another size");
    }
    content.append(reinterpret_cast<const char*>(contents[i]->data()), contents[i]->size());
  }
  write_file(path, content);
}

FileTensors read_safetensors(const std::filesystem::path& path) {
  const std::string file = read_file(path);
  const std::string_view all(file);
  const auto length = format::header_length(base::as_bytes(all.substr(0, 64)), file.size(), path.string());
  const auto header = format::parse_header(all.substr(format::kPrefixBytes, length), file.size(), path.string());
  FileTensors tensors;
  for (const auto& entry : header.tensors) {
    const auto bytes = base::as_bytes(all.substr(header.data_start + entry.begin, entry.end - entry.begin));
    tensors.emplace(entry.name,
                    FileTensor{entry.dtype, {entry.shape.begin(), entry.shape.end()}, {bytes.begin(), bytes.end()}});
  }
  return tensors;
}

FileTensors read_section(const std::filesystem::path& directory, const std::string& stem) {
  FileTensors tensors;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(stem) && name.ends_with(".safetensors")) tensors.merge(read_safetensors(entry.path()));
  }
  return tensors;
}

CodedMoments CodedMoments::random(const std::string& codec_name, const std::string& parameter,
                                  std::vector<std::uint64_t> shape, std::uint64_t seed) {
  const quant::Codec& codec = quant::find_codec(codec_name);
  CodedMoments out{codec_name, parameter + ".exp_avg", parameter + ".exp_avg_sq", std::move(shape), {}};
  std::uint64_t elements = 1;
  for (const std::uint64_t size : out.shape) elements *= size;
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> m(elements);
  std::vector<float> v(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    const float root = 1e-4F * std::exp(normal(random));
    v[i] = root * root;
    m[i] = root * normal(random);
  }
  out.parts = quant::encode_whole(codec, {out.first, out.shape}, {m, v});
  return out;
}

void CodedMoments::add_to(FileTensors& tensors, std::map<std::string, std::string>& metadata) const {
  const auto described = quant::find_codec(codec).parts(shape);
  for (std::size_t i = 0; i < described.size(); ++i) {
    const std::string name = quant::stored_name(described[i], {first, second});
    tensors[name] = {described[i].dtype, described[i].shape, parts[i]};
    if (i == 0) {
      metadata[std::string(format::kCodingKey) + name] = format::encode_coding({codec, first, second, shape});
    }
  }
}

std::pair<base::Bytes, base::Bytes> CodedMoments::decoded(quant::Division division) const {
  std::uint64_t elements = 1;
  for (const std::uint64_t size : shape) elements *= size;
  std::vector<float> m(elements);
  std::vector<float> v(elements);
  quant::decode_whole(quant::find_codec(codec), {first, shape}, parts, {division}, {m, v});
  const auto m_bytes = std::as_bytes(std::span(m));
  const auto v_bytes = std::as_bytes(std::span(v));
  return {{m_bytes.begin(), m_bytes.end()}, {v_bytes.begin(), v_bytes.end()}};
}

}  // namespace cairn::test
