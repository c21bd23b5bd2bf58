// Asynchronous reads and writes by io_uring, with the errors, short transfers and fault hooks of File.
//
// Requests belong to numbered groups; finish(group) waits for a group and throws the error of its first failed request.
// The destructor drops requests that still wait here, and waits for the rest, because the kernel uses their memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "os/file.hpp"

namespace cairn::os {

class IoQueue {
 public:
  /// The kernel has at most `depth` requests at a time; further requests wait here. Throws Error(kIo) with the reason
  /// if io_uring is refused (kernels before 5.6, containers, sysctl kernel.io_uring_disabled). Fault hook:
  /// "os.io_uring".
  explicit IoQueue(unsigned depth);
  ~IoQueue();
  IoQueue(const IoQueue&) = delete;
  IoQueue& operator=(const IoQueue&) = delete;

  /// The files of a request. `direct` is used first; `plain` is used for the rest of a short transfer that `direct`
  /// cannot address. Both may be the same file, without O_DIRECT: then a thread of the kernel does the copying. The
  /// files and the data must live until the group is finished.
  ///
  /// Some file systems accept O_DIRECT at open but refuse it at the first transfer: then later transfers use `plain`.
  struct Target {
    File* direct = nullptr;
    File* plain = nullptr;
    std::uint64_t alignment = 1;
  };

  /// Rank-local. These calls do not wait for the kernel, except for transfers by `plain`. finish() reports I/O errors.
  void write(const Target& target, std::span<const std::byte> data, std::uint64_t offset, std::uint64_t group);
  void read(const Target& target, std::span<std::byte> data, std::uint64_t offset, std::uint64_t group);
  /// As read(), for the last bytes of a file, which may end after `needed_bytes`: O_DIRECT reads only whole units.
  void read_to_end(const Target& target, std::span<std::byte> data, std::uint64_t offset, std::uint64_t group,
                   std::uint64_t needed_bytes);

  /// The reason why O_DIRECT was refused at a transfer; empty if it was not.
  [[nodiscard]] const std::string& refusal() const;

  /// Blocks until all requests of the group are done; throws the Error of the request that failed first.
  void finish(std::uint64_t group);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cairn::os
