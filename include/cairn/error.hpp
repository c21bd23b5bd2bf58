// The one exception type that Cairn throws, its kinds, and its details.
//
// A message is one line: the failed action and its object (path, tensor, offset), the expected and the actual value,
// and the remedy. Collective calls throw the same kind, message and details on every rank.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace cairn {

enum class ErrorKind {
  kUsage,      ///< a wrong argument or option: the caller must change the call
  kState,      ///< the ranks' descriptions of the state are contradictory or incomplete; the root has another saver
  kFormat,     ///< a file or index breaks the rules of its format
  kNotFound,   ///< no such checkpoint, step, tensor or file: Error::missing() tells which
  kIo,         ///< the operating system or MPI reported a failure
  kIntegrity,  ///< bytes, sizes or files of a checkpoint are not those that were written
  kInternal,   ///< a bug in Cairn
};

/// The thing that does not exist, in an Error(kNotFound).
enum class Missing {
  kUnspecified,  ///< a file or directory, which path() names if it is known; or the error is not kNotFound
  kAnyStep,      ///< the root has no checkpoint at all: there is nothing to resume from
  kStep,         ///< the root has no checkpoint of this step
  kPart,         ///< the checkpoint holds a part of a state (Options::save_only) that lacks the tensor
  kTensor,       ///< the checkpoint has no tensor of this name in this section
  kSelected,     ///< LoadOptions::select selects no target of any rank
  kRankBlob,     ///< no rank had a blob when the checkpoint was saved
  kCarriedFile,  ///< the checkpoint carries no file of this name
};

/// Details of an Error, for programs; the message has the same details for users.
struct ErrorDetails {
  int system_error = 0;  ///< errno of the failed system call; 0: no call failed, or MPI or HDF5 hides the errno
  std::string path;      ///< file or directory, as given to Cairn or created by Cairn; empty: none
  int rank = -1;         ///< lowest failing rank in the call's communicator; -1: no particular rank failed
  Missing missing = Missing::kUnspecified;  ///< with kNotFound: the thing that does not exist
};

/// Copying an Error does not throw.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  Error(ErrorKind kind, const std::string& message, ErrorDetails details)
      : std::runtime_error(message), kind_(kind), details_(std::make_shared<const ErrorDetails>(std::move(details))) {}

  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }
  [[nodiscard]] const ErrorDetails& details() const noexcept {
    static const ErrorDetails none;
    return details_ ? *details_ : none;
  }
  /// The members of details().
  [[nodiscard]] int system_error() const noexcept { return details().system_error; }
  [[nodiscard]] const std::string& path() const noexcept { return details().path; }
  [[nodiscard]] int rank() const noexcept { return details().rank; }
  [[nodiscard]] Missing missing() const noexcept { return details().missing; }

  /// The same error with another message.
  [[nodiscard]] Error with_message(const std::string& message) const { return {kind_, message, details()}; }

 private:
  ErrorKind kind_;
  std::shared_ptr<const ErrorDetails> details_;  ///< null: no details
};

}  // namespace cairn
