// Whether the tensors of several ranks are copies, by their bytes.
#pragma once

#include <cstddef>
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
    kSamples,  ///< of large tensors their beginning, middle and end
    kAll,
  };
  /// Requires: one dtype and shape. kUnknown for a file of which this process has no tensors. Throws as Reading::open().
  Copies compare(std::span<const Fragment> fragments, Look look);

 private:
  const base::ByteSource& source_of(const std::string& file);

  Reading& reading_;
  std::map<std::string, base::ByteSource> open_;
};

}  // namespace cairn::interop
