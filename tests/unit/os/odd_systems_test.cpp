// File systems that behave differently from ext4: unusual codes, requests that a network sends twice, calls that a
// signal interrupts. src/os/README.md has the list.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/bytes.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"
#include "os/huge_pages.hpp"
#include "os_test_tools.hpp"
#include "temp_dir.hpp"

namespace cairn::os {
namespace {

using test::TempDir;
using testing::HasSubstr;

TEST(OddSystem, NoLockIsNoErrorWhateverTheReason) {
  const TempDir dir;
  File file(dir / "f", OpenMode::kCreateNew);
  // 524: DVS. EIO, EREMOTE (66), ECONNREFUSED (111): lock servers. EBADF (9): NFS, for a file open for reading.
  for (const char* error : {"ENOLCK", "ENOTSUP", "524", "EIO", "EACCES", "EINVAL", "66", "111", "9"}) {
    const Faults faults(std::string("flock:errno=") + error);
    EXPECT_FALSE(file.try_lock()) << error;
    EXPECT_FALSE(file.lock([] { return true; })) << error;
  }
}

TEST(OddSystem, WhatItCannotDoIsDoneOtherwise) {
  for (const char* error : {"ENOTSUP", "EINVAL", "524", "38", "25"}) {  // ENOSYS, ENOTTY
    const TempDir dir;
    touch(dir / "a", "new");
    touch(dir / "b");
    File file(dir / "f", OpenMode::kCreateNew);
    const std::string code = std::string(":errno=") + error;
    const Faults faults("truncate" + code + ";exchange" + code + ";fsync" + code + ";rename:times=1" + code + ";link" +
                        code);
    EXPECT_FALSE(file.reserve(10)) << error;
    EXPECT_FALSE(os::exchange(dir / "a", dir / "b")) << error;
    EXPECT_NO_THROW(sync_directory(dir.path())) << error;
    EXPECT_TRUE(rename_to_new(dir / "a", dir / "c")) << error;
    EXPECT_EQ(read_text(dir / "c", 10), "new") << error;
  }
}

TEST(OddSystem, AShortageIsAnErrorAllTheSame) {
  const TempDir dir;
  File file(dir / "f", OpenMode::kCreateNew);
  for (const char* error : {"ENOSPC", "EDQUOT", "EIO"}) {
    const Faults faults(std::string("truncate:errno=") + error + ";fsync:errno=" + error);
    EXPECT_NE(error_of(ErrorKind::kIo, [&] { file.reserve(10); }), "no error") << error;
    EXPECT_NE(error_of(ErrorKind::kIo, [&] { sync_directory(dir.path()); }), "no error") << error;
  }
}

TEST(OddSystem, ARequestThatWasSentTwiceIsDone) {
  const TempDir dir;
  touch(dir / "file", "1");
  touch(dir / "target", "0");
  make_directory(dir / "partial");
  touch(dir / "partial/f");
  const Faults faults("rename:errno=ENOENT:done;link:errno=17:done;mkdir:errno=17:done;unlink:errno=ENOENT:done");
  os::rename(dir / "file", dir / "target");
  EXPECT_EQ(read_text(dir / "target", 10), "1");
  EXPECT_EQ(try_rename(dir / "partial", dir / "final"), Renamed::kDone);
  EXPECT_TRUE(os::exists(dir / "final/f"));
  EXPECT_TRUE(rename_to_new(dir / "target", dir / "new"));
  EXPECT_EQ(read_text(dir / "new", 10), "1");
  make_new_directory(dir / "made");
  make_directory(dir / "made too");
  EXPECT_TRUE(os::exists(dir / "made")) << "and no error";
  remove_tree(dir / "final");
  EXPECT_FALSE(os::exists(dir / "final"));
}

TEST(OddSystem, ALinkThatWasSentTwiceIsMade) {
  const TempDir dir;
  touch(dir / "from", "1");
  const Faults faults("rename:errno=ENOTSUP;link:errno=17:done;unlink:errno=ENOENT:done");
  EXPECT_TRUE(rename_to_new(dir / "from", dir / "to"));
  EXPECT_EQ(read_text(dir / "to", 10), "1");
  EXPECT_FALSE(os::exists(dir / "from"));
}

TEST(OddSystem, WhatAnotherRenamedOrMadeIsNotTakenForOnesOwn) {
  const TempDir dir;
  make_directory(dir / "partial");
  make_directory(dir / "final");
  touch(dir / "file");
  touch(dir / "other");
  const Faults faults("rename:errno=ENOENT;link:errno=17");  // the calls have no effect
  EXPECT_EQ(try_rename(dir / "partial", dir / "final"), Renamed::kSourceMissing);
  EXPECT_NE(error_of(ErrorKind::kIo, [&] { os::rename(dir / "file", dir / "other"); }), "no error");
  EXPECT_NE(error_of(ErrorKind::kIo, [&] { rename_to_new(dir / "file", dir / "other"); }), "no error");
}

TEST(OddSystem, InterruptedCallsAreMadeAgain) {
  const TempDir dir;
  const Faults faults(
      "open:errno=EINTR;write:errno=EINTR;fsync:errno=EINTR;truncate:errno=EINTR:times=2;flock:errno=EINTR;"
      "rename:errno=EINTR;mkdir:errno=EINTR;unlink:errno=EINTR;close:errno=EINTR");
  make_directory(dir / "d");
  File file(dir / "d/f", OpenMode::kCreateNew);
  file.set_size(4);
  file.reserve(4);
  EXPECT_TRUE(file.try_lock());
  file.write_at(base::as_bytes("1234"), 0);
  file.sync();
  file.close();
  os::rename(dir / "d/f", dir / "d/g");
  EXPECT_EQ(read_text(dir / "d/g", 10), "1234");
  remove_tree(dir / "d");
  EXPECT_FALSE(os::exists(dir / "d"));
  EXPECT_GE(fault_hits(), 10U);
}

TEST(PopulatedMemory, IsNotOfChildren) {
  constexpr std::uint64_t kBytes = 4 << 20;
  const PopulatedMemory memory(kBytes);
  // VmFlags of its mapping: "dc" is "do not copy at fork".
  std::ifstream maps("/proc/self/smaps");
  const auto address = reinterpret_cast<std::uintptr_t>(memory.span().data());
  bool is_here = false;
  std::string flags;
  for (std::string line; std::getline(maps, line);) {
    unsigned long long begin = 0;
    unsigned long long end = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx", &begin, &end) == 2) is_here = begin <= address && address < end;
    if (is_here && line.starts_with("VmFlags:")) flags = line;
  }
  EXPECT_THAT(flags, HasSubstr(" dc"));
}

}  // namespace
}  // namespace cairn::os
