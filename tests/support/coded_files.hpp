// safetensors files for tests of coded moments. The files are made without Cairn's writers and planners, only with its
// header encoder and the codecs' whole-tensor calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "cairn/dtype.hpp"
#include "quant/codec.hpp"

namespace cairn::test {

struct FileTensor {
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;
  base::Bytes bytes;

  friend bool operator==(const FileTensor&, const FileTensor&) = default;
};
/// A tensor whose elements encode their positions; for dtypes of whole bytes.
FileTensor counted(DType dtype, std::vector<std::uint64_t> shape);
/// For tensors of two dimensions.
FileTensor transposed(const FileTensor& tensor);
using FileTensors = std::map<std::string, FileTensor>;

void write_safetensors(const std::filesystem::path& path, const FileTensors& tensors,
                       const std::map<std::string, std::string>& metadata);
FileTensors read_safetensors(const std::filesystem::path& path);
/// All tensors of the directory's files whose names begin with `stem`.
FileTensors read_section(const std::filesystem::path& directory, const std::string& stem);

/// Both moments of a parameter as coded parts; decoded() gives the moments that a load makes of them.
struct CodedMoments {
  std::string codec;
  std::string first;
  std::string second;
  std::vector<std::uint64_t> shape;
  quant::Encoded parts;

  /// An untrained, random state; the values follow from the seed.
  static CodedMoments random(const std::string& codec, const std::string& parameter, std::vector<std::uint64_t> shape,
                             std::uint64_t seed);

  /// Adds the parts and their metadata entry.
  void add_to(FileTensors& tensors, std::map<std::string, std::string>& metadata) const;
  /// First and second moment, F32, of the whole tensor.
  [[nodiscard]] std::pair<base::Bytes, base::Bytes> decoded(quant::Division division = quant::Division::kTrue) const;
};

}  // namespace cairn::test
