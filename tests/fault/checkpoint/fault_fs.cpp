// A file system in user space that passes all calls through to a folder, and makes calls fail on command.
//
//   fault_fs FOLDER MOUNTPOINT direct|buffered|writeback
//
//   direct       past the page cache, whatever the flags of the open (FOPEN_DIRECT_IO)
//   buffered     the kernel caches, and passes every write on before the write returns
//   writeback    the kernel passes writes on later, so that fsync is the first call that reports a failure
//
// Prints "ready" once it is mounted. Reads commands from standard input, answers each with one line, and unmounts at
// the end of the input.
//
//   set CALL ACTION VALUE AFTER TIMES [PART]
//                replaces the rule: of the calls CALL ("any": all) on paths that contain PART, let AFTER pass, then act
//                on TIMES of them (0: on all). A rename or link has the path of its target.                     "ok"
//       fail      with errno VALUE
//       short     write half, and report that
//       lie       write half, and report everything
//       stall     wait until the rule is gone, then continue
//   hits         how often the rule has applied                                                             "hits N"
//   clear        removes the rule                                                                           "hits N"
//
// Calls are those of FUSE: create, open, read, write, fsync, flush (a close), fsyncdir, rename, link, mkdir, rmdir,
// unlink, truncate, fallocate, opendir, readdir, statfs, getattr, chmod, chown, utimens. Locks are the kernel's own.
#define FUSE_USE_VERSION 31
#include <dirent.h>
#include <fcntl.h>
#include <fuse.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>

