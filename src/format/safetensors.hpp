// safetensors headers: checked in the order of the reference implementation, encoded with its order and escaping.
//
// FORMAT.md has the rules and limits. No work or memory is proportional to a size that a file claims before that size
// is checked against the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/dtype.hpp"
#include "cairn/error.hpp"
#include "cairn/tensor.hpp"
#include "format/limits.hpp"

namespace cairn::format {

// Errors of a safetensors file: the error kinds of the reference implementation, and at the end three kinds that the
// reference does not have.

enum class SafetensorsErrorKind {
  kHeaderTooSmall,
  kHeaderTooLarge,
  kInvalidHeaderLength,
  kInvalidHeader,                 // not UTF-8
  kInvalidHeaderDeserialization,  // error in JSON syntax, types, fields, dtypes, depth or numbers
  kInvalidOffset,
  kValidationOverflow,
  kMisalignedSlice,
  kTensorInvalidInfo,
  kMetadataIncompleteBuffer,
  kDuplicateKey,    // stricter than the reference, which uses the last value
  kRankTooLarge,    // more than kMaxRank dimensions
  kNotSafetensors,  // recognised as another format, e.g. a git-lfs pointer
};

/// The name of the kind, spelled as in the reference: "HeaderTooSmall".
const char* name_of(SafetensorsErrorKind kind);

class SafetensorsError : public Error {
 public:
  SafetensorsError(SafetensorsErrorKind kind, const std::string& message)
      : Error(ErrorKind::kFormat, message), safetensors_kind_(kind) {}
  [[nodiscard]] SafetensorsErrorKind safetensors_kind() const noexcept { return safetensors_kind_; }

 private:
  SafetensorsErrorKind safetensors_kind_;
};

inline constexpr std::uint64_t kMaxHeaderBytes = limits::kHeaderBytes;
inline constexpr std::size_t kMaxRank = limits::kHeaderDimensions;
inline constexpr std::size_t kPrefixBytes = 8;

/// Name and shape are views of the header's store.
struct TensorEntry {
  std::string_view name;
  DType dtype = DType::kF32;
  std::span<const std::uint64_t> shape;
  std::uint64_t begin = 0;  ///< bytes from the start of the data section
  std::uint64_t end = 0;
};

/// All names of a header in one string, and all shapes in one list, for headers with 100,000 tensors.
struct HeaderStore {
  std::string names;
  std::vector<std::uint64_t> sizes;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  ///< ascending by (begin, end)
  std::map<std::string, std::string> metadata;
  std::uint64_t data_start = 0;  ///< 8 + header length: file offset of the data section
  std::uint64_t file_bytes = 0;
  std::shared_ptr<const HeaderStore> store;  ///< shared by copies of the header
};

/// Length of the JSON header from the first 8 bytes (kHeaderTooSmall if there are fewer), checked against
/// kMaxHeaderBytes and the file's size. `path` is for messages. More bytes in `prefix` help to recognise other formats.
std::uint64_t header_length(std::span<const std::byte> prefix, std::uint64_t file_bytes, std::string_view path);

/// Parses and validates a header. `json`: exactly the header_length bytes after the prefix; not referenced afterwards.
SafetensorsHeader parse_header(std::string_view json, std::uint64_t file_bytes, std::string_view path);
/// The strict parser alone, to which parse_header falls back for text that is not plain.
SafetensorsHeader parse_header_strictly(std::string_view json, std::uint64_t file_bytes, std::string_view path);

struct EncodedHeader {
  std::string bytes;                       ///< prefix, JSON, padding with spaces up to the alignment
  std::vector<std::size_t> order;          ///< order[i]: index of the file's i-th tensor in the input
  std::vector<std::uint64_t> data_offset;  ///< for each input tensor: offset from the start of the data section
  std::uint64_t data_bytes = 0;
};

/// The order of tensors in a file: dtype descending, then name ascending by bytes.
struct StoredOrder {
  DType dtype = DType::kF32;
  std::string_view name;

  friend bool operator<(const StoredOrder& a, const StoredOrder& b) {
    return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
  }
};

/// Reference order (dtype descending, then name by bytes), `__metadata__` first if not empty (keys sorted), compact
/// JSON, and a data section that begins on a multiple of `align_bytes` (a power of two, at least 8). Throws
/// SafetensorsError for: equal names, the name "__metadata__", text that is not UTF-8, a size that overflows, a
/// sub-byte tensor that is not a whole number of bytes, more than kMaxRank dimensions, a header above kMaxHeaderBytes.
EncodedHeader encode_header(std::span<const Tensor> tensors, const std::map<std::string, std::string>& metadata,
                            std::uint64_t align_bytes);

// Bytes in the JSON of a header, to limit it before it is made.

/// A string with its quotes.
std::uint64_t quoted_bytes(std::string_view text);
/// A tensor's entry and a separator, if no offset has more than `offset_digits` digits.
std::uint64_t entry_bytes(DType dtype, std::span<const std::uint64_t> shape, std::string_view name,
                          unsigned offset_digits);

/// Size of a tensor in bytes. Throws SafetensorsError naming the tensor: kValidationOverflow, or kMisalignedSlice if a
/// sub-byte tensor is not a whole number of bytes.
std::uint64_t tensor_bytes(DType dtype, std::span<const std::uint64_t> shape, std::string_view name);

// Bytes of a tensor from dtype and shape, or the reason why they cannot be computed. Used by the writer of headers, and
// by the reader, which adds the path to the message.

struct TensorSize {
  std::uint64_t bytes = 0;  ///< valid when there is no error
  std::optional<SafetensorsErrorKind> error;
  std::string reason;  ///< reason of the error, without path and tensor name
};

/// The reference's checks in its order: product of the shape left to right, bits, whole bytes.
TensorSize try_tensor_bytes(DType dtype, std::span<const std::uint64_t> shape);

/// "[2, 3]"; long shapes are cut.
std::string shape_text(std::span<const std::uint64_t> shape);

}  // namespace cairn::format
