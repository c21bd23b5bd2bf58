// A file of lines to which several processes append, on one machine or several.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "os/file.hpp"

namespace cairn::os {

/// Errors of the file system are kIo. Holds the file's lock (flock) from construction to destruction. Where the lock
/// fails, or another process has it for longer than kPatience, works without it: lines stay whole on a local file
/// system, since each is one write() with O_APPEND, while clients of a network file system may overwrite each other's.
class LineFile {
 public:
  static constexpr int kPatienceMs = 500;

  /// Creates the file if it is missing. It must be a regular file.
  explicit LineFile(const std::filesystem::path& path);

  /// Appends `line`, which has no line end, and a line end in one write(). If a crash or a full disk left the last line
  /// without an end, ends that line first. Not durable: there is no fsync.
  void append(std::string_view line);
  [[nodiscard]] std::uint64_t size_bytes() const { return reading_.size_bytes(); }
  /// The content from `offset` to the end; empty beyond the end.
  [[nodiscard]] std::string from(std::uint64_t offset) const;
  /// Reports errors of writing that a network file system tells only now.
  void close();

 private:
  bool open(const std::filesystem::path& path);

  File reading_;
  File writing_;
  FileLock lock_;  // last: refers to writing_
};

}  // namespace cairn::os
