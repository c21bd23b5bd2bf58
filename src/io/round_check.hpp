// What every engine asks of the operations of a round, checked alike.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "io/engine.hpp"

namespace cairn::io {

/// "'dir/file', bytes 0 to 4096".
inline std::string describe(const EngineFile& file, std::uint64_t offset, std::uint64_t bytes) {
  return "'" + base::printable(file.path.string()) + "', bytes " + std::to_string(offset) + " to " +
         std::to_string(offset + bytes);
}

/// Throws Error(kInternal) unless `ops` ascend by (file, offset) without overlap, each inside its file.
template <class Op>
void check_round(std::span<const Op> ops, std::span<const EngineFile> files) {
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Op& op = ops[i];
    if (op.file >= files.size()) {
      throw Error(ErrorKind::kInternal,
                  "I/O round: file number " + std::to_string(op.file) + " of " + std::to_string(files.size()));
    }
    const EngineFile& file = files[op.file];
    if (op.offset > file.size_bytes || op.data.size() > file.size_bytes - op.offset) {
      throw Error(ErrorKind::kInternal, "I/O round: " + describe(file, op.offset, op.data.size()) +
                                            ", lies outside its " + std::to_string(file.size_bytes) + " bytes");
    }
    if (i == 0 || ops[i - 1].file < op.file) continue;
    if (ops[i - 1].file > op.file || ops[i - 1].offset + ops[i - 1].data.size() > op.offset) {
      throw Error(ErrorKind::kInternal, "I/O round: " + describe(file, op.offset, op.data.size()) +
                                            ", comes after an operation that it should come before");
    }
  }
}

}  // namespace cairn::io