namespace {

struct Rule {
  std::string call;
  std::string part;
  std::string action;
  int value = 0;
  std::uint64_t after = 0;
  std::uint64_t times = 0;
  std::uint64_t seen = 0;
  std::uint64_t hits = 0;
};

/// The current rule; there is at most one.
class Rules {
 public:
  void set(Rule rule) {
    const std::lock_guard lock(mutex_);
    rule_ = std::move(rule);
    ++number_;
    changed_.notify_all();
  }
  std::uint64_t hits() {
    const std::lock_guard lock(mutex_);
    return rule_.hits;
  }
  /// The action for a call: "", "fail" with an errno, "short" or "lie". Waits while the rule is "stall".
  struct Verdict {
    std::string_view action;
    int error = 0;
  };
  Verdict ask(std::string_view call, std::string_view path) {
    std::unique_lock lock(mutex_);
    if (rule_.call != call && rule_.call != "any") return {};
    if (path.find(rule_.part) == std::string_view::npos || rule_.seen++ < rule_.after) return {};
    if (rule_.times != 0 && rule_.hits == rule_.times) return {};
    ++rule_.hits;
    if (rule_.action == "fail") return {"fail", rule_.value};
    if (rule_.action == "short") return {"short"};
    if (rule_.action == "lie") return {"lie"};
    changed_.wait(lock, [this, number = number_] { return number_ != number; });
    return {};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Rule rule_;
  std::uint64_t number_ = 0;
};

Rules rules;
int folder = -1;
bool is_direct = false;
bool is_written_back = false;

const char* relative(const char* path) { return path[1] == '\0' ? "." : path + 1; }

struct OpenFile {
  int file = -1;
  std::string path;  ///< path at the time of opening
};
// NOLINTNEXTLINE(performance-no-int-to-ptr)
OpenFile& of(const fuse_file_info* info) { return *reinterpret_cast<OpenFile*>(info->fh); }

/// Minus the errno of the rule for this call or, if no rule applies, of the call itself; 0 on success.
template <class Call>
int pass(std::string_view name, std::string_view path, Call call) {
  const int error = rules.ask(name, path).error;
  if (error != 0) return -error;
  return call() < 0 ? -errno : 0;
}

int open_file(const char* path, int flags, mode_t mode, fuse_file_info* info) {
  const int file = ::openat(folder, relative(path), flags, mode);
  if (file < 0) return -1;
  info->fh = reinterpret_cast<std::uint64_t>(new OpenFile{file, path});
  return 0;
}

int open_data(const char* path, mode_t mode, fuse_file_info* info) {
  int flags = info->flags & ~(O_DIRECT | O_NOFOLLOW);  // the buffers of FUSE are not aligned
  if (is_written_back) {                               // the kernel reads pages that a write covers only in part
    flags &= ~O_APPEND;
    if ((flags & O_ACCMODE) == O_WRONLY) flags = (flags & ~O_ACCMODE) | O_RDWR;
  }
  info->direct_io = is_direct ? 1 : 0;
  return open_file(path, flags, mode, info);
}

int fs_open(const char* path, fuse_file_info* info) {
  return pass("open", path, [&] { return open_data(path, 0, info); });
}
int fs_create(const char* path, mode_t mode, fuse_file_info* info) {
  return pass("create", path, [&] { return open_data(path, mode, info); });
}
int fs_opendir(const char* path, fuse_file_info* info) {
  return pass("opendir", path, [&] { return open_file(path, O_RDONLY | O_DIRECTORY, 0, info); });
}
int fs_release(const char* /*path*/, fuse_file_info* info) {
  ::close(of(info).file);
  delete &of(info);
  return 0;
}
int fs_flush(const char* /*path*/, fuse_file_info* info) {
  return pass("flush", of(info).path, [] { return 0; });
}
int fs_fsync(const char* /*path*/, int /*is_data_only*/, fuse_file_info* info) {
  return pass("fsync", of(info).path, [&] { return ::fsync(of(info).file); });
}
int fs_fsyncdir(const char* /*path*/, int /*is_data_only*/, fuse_file_info* info) {
  return pass("fsyncdir", of(info).path, [&] { return ::fsync(of(info).file); });
}

int fs_read(const char* /*path*/, char* data, std::size_t bytes, off_t offset, fuse_file_info* info) {
  const int error = rules.ask("read", of(info).path).error;
  if (error != 0) return -error;
  const ssize_t done = ::pread(of(info).file, data, bytes, offset);
  return done < 0 ? -errno : static_cast<int>(done);
}

int fs_write(const char* /*path*/, const char* data, std::size_t bytes, off_t offset, fuse_file_info* info) {
  const Rules::Verdict verdict = rules.ask("write", of(info).path);
  if (verdict.error != 0) return -verdict.error;
  const std::size_t wanted = verdict.action.empty() ? bytes : (bytes + 1) / 2;
  std::size_t done = 0;
  while (done < wanted) {
    const ssize_t now = ::pwrite(of(info).file, data + done, wanted - done, offset + static_cast<off_t>(done));
    if (now < 0) return -errno;
    done += static_cast<std::size_t>(now);
  }
  return static_cast<int>(verdict.action == "lie" ? bytes : done);
}

int fs_getattr(const char* path, struct stat* found, fuse_file_info* info) {
  return pass("getattr", info != nullptr ? of(info).path : path, [&] {
    if (info != nullptr) return ::fstat(of(info).file, found);
    return ::fstatat(folder, relative(path), found, AT_SYMLINK_NOFOLLOW);
  });
}
int fs_truncate(const char* path, off_t bytes, fuse_file_info* info) {
  return pass("truncate", info != nullptr ? of(info).path : path, [&] {
    if (info != nullptr) return ::ftruncate(of(info).file, bytes);
    const int file = ::openat(folder, relative(path), O_WRONLY);
    if (file < 0) return -1;
    const int result = ::ftruncate(file, bytes);
    ::close(file);
    return result;
  });
}
int fs_fallocate(const char* /*path*/, int mode, off_t offset, off_t bytes, fuse_file_info* info) {
  return pass("fallocate", of(info).path, [&] { return ::fallocate(of(info).file, mode, offset, bytes); });
}
int fs_rename(const char* from, const char* to, unsigned flags) {
  return pass("rename", to, [&] { return ::renameat2(folder, relative(from), folder, relative(to), flags); });
}
int fs_link(const char* from, const char* to) {
  return pass("link", to, [&] { return ::linkat(folder, relative(from), folder, relative(to), 0); });
}
int fs_mkdir(const char* path, mode_t mode) {
  return pass("mkdir", path, [&] { return ::mkdirat(folder, relative(path), mode); });
}
int fs_rmdir(const char* path) {
  return pass("rmdir", path, [&] { return ::unlinkat(folder, relative(path), AT_REMOVEDIR); });
}
int fs_unlink(const char* path) {
  return pass("unlink", path, [&] { return ::unlinkat(folder, relative(path), 0); });
}
int fs_chmod(const char* path, mode_t mode, fuse_file_info* info) {
  return pass("chmod", info != nullptr ? of(info).path : path, [&] {
    return info != nullptr ? ::fchmod(of(info).file, mode) : ::fchmodat(folder, relative(path), mode, 0);
  });
}
int fs_chown(const char* path, uid_t user, gid_t group, fuse_file_info* info) {
  return pass("chown", info != nullptr ? of(info).path : path, [&] {
    if (info != nullptr) return ::fchown(of(info).file, user, group);
    return ::fchownat(folder, relative(path), user, group, AT_SYMLINK_NOFOLLOW);
  });
}
int fs_utimens(const char* path, const timespec times[2], fuse_file_info* info) {
  return pass("utimens", info != nullptr ? of(info).path : path, [&] {
    if (info != nullptr) return ::futimens(of(info).file, times);
    return ::utimensat(folder, relative(path), times, AT_SYMLINK_NOFOLLOW);
  });
}
int fs_statfs(const char* /*path*/, struct statvfs* found) {
  return pass("statfs", "/", [&] { return ::fstatvfs(folder, found); });
}
int fs_readdir(const char* /*path*/, void* list, fuse_fill_dir_t add, off_t /*offset*/, fuse_file_info* info,
               fuse_readdir_flags /*flags*/) {
  return pass("readdir", of(info).path, [&] {
    DIR* const entries = ::fdopendir(::openat(of(info).file, ".", O_RDONLY | O_DIRECTORY));
    if (entries == nullptr) return -1;
    while (const dirent* entry = ::readdir(entries)) add(list, entry->d_name, nullptr, 0, fuse_fill_dir_flags{});
    return ::closedir(entries);
  });
}

void* fs_init(fuse_conn_info* connection, fuse_config* config) {
  config->hard_remove = 1;  // no ".fuse_hidden" files, which keep a folder from being removed
  config->nullpath_ok = 1;  // calls on open files need no path
  if (is_written_back) connection->want |= FUSE_CAP_WRITEBACK_CACHE;
  return nullptr;
}

fuse_operations operations() {
  fuse_operations all{};
  all.init = fs_init;
  all.open = fs_open;
  all.create = fs_create;
  all.release = fs_release;
  all.flush = fs_flush;
  all.fsync = fs_fsync;
  all.fsyncdir = fs_fsyncdir;
  all.read = fs_read;
  all.write = fs_write;
  all.getattr = fs_getattr;
  all.truncate = fs_truncate;
  all.fallocate = fs_fallocate;
  all.rename = fs_rename;
  all.link = fs_link;
  all.mkdir = fs_mkdir;
  all.rmdir = fs_rmdir;
  all.unlink = fs_unlink;
  all.chmod = fs_chmod;
  all.chown = fs_chown;
  all.utimens = fs_utimens;
  all.statfs = fs_statfs;
  all.opendir = fs_opendir;
  all.readdir = fs_readdir;
  all.releasedir = fs_release;
  return all;
}

std::string answer(const std::string& line) {
  std::istringstream words(line);
  std::string command;
  words >> command;
  if (command == "hits") return "hits " + std::to_string(rules.hits());
  if (command == "clear") {
    const std::uint64_t hits = rules.hits();
    rules.set({});
    return "hits " + std::to_string(hits);
  }
  Rule rule;
  words >> rule.call >> rule.action >> rule.value >> rule.after >> rule.times;
  if (command != "set" || !words) return "what? " + line;
  words >> rule.part;
  rules.set(std::move(rule));
  return "ok";
}

/// Reads commands to the end of the input, then releases all stalled calls and unmounts.
void serve(fuse* files) {
  std::cout << "ready" << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) std::cout << answer(line) << std::endl;
  rules.set({});
  fuse_exit(files);
  fuse_unmount(files);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc == 4 ? argv[3] : "";
  if (mode != "direct" && mode != "buffered" && mode != "writeback") {
    std::fprintf(stderr, "usage: fault_fs FOLDER MOUNTPOINT direct|buffered|writeback\n");
    return 2;
  }
  is_direct = mode == "direct";
  is_written_back = mode == "writeback";
  folder = ::open(argv[1], O_RDONLY | O_DIRECTORY);
  if (folder < 0) {
    std::perror(argv[1]);
    return 2;
  }
  ::umask(0);
  const fuse_operations all = operations();
  std::string name = argv[0];
  char* no_arguments[] = {name.data(), nullptr};
  fuse_args arguments = FUSE_ARGS_INIT(1, no_arguments);
  fuse* const files = fuse_new(&arguments, &all, sizeof all, nullptr);
  if (files == nullptr || fuse_mount(files, argv[2]) != 0) return 1;  // libfuse has printed the reason
  std::thread commands(serve, files);
  const int result = fuse_loop_mt(files, 0);
  commands.join();
  fuse_destroy(files);
  return result == 0 ? 0 : 1;
}
