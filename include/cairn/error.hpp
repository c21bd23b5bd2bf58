// The one exception type that Cairn throws, and what its kinds mean.
//
// A message is one line: what failed, on what (path, tensor, offset), what was expected and found, what to do.
// Collective calls throw the same kind and message on every rank.
#pragma once

#include <stdexcept>
#include <string>

namespace cairn {

enum class ErrorKind {
  kUsage,   ///< a wrong argument or option: the caller must change the call
  kState,   ///< the ranks' descriptions of the state contradict each other, or leave a hole; the root has another saver
  kFormat,  ///< a file or index breaks the rules of its format
  kNotFound,   ///< no such checkpoint, file or tensor
  kIo,         ///< the operating system or MPI reported a failure
  kIntegrity,  ///< bytes on disk do not have the checksum they were written with
  kInternal,   ///< a bug in Cairn
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

}  // namespace cairn
