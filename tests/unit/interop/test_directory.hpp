// Directories for the tests of interop: built by hand, tensor by tensor, or loaded from tests/data/dialects.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cairn/error.hpp"
#include "format/safetensors.hpp"
#include "interop/directory.hpp"

namespace cairn::interop::test {

using Shape = std::vector<std::uint64_t>;
using Metadata = std::map<std::string, std::string>;

inline const Metadata kTorch = {{"format", "pt"}};
inline const Metadata kNumpy = {{"format", "np"}};

/// A box under a tensor's name, as torch DCP stores it.
struct Part {
  std::string name;
  DType dtype = DType::kF32;
  Shape offset;
  Shape shape;
};

/// A directory in memory; every header is encoded and parsed by the format layer, like a header from disk.
class TestDirectory {
 public:
  TestDirectory& file(const std::string& name, const std::vector<Tensor>& tensors, const Metadata& metadata = kTorch);
  /// One F32 tensor [2, 3] for each name.
  TestDirectory& file_of(const std::string& name, const std::vector<std::string>& tensors,
                         const Metadata& metadata = kTorch);
  /// A file whose DCP_SHARDING_INFO gives the places of the parts.
  TestDirectory& shard(const std::string& name, const std::vector<Part>& parts, Metadata metadata = kTorch);
  /// An index with total_size and weight_map; `extra` is more JSON at top level, e.g. ",\"a\": 1".
  TestDirectory& index(const std::string& name, const std::map<std::string, std::string>& weight_map,
                       std::uint64_t total_size, const std::string& extra = "");
  TestDirectory& json(const std::string& name, const std::string& text);
  TestDirectory& other(const std::string& name);
  /// A file with content that a dialect can open.
  TestDirectory& content(const std::string& name, const std::string& bytes);

  Directory directory;

 private:
  std::shared_ptr<std::map<std::string, std::string>> contents_;
};

/// tests/data/dialects/<name>, listed as callers of recognise() list a directory.
Directory load_case(const std::string& name);

/// The message of the error that recognise() throws; fails the test if there is no error, if its kind is wrong, or if
/// the message has more than one line or does not begin with the directory.
std::string failure_of(const Directory& directory, ErrorKind kind = ErrorKind::kFormat);

/// The tensor of this section and name; throws std::runtime_error if there is none.
format::StoredTensor tensor_of(const Recognised& recognised, const std::string& section, const std::string& name);

/// Section -> number of tensors.
std::map<std::string, std::size_t> sections_of(const Recognised& recognised);

/// Whether a warning contains all of these strings.
bool warns_of(const Recognised& recognised, const std::vector<std::string>& texts);

}  // namespace cairn::interop::test
