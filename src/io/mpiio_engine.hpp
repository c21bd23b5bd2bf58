// MPI-IO: every rank writes and reads its own contiguous ranges at explicit offsets, by collective calls (under OMPIO,
// independent calls) on a communicator of just the ranks that share the file. If a collective read of ROMIO would move
// only each rank's own bytes, a thread reads ahead, by independent calls, while the rank is in the exchange.
//
// src/io/README.md has the rules, and the failures that they guard against. Two rules shape the code:
//
// 1. Between two agreements every rank makes the same collective calls even if some of them fail; failures are noted,
//    and agreed on afterwards.
// 2. No rank should wait inside MPI-IO for a lost rank. The ranks of a file meet before a call that waits for all of
//    them, opening and closing can be left if MPI allows threads (leavable_calls.hpp), and after an error without
//    agreement no file is closed.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "comm/communicator.hpp"
#include "comm/mpi.hpp"
#include "io/engine.hpp"
#include "io/leavable_calls.hpp"
#include "io/rounds.hpp"
#include "os/file.hpp"

namespace cairn::io {

// MPI_File and MPI_Info as objects.
//
// MPI_File_close is collective. No destructor calls it, because a rank that unwinds alone would wait there for ever and
// hide its error. A handle that was not closed is given up: the file stays open until the process ends.

class InfoHandle {
 public:
  /// Throws Error(kUsage) for a hint that MPI refuses (a key or value that is empty or too long).
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
  /// Collective over `group`. Returns MPI's code; after MPI_SUCCESS, calls on the file also return error codes.
  int open(MPI_Comm group, const std::string& path, int mode, MPI_Info info);
  /// Forgets the file and returns it without an MPI call: for a caller that closes the file itself, or if some rank of
  /// the group does not have the file open, so that closing would wait for ever.
  MPI_File give_up() { return std::exchange(file_, MPI_FILE_NULL); }
  [[nodiscard]] bool is_open() const { return file_ != MPI_FILE_NULL; }
  [[nodiscard]] MPI_File get() const { return file_; }
  /// Rank-local: the result of MPI_File_get_info for the open file, or empty. MPICH's ROMIO reports the hints in force;
  /// Open MPI 4 reports the hints that it was given.
  [[nodiscard]] Hints hints() const;

 private:
  MPI_File file_ = MPI_FILE_NULL;
};

class MpiioEngine final : public Engine {
 public:
  MpiioEngine(comm::Communicator& communicator, EngineOptions options);

  void open_for_write(std::vector<EngineFile> files, plan::ExtentMaps extents) override;
  void open_for_read(std::vector<EngineFile> files, plan::ExtentMaps extents) override;
  void write_round(std::span<const WriteOp> ops) override;
  void read_round(std::span<const ReadOp> ops) override;
  void begin_read(std::span<const ReadOp> ops) override;
  void wait_rounds(std::size_t unfinished) override;
  void finish_rounds(std::size_t unfinished) override;
  void sync() override;
  void close() override;
  [[nodiscard]] Hints hints() const override { return hints_in_force_; }

 private:
  /// A file that this rank opens.
  struct Member {
    FileTurn turn;
    FileHandle handle;
    os::File own;  ///< opened before the first write, so that its fsync reports every late error
  };
  /// The first failure on this rank since the last agreement.
  class Failure {
   public:
    void note(const Error& error) {
      if (!failure_) failure_ = std::make_exception_ptr(error);
    }
    /// Notes the exception that is being handled.
    void note_current() {
      if (!failure_) failure_ = std::current_exception();
    }
    void rethrow() const {
      if (failure_) std::rethrow_exception(failure_);
    }

   private:
    std::exception_ptr failure_;
  };

  enum class Call { kCollective, kIndependent };

  void begin(std::vector<EngineFile> files, plan::ExtentMaps extents);
  std::string begin_on_all(std::vector<EngineFile> files, plan::ExtentMaps extents);
  [[nodiscard]] static bool has_threads();
  [[nodiscard]] bool can_read_by_thread() const;
  void start_opener();
  void note_hints_in_force();
  void create_files();
  /// The member for a file; null if this rank does not open the file.
  Member* member_of(std::uint32_t file);
  void open_own_descriptors();
  void check_descriptors() const;
  void check_files_to_read() const;
  void make_groups(Failure& failure);
  struct OpenCall;
  void open_handles(int mode, const std::shared_ptr<InfoHandle>& info);
  void give_up_half_open_files();
  void meet(const Member& member);
  void call_mpi(std::function<void()> call, const char* what);
  template <class Op>
  void run_round(std::span<const Op> ops, std::string_view step);
  template <class Op>
  std::vector<Op> cut_pieces(std::span<const Op> ops);
  template <class Op>
  void move_piece(Member& member, const Op& piece, Call call, Failure& failure);
  /// Runs a collective step. If the step throws on all ranks, closes all files on all ranks. After any other error the
  /// files stay open, because some rank may be missing and closing would wait for it.
  template <class Step>
  void guarded(Step step) {
    try {
      step();
    } catch (const comm::AgreedError&) {
      close_all();  // an open descriptor would keep the space of deleted files
      throw;
    }
  }
  void close_all();

  comm::Communicator& communicator_;
  EngineOptions options_;
  Hints hints_;           ///< passed to MPI
  Hints hints_in_force_;  ///< relevant hints of one file, as MPI reports them
  comm::MpiIoImplementation implementation_;
  Call call_ = Call::kCollective;  ///< kIndependent if collective calls hang or hide errors (OMPIO)
  bool rounds_wait_ = true;        ///< collective reads and writes may wait for other ranks
  std::vector<EngineFile> files_;
  std::vector<std::uint32_t> kept_;                          ///< files that this rank creates or checks
  std::vector<Member> members_;                              ///< in the order of their turns
  std::vector<std::unique_ptr<comm::Communicator>> groups_;  ///< by index in members_; null for files of one rank
  std::unique_ptr<comm::Communicator> alone_;
  std::unique_ptr<LeavableCalls> opener_;  ///< opens and closes files; null on one rank or without MPI_THREAD_MULTIPLE
  Failure not_begun_;                      ///< failure to pass a read to the thread; thrown when the round is finished
  /// Reads ahead; null on all ranks or on none. Without a reader, begin_read() does the whole round. Declared last,
  /// because the thread uses the files.
  std::unique_ptr<RoundWorker> reader_;
};

}  // namespace cairn::io
