// MPI_File and MPI_Info as objects.
//
// MPI_File_close is collective: it is never called by a destructor, because a rank that unwinds alone would wait there
// for ever and hide the error that it carries. A handle that was not closed is given up (MPI closes it at the end).
#pragma once

#include <mpi.h>

#include <string>
#include <utility>

#include "io/engine.hpp"

namespace cairn::io {

class InfoHandle {
 public:
  /// Throws Error(kUsage) for a hint that MPI refuses (an empty or over-long key or value).
  explicit InfoHandle(const Hints& hints);
  ~InfoHandle();
  InfoHandle(const InfoHandle&) = delete;
  InfoHandle& operator=(const InfoHandle&) = delete;
  [[nodiscard]] MPI_Info get() const { return info_; }

 private:
  MPI_Info info_ = MPI_INFO_NULL;
};

class FileHandle {
 public:
  FileHandle() = default;
  FileHandle(FileHandle&& other) noexcept : file_(std::exchange(other.file_, MPI_FILE_NULL)) {}
  FileHandle& operator=(FileHandle&& other) noexcept {
    file_ = std::exchange(other.file_, MPI_FILE_NULL);
    return *this;
  }
  /// Collective over `group`. MPI's return code; on MPI_SUCCESS errors of the file return too.
  int open(MPI_Comm group, const std::string& path, int mode, MPI_Info info);
  /// Collective over the group that opened; nothing when not open. The return code says nothing (src/io/README.md).
  void close();
  /// Forgets the file without a call: for a group of which some rank has none, so that close() would wait for ever.
  void give_up() { file_ = MPI_FILE_NULL; }
  [[nodiscard]] bool is_open() const { return file_ != MPI_FILE_NULL; }
  [[nodiscard]] MPI_File get() const { return file_; }
  /// Rank-local: what MPI_File_get_info says of the open file; nothing where it says nothing. ROMIO of MPICH tells what is
  /// in force, Open MPI 4 what it was given.
  [[nodiscard]] Hints hints() const;

 private:
  MPI_File file_ = MPI_FILE_NULL;
};

}  // namespace cairn::io
