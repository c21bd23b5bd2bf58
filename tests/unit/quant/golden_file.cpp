// Files are read through the format layer, which refuses files that are not safetensors.
#include "golden_file.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>

#include "environment.hpp"
#include "format/safetensors.hpp"

namespace cairn::quant::test {

GoldenTensors read_tensors(const std::filesystem::path& path) {
  const std::string file = cairn::test::read_file(path);
  const std::string_view all(file);
  const auto length = format::header_length(base::as_bytes(all.substr(0, 64)), file.size(), path.string());
  const auto header = format::parse_header(all.substr(format::kPrefixBytes, length), file.size(), path.string());
  GoldenTensors tensors;
  for (const auto& entry : header.tensors) {
    const auto bytes = base::as_bytes(all.substr(header.data_start + entry.begin, entry.end - entry.begin));
    tensors.emplace(entry.name,
                    GoldenTensor{entry.dtype, {entry.shape.begin(), entry.shape.end()}, {bytes.begin(), bytes.end()}});
  }
  return tensors;
}

std::vector<float> as_floats(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

std::vector<float> floats(const GoldenTensors& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  if (found == tensors.end()) throw std::out_of_range("no tensor '" + name + "'");
  if (found->second.dtype != DType::kF32) throw std::runtime_error("'" + name + "' is not F32");
  return as_floats(found->second.bytes);
}

State decoded(const Codec& codec, const Source& source, const Encoded& encoded, Division division) {
  std::uint64_t elements = 1;
  for (const auto extent : source.shape) elements *= extent;
  State state(elements);
  decode_whole(codec, source, encoded, {division}, state.out());
  return state;
}

testing::AssertionResult same_floats(std::span<const float> found, std::span<const float> expected) {
  if (expected.empty()) return testing::AssertionFailure() << "nothing to compare";
  if (found.size() != expected.size()) {
    return testing::AssertionFailure() << found.size() << " values instead of " << expected.size();
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(found[i]) == std::bit_cast<std::uint32_t>(expected[i])) continue;
    if (std::isnan(found[i]) && std::isnan(expected[i])) continue;
    return testing::AssertionFailure() << "value " << i << " is " << testing::PrintToString(found[i]) << " instead of "
                                       << testing::PrintToString(expected[i]);
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult same_part(const Part& part, const base::Bytes& bytes, const GoldenTensor& stored) {
  if (part.dtype != stored.dtype) {
    return testing::AssertionFailure() << name_of(part.dtype) << " instead of " << name_of(stored.dtype);
  }
  if (part.shape != stored.shape) return testing::AssertionFailure() << "another shape than the stored one";
  if (part.role == Role::kScales) return same_floats(as_floats(bytes), as_floats(stored.bytes));
  if (bytes.empty()) return testing::AssertionFailure() << "nothing to compare";
  if (bytes == stored.bytes) return testing::AssertionSuccess();
  std::size_t at = 0;
  while (at < bytes.size() && at < stored.bytes.size() && bytes[at] == stored.bytes[at]) ++at;
  return testing::AssertionFailure() << "byte " << at << " of " << bytes.size() << " (stored: " << stored.bytes.size()
                                     << ") differs";
}

testing::AssertionResult same_own_codes(const Codec& codec, const Part& part, base::Bytes bytes,
                                        const GoldenTensor& stored) {
  if (codec.traits().name != "q4") return same_part(part, bytes, stored);
  const auto block_bytes = static_cast<std::ptrdiff_t>(part.shape.back());
  if (bytes.size() != stored.bytes.size()) return testing::AssertionFailure() << bytes.size() << " bytes";
  int differing = 0;
  for (const std::ptrdiff_t block : {7, 9}) {
    const auto begin = stored.bytes.begin() + block * block_bytes;
    differing += std::equal(begin, begin + block_bytes, bytes.begin() + block * block_bytes) ? 0 : 1;
    std::copy_n(begin, block_bytes, bytes.begin() + block * block_bytes);
  }
  if (differing == 0) return testing::AssertionFailure() << "all old bytes: the largest v of two blocks is too large";
  return same_part(part, bytes, stored);
}

}  // namespace cairn::quant::test
