// Compares the bytes of several ranks' tensors to find out whether they are copies.
#pragma once

#include <map>
#include <span>
#include <string>

#include "base/bytes.hpp"
#include "interop/paddle/slices.hpp"
#include "interop/paddle/tensor_cuts.hpp"
#include "interop/reading.hpp"

namespace cairn::interop {

class CopyComparer {
 public:
  explicit CopyComparer(Reading& reading) : reading_(reading) {}

  enum class Look {
    kSamples,  ///< the beginning, middle and end of large tensors, and all of small ones
    kAll,
  };
  /// Requires: equal dtypes and shapes. kUnknown if this process does not have the bytes of some file's tensors. Throws
  /// as Reading::open().
  Copies compare(std::span<const Fragment> fragments, Look look);

  /// Whether a master weight rounds to the model's weight, judged by some of its elements. `is_turned`: the model's
  /// file has the dimensions in reverse order. True if the two cannot be compared.
  bool is_rounded(const format::PlacedTensor& master, const format::PlacedTensor& weight, bool is_turned);

 private:
  const base::ByteSource& source_of(const std::string& file);

  Reading& reading_;
  std::map<std::string, base::ByteSource> open_;
};

}  // namespace cairn::interop
