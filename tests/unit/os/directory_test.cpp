// Directories: creation, listing, renames, removal, and permissions. Links are never followed out of a tree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "base/bytes.hpp"
#include "os/access.hpp"
#include "os/file.hpp"
#include "os_test_tools.hpp"
#include "temp_dir.hpp"

namespace cairn::os {
namespace {

using test::TempDir;
using testing::HasSubstr;

TEST(Directory, AFileGetsANewNameAndNeverTakesOne) {
  // The three methods in turn: a rename that never replaces, a hard link, a name that is claimed first.
  for (const char* rules : {"", "rename:errno=EINVAL:times=1", "rename:errno=EINVAL:times=1;link:errno=ENOTSUP"}) {
    const TempDir dir;
    write_new_file(dir / "from", base::as_bytes("new"));
    {
      const Faults faults(rules);
      EXPECT_TRUE(rename_to_new(dir / "from", dir / "to")) << rules;
    }
    EXPECT_EQ(read_text(dir / "to", 100), "new");
    EXPECT_FALSE(os::exists(dir / "from"));
    write_new_file(dir / "from", base::as_bytes("newer"));
    {
      const Faults faults(rules);
      EXPECT_FALSE(rename_to_new(dir / "from", dir / "to")) << rules;
    }
    EXPECT_EQ(read_text(dir / "to", 100), "new");
    EXPECT_EQ(read_text(dir / "from", 100), "newer");
  }
}

TEST(MakeDirectory, MakesParentsAndToleratesExisting) {
  const TempDir dir;
  make_directory(dir / "a/b/c");
  EXPECT_TRUE(std::filesystem::is_directory(dir / "a/b/c"));
  make_directory(dir / "a/b/c");
  make_directory(dir / "a/b/d/");
  EXPECT_TRUE(std::filesystem::is_directory(dir / "a/b/d"));
  touch(dir / "a/file");
  for (const char* path : {"a/file", "a/file/x"}) {
    EXPECT_THAT(error_of(ErrorKind::kUsage, [&] { make_directory(dir / path); }),
                HasSubstr("a/file' is a file, and a directory"));
  }
}

TEST(MakeDirectory, HasFaults) {
  const TempDir dir;
  const Faults faults("mkdir:errno=ENOSPC:path=deep");
  EXPECT_THAT(error_of(ErrorKind::kIo, [&] { make_directory(dir / "a/deep"); }), HasSubstr("No space left on device"));
  make_directory(dir / "a");
}

TEST(MakeDirectory, ManyThreadsAtOnce) {
  const TempDir dir;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { make_directory(dir / "1/2/3/4/5/6"); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(std::filesystem::is_directory(dir / "1/2/3/4/5/6"));
}

TEST(MakeNewDirectory, MustBeNew) {
  const TempDir dir;
  make_new_directory(dir / "a");
  EXPECT_THAT(error_of(ErrorKind::kIo, [&] { make_new_directory(dir / "a"); }),
              HasSubstr("creation of directory '" + (dir / "a").string() + "' failed: File exists"));
  EXPECT_NE(error_of(ErrorKind::kIo, [&] { make_new_directory(dir / "b/c"); }), "no error");
}

TEST(Rename, FilesAndDirectories) {
  const TempDir dir;
  make_directory(dir / "partial");
  touch(dir / "partial/f");
  os::rename(dir / "partial", dir / "final");
  EXPECT_FALSE(os::exists(dir / "partial"));
  EXPECT_TRUE(os::exists(dir / "final/f"));
  make_directory(dir / "partial");
  EXPECT_THAT(error_of(ErrorKind::kIo, [&] { os::rename(dir / "partial", dir / "final"); }),
              HasSubstr("Directory not empty"));
  EXPECT_THAT(error_of(ErrorKind::kIo, [&] { os::rename(dir / "none", dir / "x"); }),
              HasSubstr("rename of '" + (dir / "none").string() + "' to '" + (dir / "x").string() + "' failed"));
  const Faults faults("rename:path=target");
  EXPECT_NE(error_of(ErrorKind::kIo, [&] { os::rename(dir / "partial", dir / "target"); }), "no error");
  EXPECT_TRUE(os::exists(dir / "partial"));
}

TEST(TryRename, SaysWhatOthersDid) {
  const TempDir dir;
  make_directory(dir / "partial");
  touch(dir / "partial/1");
  EXPECT_EQ(try_rename(dir / "none", dir / "x"), Renamed::kSourceMissing);
  EXPECT_EQ(try_rename(dir / "partial", dir / "nowhere/x"), Renamed::kSourceMissing);
  make_directory(dir / "full");
  touch(dir / "full/2");
  EXPECT_EQ(try_rename(dir / "partial", dir / "full"), Renamed::kTargetExists);
  touch(dir / "file");
  EXPECT_EQ(try_rename(dir / "partial", dir / "file"), Renamed::kTargetExists);
  EXPECT_TRUE(os::exists(dir / "partial/1"));
  {
    const Faults faults("rename:path=target");
    EXPECT_THAT(
        error_of(ErrorKind::kIo, [&] { try_rename(dir / "partial", dir / "target"); }),
        HasSubstr("rename of '" + (dir / "partial").string() + "' to '" + (dir / "target").string() + "' failed"));
  }
  make_directory(dir / "empty");
  EXPECT_EQ(try_rename(dir / "partial", dir / "empty"), Renamed::kDone);
  EXPECT_TRUE(os::exists(dir / "empty/1"));
}

TEST(RefreshDirectory, LeavesNothing) {
  const TempDir dir;
  refresh_directory(dir.path(), "look");
  EXPECT_TRUE(list_directory(dir.path()).empty());
  EXPECT_NE(error_of(ErrorKind::kNotFound, [&] { refresh_directory(dir / "none", "look"); }), "no error");
}

TEST(Exchange, IsNotThereOnEveryFileSystem) {
  const TempDir dir;
  make_directory(dir / "old");
  make_directory(dir / "new");
  const Faults faults("exchange:errno=EINVAL");
  EXPECT_FALSE(os::exchange(dir / "new", dir / "old"));
}

TEST(Exchange, SwapsTwoNames) {
  const TempDir dir;
  make_directory(dir / "old");
  make_directory(dir / "new");
  touch(dir / "old/1");
  touch(dir / "new/2");
  {
    const Faults faults("exchange:path=old");
    EXPECT_THAT(error_of(ErrorKind::kIo, [&] { os::exchange(dir / "new", dir / "old"); }),
                HasSubstr("exchange of '" + (dir / "new").string() + "' with '" + (dir / "old").string() + "' failed"));
  }
  EXPECT_TRUE(os::exists(dir / "old/1"));
  EXPECT_NE(error_of(ErrorKind::kIo, [&] { os::exchange(dir / "new", dir / "none"); }), "no error");
  if (!os::exchange(dir / "new", dir / "old")) GTEST_SKIP() << "this file system cannot exchange names";
  EXPECT_TRUE(os::exists(dir / "old/2"));
  EXPECT_TRUE(os::exists(dir / "new/1"));
  EXPECT_EQ(list_directory(dir.path()).size(), 2U);
}

TEST(SyncDirectory, SyncsOrSaysWhyNot) {
  const TempDir dir;
  sync_directory(dir.path());
  touch(dir / "f");
  EXPECT_THAT(error_of(ErrorKind::kIo, [&] { sync_directory(dir / "f"); }), HasSubstr("Not a directory"));
  EXPECT_NE(error_of(ErrorKind::kNotFound, [&] { sync_directory(dir / "none"); }), "no error");
  const Faults faults("fsync:times=1");
  EXPECT_THAT(error_of(ErrorKind::kIo, [&] { sync_directory(dir.path()); }), HasSubstr("fsync of directory"));
  sync_directory(dir.path());
}

TEST(RemoveTree, RemovesAllButNeverFollowsLinks) {
  const TempDir dir;
  make_directory(dir / "outside/sub");
  touch(dir / "outside/keep");
  touch(dir / "outside/sub/keep");
  make_directory(dir / "tree/a/b/c");
  make_directory(dir / "tree/empty");
  touch(dir / "tree/f");
  touch(dir / "tree/a/b/c/f");
  std::filesystem::create_directory_symlink(dir / "outside", dir / "tree/link");
  std::filesystem::create_symlink(dir / "outside/keep", dir / "tree/a/link");
  std::filesystem::create_symlink("nowhere", dir / "tree/dangling");
  ASSERT_EQ(::mkfifo((dir / "tree/fifo").c_str(), 0600), 0);
  remove_tree(dir / "tree");
  EXPECT_FALSE(os::exists(dir / "tree"));
  EXPECT_TRUE(os::exists(dir / "outside/keep"));
  EXPECT_TRUE(os::exists(dir / "outside/sub/keep"));
}

TEST(RemoveTree, ALinkIsRemovedItself) {
  const TempDir dir;
  make_directory(dir / "outside");
  touch(dir / "outside/keep");
  std::filesystem::create_directory_symlink(dir / "outside", dir / "link");
  remove_tree(dir / "link");
  EXPECT_FALSE(std::filesystem::is_symlink(dir / "link"));
  EXPECT_TRUE(os::exists(dir / "outside/keep"));
  std::filesystem::create_directory_symlink(dir / "outside", dir / "link");
  remove_tree((dir / "link").string() + "/");  // with the slash that a shell's completion adds
  EXPECT_TRUE(os::exists(dir / "outside/keep"));
}

TEST(RemoveTree, FilesAndNothing) {
  const TempDir dir;
  touch(dir / "f");
  remove_tree(dir / "f");
  EXPECT_FALSE(os::exists(dir / "f"));
  remove_tree(dir / "f");
  remove_tree(dir / "none/at/all");
}

TEST(RemoveTree, HasFaultsAndCanBeCalledAgain) {
  const TempDir dir;
  make_directory(dir / "tree/sub");
  touch(dir / "tree/sub/f");
  {
    const Faults faults("unlink:path=sub/f");
    EXPECT_THAT(error_of(ErrorKind::kIo, [&] { remove_tree(dir / "tree"); }),
                HasSubstr("removal of '" + (dir / "tree/sub/f").string() + "' failed: Input/output error"));
  }
  EXPECT_TRUE(os::exists(dir / "tree/sub/f"));
  remove_tree(dir / "tree");
  EXPECT_FALSE(os::exists(dir / "tree"));
}

TEST(Exists, FollowsLinks) {
  const TempDir dir;
  touch(dir / "f", "12345");
  std::filesystem::create_symlink("f", dir / "link");
  std::filesystem::create_symlink("none", dir / "dangling");
  EXPECT_TRUE(os::exists(dir.path()));
  EXPECT_TRUE(os::exists(dir / "link"));
  EXPECT_FALSE(os::exists(dir / "dangling"));
  EXPECT_FALSE(os::exists(dir / "f/below-a-file"));
  EXPECT_EQ(os::file_size(dir / "link"), 5U);
  EXPECT_NE(error_of(ErrorKind::kNotFound, [&] { os::file_size(dir / "none"); }), "no error");
}

TEST(ListDirectory, SortedWithKindAndSize) {
  const TempDir dir;
  touch(dir / "b", "1234");
  touch(dir / "B", "");
  make_directory(dir / "a");
  std::filesystem::create_symlink("b", dir / "link");
  std::filesystem::create_directory_symlink("a", dir / "link-to-a");
  std::filesystem::create_symlink("none", dir / "dangling");
  ASSERT_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  std::vector<std::string> found;
  for (const DirectoryEntry& entry : list_directory(dir.path())) {
    found.push_back(entry.name +
                    (entry.is_directory ? " directory "
                     : entry.is_regular ? " file "
                                        : " other ") +
                    std::to_string(entry.size_bytes));
  }
  EXPECT_THAT(found, testing::ElementsAre("B file 0", "a directory 0", "b file 4", "dangling other 0", "fifo other 0",
                                          "link file 4", "link-to-a directory 0"));
  EXPECT_TRUE(list_directory(dir / "a").empty());
  EXPECT_THAT(error_of(ErrorKind::kNotFound, [&] { list_directory(dir / "none"); }), HasSubstr("listing of"));
  EXPECT_NE(error_of(ErrorKind::kIo, [&] { list_directory(dir / "b"); }), "no error");
  const Faults faults("open:errno=EACCES");
  EXPECT_THAT(error_of(ErrorKind::kIo, [&] { list_directory(dir.path()); }), HasSubstr("Permission denied"));
}

TEST(FileSystem, IsNamed) {
  const FileSystemInfo proc = file_system_of("/proc");
  EXPECT_EQ(proc.type, "0x9fa0");  // not a known file system: the number
  const TempDir dir;
  const FileSystemInfo here = file_system_of(dir.path());
  EXPECT_FALSE(here.type.empty());
  EXPECT_GT(here.block_bytes, 0U);
  EXPECT_EQ(here.free_bytes, std::filesystem::space(dir.path()).available);
  EXPECT_NE(error_of(ErrorKind::kIo, [&] { file_system_of(dir / "none"); }), "no error");
}

TEST(FileSystem, OnlyThoseThatNobodySharesAreLocal) {
  for (const char* type : {"ext4", "xfs", "btrfs", "zfs", "overlay", "tmpfs", "ramfs"}) {
    EXPECT_TRUE((FileSystemInfo{type, 0, 0}.is_local())) << type;
  }
  for (const char* type : {"nfs", "lustre", "gpfs", "beegfs", "fuse", "ceph", "cifs", "9p", "0x1234", ""}) {
    EXPECT_FALSE((FileSystemInfo{type, 0, 0}.is_local())) << type;
  }
}

TEST(FileSystem, MemoryIsTmpfs) {
  if (!os::exists("/dev/shm")) GTEST_SKIP() << "no /dev/shm here";
  EXPECT_EQ(file_system_of("/dev/shm").type, "tmpfs");
  EXPECT_TRUE(file_system_of("/dev/shm").is_local());
}

unsigned mode_of(const std::filesystem::path& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777;
}

/// A umask without permissions for group and others, while the object exists.
class NarrowUmask {
 public:
  NarrowUmask() : before_(::umask(077)) {}
  ~NarrowUmask() { ::umask(before_); }
  NarrowUmask(const NarrowUmask&) = delete;
  NarrowUmask& operator=(const NarrowUmask&) = delete;

 private:
  mode_t before_;
};

TEST(Access, IsOfWhatIsMadeInTheScope) {
  const TempDir dir;
  const NarrowUmask umask;
  write_new_file(dir / "before", {});
  const Access shared = access_of(0664, "");
  {
    const AccessScope scope(shared);
    make_directory(dir / "a" / "b");
    write_new_file(dir / "a" / "file", {});
    replace_file(dir / "a" / "replaced", {});
    create_exclusively(dir / "a" / "exclusive")->close();
    File(dir / "before", OpenMode::kWrite).close();
    make_directory(dir / "a");
    std::thread([&] { write_new_file(dir / "of another thread", {}); }).join();
    const Access own = access_of(0600, "");
    const AccessScope inner(own);
    write_new_file(dir / "inner", {});
  }
  write_new_file(dir / "after", {});
  EXPECT_EQ(mode_of(dir / "a"), 0775U);
  EXPECT_EQ(mode_of(dir / "a" / "b"), 0775U);
  for (const char* name : {"file", "replaced", "exclusive"}) EXPECT_EQ(mode_of(dir / "a" / name), 0664U) << name;
  for (const char* name : {"before", "of another thread", "inner", "after"}) {
    EXPECT_EQ(mode_of(dir / name), 0600U) << name;
  }
}

TEST(Access, KeepsTheGroupOfADirectoryThatHandsItDown) {
  const TempDir dir;
  ASSERT_EQ(::chmod(dir.path().c_str(), 02770), 0);
  const Access shared = access_of(0640, "");
  const AccessScope scope(shared);
  make_directory(dir / "a" / "b");
  EXPECT_EQ(mode_of(dir / "a" / "b"), 02750U);
}

TEST(Access, ThatCannotBeHadIsAnErrorAndLeavesNoDescriptor) {
  const TempDir dir;
  const Access shared = access_of(0660, std::to_string(::getegid()));
  const AccessScope scope(shared);
  for (const char* operation : {"chown", "chmod"}) {
    const Faults faults(std::string(operation) + ":errno=ENOTSUP:times=2");
    EXPECT_THAT(error_of(ErrorKind::kIo, [&] { File(dir / operation, OpenMode::kCreateNew); }),
                HasSubstr((dir / operation).string()));
    EXPECT_THAT(error_of(ErrorKind::kIo, [&] { make_new_directory(dir / (std::string("d") + operation)); }),
                HasSubstr("d" + std::string(operation)));
  }
  write_new_file(dir / "then", {});
  EXPECT_EQ(mode_of(dir / "then"), 0660U);
}

}  // namespace
}  // namespace cairn::os
