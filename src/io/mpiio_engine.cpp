// MPI-IO: opening, syncing, closing. Rounds are in mpiio_round.cpp.
#include "io/mpiio_engine.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/bytes.hpp"
#include "base/checked.hpp"
#include "base/internal_error.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "io/mpiio_hints.hpp"
#include "os/fault.hpp"
#include "os/limits.hpp"
#include "os/striping.hpp"

namespace cairn::io {

InfoHandle::InfoHandle(const Hints& hints) {
  if (const int code = MPI_Info_create(&info_); code != MPI_SUCCESS) {
    throw Error(ErrorKind::kIo, "MPI_Info_create failed: " + comm::mpi_error_text(code));
  }
  for (const auto& [key, value] : hints) {
    const bool fits =
        !key.empty() && key.size() < MPI_MAX_INFO_KEY && !value.empty() && value.size() < MPI_MAX_INFO_VAL;
    if (fits && MPI_Info_set(info_, key.c_str(), value.c_str()) == MPI_SUCCESS) continue;
    MPI_Info_free(&info_);
    throw Error(ErrorKind::kUsage, "MPI does not take the hint '" + base::printable(key) + "' = '" +
                                       base::printable(value) + "'; keys have 1 to " +
                                       std::to_string(MPI_MAX_INFO_KEY - 1) + " and values 1 to " +
                                       std::to_string(MPI_MAX_INFO_VAL - 1) + " characters");
  }
}

InfoHandle::~InfoHandle() {
  if (info_ != MPI_INFO_NULL) MPI_Info_free(&info_);
}

int FileHandle::open(MPI_Comm group, const std::string& path, int mode, MPI_Info info) {
  const int code = MPI_File_open(group, path.c_str(), mode, info, &file_);
  if (code != MPI_SUCCESS) {
    file_ = MPI_FILE_NULL;
    return code;
  }
  return MPI_File_set_errhandler(file_, MPI_ERRORS_RETURN);
}

Hints FileHandle::hints() const {
  Hints hints;
  MPI_Info info = MPI_INFO_NULL;
  if (MPI_File_get_info(file_, &info) != MPI_SUCCESS || info == MPI_INFO_NULL) return hints;
  int count = 0;
  MPI_Info_get_nkeys(info, &count);
  for (int i = 0; i < count; ++i) {
    std::array<char, MPI_MAX_INFO_KEY + 1> key{};
    std::array<char, MPI_MAX_INFO_VAL + 1> value{};
    int known = 0;
    MPI_Info_get_nthkey(info, i, key.data());
    MPI_Info_get(info, key.data(), MPI_MAX_INFO_VAL, value.data(), &known);
    if (known != 0) hints[key.data()] = value.data();
  }
  MPI_Info_free(&info);
  return hints;
}

namespace {

/// Determined only once: MPI chooses its implementation at the process's first open, and the query may take 0.2 s.
const comm::MpiIoImplementation& implementation_of_process() {
  static const comm::MpiIoImplementation implementation = [] {
    comm::prefer_romio();
    return comm::mpi_io_implementation();
  }();
  return implementation;
}

std::string quoted(const EngineFile& file) { return "'" + base::printable(file.path.string()) + "'"; }

bool runs_on_romio(const comm::MpiIoImplementation& implementation) {
  return implementation.io_component.find("romio") != std::string::npos;
}

/// ROMIO takes the part before a colon for the name of a file system, so a path with a colon needs the prefix "ufs:".
/// OMPIO has no prefixes.
std::string mpi_path(const EngineFile& file, const comm::MpiIoImplementation& implementation) {
  const std::string path = file.path.string();
  return runs_on_romio(implementation) && path.find(':') != std::string::npos ? "ufs:" + path : path;
}

}  // namespace

MpiioEngine::MpiioEngine(comm::Communicator& communicator, EngineOptions options)
    : communicator_(communicator), options_(std::move(options)) {
  if (comm::native_handle(communicator) == MPI_COMM_NULL) {
    throw Error(ErrorKind::kUsage, "engine 'mpiio' needs an MPI communicator");
  }
  implementation_ = implementation_of_process();
  if (implementation_.loses_write_errors) {
    call_ = Call::kIndependent;
    base::warn_once("MPI-IO of " + implementation_.library + " runs on " + implementation_.io_component +
                    ", which loses write errors; set OMPI_MCA_io=romio321 before the job starts. Until then writes are "
                    "independent calls, whose byte counts are checked");
  }
}

void MpiioEngine::begin(std::vector<EngineFile> files, plan::ExtentMaps extents) {
  if (!files_.empty()) throw base::internal_error("engine 'mpiio' was opened twice");
  files_ = std::move(files);
  const auto count = base::narrow<std::uint32_t>(files_.size(), "number of files");
  const auto aggregators = extents.aggregators_of_files(count);
  for (const FileTurn& turn : file_turns(aggregators, communicator_.rank())) {
    members_.push_back({turn, {}, {}});
  }
  groups_.resize(members_.size());
  for (std::uint32_t file = 0; file < count; ++file) {
    if (creator_of_file(aggregators, file, communicator_.size()) == communicator_.rank()) kept_.push_back(file);
  }
}

/// Collective. Returns the type of the file system as rank 0 sees it, so that all ranks of a file pass the same hints.
/// If rank 0 cannot determine the type, it is empty, and the debug log has the reason.
std::string MpiioEngine::begin_on_all(std::vector<EngineFile> files, plan::ExtentMaps extents) {
  std::string file_system;
  comm::agree(communicator_, "open data files", [&] {
    begin(std::move(files), extents);
    if (communicator_.rank() != 0 || files_.empty()) return;
    const auto seen = std::find_if(files_.begin(), files_.end(), [](const auto& file) { return !file.path.empty(); });
    const auto folder = seen != files_.end() ? seen->path.parent_path() : std::filesystem::path();
    try {
      file_system = os::file_system_of(folder.empty() ? "." : folder).type;
    } catch (const Error& error) {
      base::log_debug(std::string("engine mpiio: file system not known: ") + error.what());
    }
  });
  communicator_.share(file_system, 0);
  return file_system;
}

bool MpiioEngine::has_threads() {
  int level = MPI_THREAD_SINGLE;
  return MPI_Query_thread(&level) == MPI_SUCCESS && level == MPI_THREAD_MULTIPLE;
}

/// Whether a thread can read. False under OMPIO, without MPI_THREAD_MULTIPLE, or if collective reads move other ranks'
/// bytes; begin_read() then does the whole round.
bool MpiioEngine::can_read_by_thread() const {
  return has_threads() && runs_on_romio(implementation_) && reads_own_bytes(hints_);
}

/// Rank-local; called in an agreed step.
void MpiioEngine::start_opener() {
  if (has_threads() && communicator_.size() > 1) opener_ = std::make_unique<LeavableCalls>(communicator_.liveness());
}

/// Collective over the ranks of a file, before a call in which MPI may wait for them. Unlike that call, this wait ends
/// if a rank is missing.
void MpiioEngine::meet(const Member& member) {
  const auto& group = groups_[static_cast<std::size_t>(&member - members_.data())];
  if (group) group->barrier();
}

/// Makes a call that waits for other ranks. The call must own all data that it uses.
void MpiioEngine::call_mpi(std::function<void()> call, const char* what) {
  opener_ ? opener_->run(std::move(call), what) : call();
}

/// Collective: the lowest rank that has a file sends the hints of its first file to all ranks.
void MpiioEngine::note_hints_in_force() {
  const std::optional<int> first = communicator_.lowest_rank_where(!members_.empty());
  if (!first) return;
  base::Bytes bytes;
  comm::agree_on_root(communicator_, "ask MPI for its hints", *first, [&] {
    base::ByteWriter out;
    for (const auto& [key, value] : hints_that_matter(members_.front().handle.hints(), hints_)) {
      out.text(key);
      out.text(value);
    }
    bytes = out.take();
  });
  communicator_.share(bytes, *first);
  comm::agree(communicator_, "note MPI's hints", [&] {
    base::ByteReader in(bytes);
    std::string said;
    while (!in.done()) {
      const std::string key = in.text();
      hints_in_force_[key] = in.text();
      said += " " + key + "=" + hints_in_force_[key];
    }
    base::log_debug("engine mpiio on " + implementation_.io_component + ", hints:" + base::printable(said, 1000) +
                    (reader_ ? "; reads by a thread" : ""));
  });
}

void MpiioEngine::open_for_write(std::vector<EngineFile> files, plan::ExtentMaps extents) {
  guarded([&] {
    const std::string file_system = begin_on_all(std::move(files), extents);
    std::shared_ptr<InfoHandle> info;
    comm::agree(communicator_, "create data files", [&] {
      hints_ = mpiio_hints(file_system, options_.hints);
      rounds_wait_ = !runs_on_romio(implementation_) || !writes_own_bytes(hints_);
      info = std::make_shared<InfoHandle>(hints_);
      check_descriptors();
      create_files();
    });
    comm::agree(communicator_, "open data files", [&] { open_own_descriptors(); });
    open_handles(MPI_MODE_WRONLY, info);
    note_hints_in_force();
  });
}

void MpiioEngine::open_for_read(std::vector<EngineFile> files, plan::ExtentMaps extents) {
  guarded([&] {
    const std::string file_system = begin_on_all(std::move(files), extents);
    std::shared_ptr<InfoHandle> info;
    bool can_read_ahead = false;
    comm::agree(communicator_, "open data files", [&] {
      hints_ = mpiio_hints(file_system, options_.hints);
      rounds_wait_ = !runs_on_romio(implementation_) || !reads_own_bytes(hints_);
      info = std::make_shared<InfoHandle>(hints_);
      check_descriptors();
      check_files_to_read();
      can_read_ahead = can_read_by_thread();
    });
    if (communicator_.min(can_read_ahead ? 1 : 0) != 0) {
      comm::agree(communicator_, "start a thread that reads", [&] { reader_ = std::make_unique<RoundWorker>(); });
    }
    open_handles(MPI_MODE_RDONLY, info);
    note_hints_in_force();
  });
}

/// Avoids MPI_File_preallocate, which writes zeros from one rank and hides ENOSPC under OMPIO.
void MpiioEngine::create_files() {
  const os::Striping striping = os::striping_of_hints(options_.hints);
  for (const std::uint32_t number : kept_) {
    const EngineFile& file = files_[number];
    os::File created = os::create_striped(file.path, striping);
    created.set_size(file.size_bytes);
    if (options_.reserve_space) created.reserve(file.size_bytes);  // if not supported, writes report ENOSPC
    if (Member* member = member_of(number)) {
      member->own = std::move(created);
    } else {
      created.sync();  // no rank will open it again
      created.close();
    }
  }
}

MpiioEngine::Member* MpiioEngine::member_of(std::uint32_t file) {
  const auto member =
      std::find_if(members_.begin(), members_.end(), [&](const Member& m) { return m.turn.file == file; });
  return member == members_.end() ? nullptr : &*member;
}

/// MPI keeps every file of this rank open until close().
void MpiioEngine::check_descriptors() const {
  const std::uint64_t needed = 2 * members_.size();
  const std::uint64_t free = os::free_descriptors();
  if (needed <= free) return;
  throw Error(ErrorKind::kUsage, "engine 'mpiio' would have " + std::to_string(members_.size()) +
                                     " files of this rank open, with two descriptors each, and this process may open " +
                                     std::to_string(free) +
                                     " more: raise the limit (ulimit -n) before it starts, let files be larger "
                                     "(Options::files.max_bytes), or choose engine 'posix'");
}

void MpiioEngine::open_own_descriptors() {
  for (Member& member : members_) {
    if (!member.own.is_open()) member.own = os::File(files_[member.turn.file].path, os::OpenMode::kWrite);
  }
}

void MpiioEngine::check_files_to_read() const {
  for (const std::uint32_t number : kept_) {
    const EngineFile& file = files_[number];
    if (file.path.empty()) continue;  // this rank cannot see the file, and no rank reads it
    const std::uint64_t found = os::File(file.path, os::OpenMode::kRead).size_bytes();
    if (found == file.size_bytes) continue;
    throw Error(ErrorKind::kIntegrity,
                "cannot read " + quoted(file) + ": it has " + std::to_string(found) + " bytes, expected " +
                    std::to_string(file.size_bytes) +
                    (found < file.size_bytes ? "; it was cut short" : "; it is another file"),
                {0, file.path.native()});
  }
}

/// Collective over the ranks of each file. A rank notes its failures, and continues with the next file.
void MpiioEngine::make_groups(Failure& failure) {
  const auto make = [&](std::unique_ptr<comm::Communicator>& group, int first, int last, int tag) {
    try {
      group = communicator_.subgroup(first, last, tag);
    } catch (...) {
      failure.note_current();
    }
  };
  make(alone_, communicator_.rank(), communicator_.rank(), 0);
  for (std::size_t m = 0; m < members_.size(); ++m) {
    const FileTurn& turn = members_[m].turn;
    if (turn.first == turn.last) continue;
    make(groups_[m], turn.first, turn.last, static_cast<int>(turn.file % (comm::kMaxTag + 1)));
  }
}

/// A call of MPI_File_open for one file.
struct MpiioEngine::OpenCall {
  MPI_Comm group;
  std::string path;
  int mode;
  std::shared_ptr<InfoHandle> info;
  FileHandle handle = {};
  int code = MPI_SUCCESS;
  void operator()() { code = handle.open(group, path, mode, info->get()); }
};

void MpiioEngine::open_handles(int mode, const std::shared_ptr<InfoHandle>& info) {
  Failure failure;
  std::vector<std::shared_ptr<OpenCall>> calls;
  std::vector<std::function<void()>> runs;  // allocated before any file is open
  make_groups(failure);
  // MPI_File_open blocks: a rank that failed between here and the call would leave the others waiting in it.
  comm::agree(communicator_, "open data files", [&] {
    failure.rethrow();
    start_opener();
    for (std::size_t m = 0; m < members_.size(); ++m) {
      const MPI_Comm group = comm::native_handle(groups_[m] ? *groups_[m] : *alone_);
      const std::string path = mpi_path(files_[members_[m].turn.file], implementation_);
      calls.push_back(std::make_shared<OpenCall>(OpenCall{group, path, mode, info}));
      runs.emplace_back([call = calls.back()] { (*call)(); });
    }
  });
  for (std::size_t m = 0; m < members_.size(); ++m) {
    const EngineFile& file = files_[members_[m].turn.file];
    const auto fault = os::check_fault("open", file.path);
    static_cast<void>(os::check_fault("mpiio.open", file.path));  // tests stop a rank here
    meet(members_[m]);
    call_mpi(std::move(runs[m]), "MPI_File_open");
    members_[m].handle = std::move(calls[m]->handle);
    if (const int code = calls[m]->code; code != MPI_SUCCESS) {
      failure.note(Error(ErrorKind::kIo,
                         "cannot open " + quoted(file) + ": MPI_File_open: " + comm::mpi_error_text(code),
                         {0, file.path.native()}));
    } else if (fault && fault->error != 0 && fault->error != EINTR) {
      failure.note(Error(ErrorKind::kIo, "cannot open " + quoted(file) + ": " + std::strerror(fault->error),
                         {fault->error, file.path.native()}));
    }
  }
  try {
    comm::agree(communicator_, "open data files", [&] { failure.rethrow(); });
  } catch (const comm::AgreedError&) {
    give_up_half_open_files();
    throw;
  }
}

void MpiioEngine::give_up_half_open_files() {
  for (std::size_t m = 0; m < members_.size(); ++m) {
    FileHandle& handle = members_[m].handle;
    const bool everywhere = groups_[m] ? groups_[m]->min(handle.is_open() ? 1 : 0) == 1 : handle.is_open();
    if (!everywhere) handle.give_up();
  }
}

void MpiioEngine::sync() {
  guarded([&] {
    Failure failure;
    for (Member& member : members_) {
      const EngineFile& file = files_[member.turn.file];
      if (!runs_on_romio(implementation_)) meet(member);
      if (const int code = MPI_File_sync(member.handle.get()); code != MPI_SUCCESS) {
        failure.note(Error(ErrorKind::kIo,
                           "cannot sync " + quoted(file) + ": MPI_File_sync: " + comm::mpi_error_text(code) +
                               "; the file must be written again",
                           {0, file.path.native()}));
      }
      try {
        member.own.sync();
      } catch (const Error& error) {
        failure.note(error);
      }
    }
    comm::agree(communicator_, "sync data files", [&] {
      failure.rethrow();
      for (const std::uint32_t number : kept_) check_size(files_[number], "after writing,", ErrorKind::kIo);
    });
  });
}

void MpiioEngine::close() {
  guarded([&] {
    comm::agree(communicator_, "close data files", [&] {
      for (Member& member : members_) {
        if (member.own.is_open()) member.own.close();
      }
    });
  });
  close_all();
}

/// Collective, after an agreement.
void MpiioEngine::close_all() {
  reader_.reset();  // before the files that it uses
  for (Member& member : members_) {
    if (member.handle.is_open()) {
      call_mpi([file = member.handle.give_up()]() mutable { MPI_File_close(&file); }, "MPI_File_close");
    }
    member.own = os::File();
  }
  members_.clear();
  groups_.clear();
  alone_.reset();
  opener_.reset();
}

}  // namespace cairn::io
