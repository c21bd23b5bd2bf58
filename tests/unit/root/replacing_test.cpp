// Entries that a save may replace under its step's name: every kind, with and without each option.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "cairn/error.hpp"
#include "expect_error.hpp"
#include "faults.hpp"
#include "os/errno_class.hpp"
#include "root/root.hpp"
#include "root/standing.hpp"
#include "simulated_save.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr std::uint64_t kStep = 20;

/// Content of everything below a path; the content of a link is its target.
std::map<std::string, std::string> content_of(const fs::path& path) {
  std::map<std::string, std::string> content;
  if (!fs::is_directory(path) || fs::is_symlink(path)) {
    content[""] = fs::is_symlink(path) ? fs::read_symlink(path).string() : read_file(path);
    return content;
  }
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    content[entry.path().string()] = entry.is_regular_file() ? read_file(entry.path()) : "";
  }
  return content;
}

void set_key(const fs::path& manifest, const std::string& old, const std::string& text) {
  std::string content = read_file(manifest);
  const std::size_t at = content.find(old);
  ASSERT_NE(at, std::string::npos);
  write_file(manifest, content.replace(at, old.size(), text));
}

fs::path a_data_file(const fs::path& at) { return at / opening::open_here(at).stored.files.at(0).name; }

/// A kind of entry under the step's name, and the options under which it may be replaced.
struct Case {
  const char* name;
  std::function<void(const fs::path& at)> make;  ///< makes the entry from a whole checkpoint
  bool plainly;
  bool with_overwrite;
  bool with_foreign;
  const char* faults = "";
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

const Case kCases[] = {
    {"whole", [](const fs::path&) {}, false, true, true},
    {"no block table", [](const fs::path& at) { fs::remove(at / "cairn.blocks"); }, true, true, true},
    {"a data file is missing", [](const fs::path& at) { fs::remove(a_data_file(at)); }, true, true, true},
    {"a data file is short", [](const fs::path& at) { fs::resize_file(a_data_file(at), 3); }, true, true, true},
    {"a data file is on a file system that is not mounted",
     [](const fs::path& at) {
       const fs::path file = a_data_file(at);
       fs::remove(file);
       fs::create_symlink("/nowhere/at/all", file);
     },
     false, false, false},
    {"the manifest is on a file system that is not mounted",
     [](const fs::path& at) {
       fs::remove(at / "cairn.json");
       fs::create_symlink("/nowhere/at/all", at / "cairn.json");
     },
     false, false, false},
    {"manifest cut", [](const fs::path& at) { fs::resize_file(at / "cairn.json", 100); }, false, true, true},
    {"manifest empty", [](const fs::path& at) { write_file(at / "cairn.json", ""); }, false, true, true},
    {"newer version",
     [](const fs::path& at) { set_key(at / "cairn.json", "\"format_version\": 2", "\"format_version\": 3"); }, false,
     false, true},
    {"unknown kind", [](const fs::path& at) { set_key(at / "cairn.json", "\"whole\"", "\"other\""); }, false, false,
     true},
    {"no manifest", [](const fs::path& at) { fs::remove(at / "cairn.json"); }, false, true, true},
    {"data files alone",
     [](const fs::path& at) {
       fs::remove(at / "cairn.json");
       fs::remove(at / "cairn.blocks");
     },
     false, false, true},
    {"another trainer's",
     [](const fs::path& at) {
       fs::remove_all(at);
       fs::create_directory(at);
       write_file(at / "pytorch_model.bin", "weights");
       write_file(at / "trainer_state.json", "{}");
     },
     false, false, true},
    {"an empty directory",
     [](const fs::path& at) {
       fs::remove_all(at);
       fs::create_directory(at);
     },
     false, false, true},
    {"a file",
     [](const fs::path& at) {
       fs::remove_all(at);
       write_file(at, "a file");
     },
     false, false, true},
    {"a link that leads nowhere",
     [](const fs::path& at) {
       fs::remove_all(at);
       fs::create_symlink("/nowhere/at/all", at);
     },
     false, false, false},
    {"EIO at the manifest", [](const fs::path&) {}, false, false, false, "open:path=20/cairn.json:errno=EIO:times=999"},
    {"EACCES at the manifest", [](const fs::path&) {}, false, false, false,
     "open:path=20/cairn.json:errno=EACCES:times=999"},
    {"ESTALE at the manifest", [](const fs::path&) {}, false, false, false,
     "stat:path=20/cairn.json:errno=ESTALE:times=999"},
    {"EIO at a file", [](const fs::path&) {}, false, false, false, "stat:path=20/optimizer:errno=EIO:times=999"},
};

class WhatIsThere : public testing::TestWithParam<Case> {
 protected:
  /// Saves step 20 in a new life, into a root where step 20 is the entry of the case.
  void expect(const Options& options, bool is_replaced) {
    const TempDir root;
    save_simulated(root.path(), kStep, Cut::kRows, 2);
    const fs::path at = root / "checkpoint-20";
    GetParam().make(at);
    const auto before = content_of(at);
    const auto lease = lease_of(root.path(), options);
    std::string text;
    {
      const Faults faults(GetParam().faults);
      try {
        save_simulated_by(*lease, kStep, Cut::kRows, 2, options, 7);
      } catch (const Error& error) {
        text = error.what();
        EXPECT_EQ(error.kind(), GetParam().with_foreign ? ErrorKind::kUsage : ErrorKind::kIo) << text;
        EXPECT_THAT(text, HasSubstr("checkpoint-20'"));
        EXPECT_EQ(text.find('\n'), std::string::npos);
      }
    }
    EXPECT_EQ(text.empty(), is_replaced) << text;
    if (is_replaced) {
      expect_loads(at, 7, Cut::kRows, 3);
    } else {
      EXPECT_TRUE(content_of(at) == before);  // EXPECT_EQ would print megabytes
    }
    for (const auto& entry : fs::directory_iterator(root.path())) {  // the attempt leaves nothing behind
      EXPECT_EQ(entry.path().string().find(".partial"), std::string::npos) << entry.path();
    }
  }
};

TEST_P(WhatIsThere, IsReplacedByWhoMay) {
  Options options = small_options();
  expect(options, GetParam().plainly);
  options.overwrite = true;
  expect(options, GetParam().with_overwrite);
  options.overwrite_foreign = true;
  expect(options, GetParam().with_foreign);
}

INSTANTIATE_TEST_SUITE_P(Replacing, WhatIsThere, testing::ValuesIn(kCases));

/// The entry appears while the state is written, after the first check.
TEST(Replacing, WhatAppearsWhileASaveWritesIsKept) {
  const TempDir root;
  Options options = small_options();
  options.overwrite = true;
  const auto lease = lease_of(root.path(), options);
  const fs::path at = root / "checkpoint-20";
  const TempDir signals;
  const Faults faults("commit.manifest:rank=0:times=1:pause=" + (signals / "go").string());
  std::thread saver([&] { EXPECT_THROW(save_simulated_by(*lease, kStep, Cut::kRows, 2, options, 7), Error); });
  wait_until_paused(signals / "go");
  fs::create_directory(at);
  write_file(at / "weights.bin", "theirs");
  write_file(signals / "go", "");
  saver.join();
  EXPECT_EQ(read_file(at / "weights.bin"), "theirs");
}

TEST(ErrnoClass, TellsTheMomentFromTheFile) {
  using os::ErrnoClass;
  for (const int error : {ENOMEM, EMFILE, ENFILE}) EXPECT_EQ(os::class_of(error), ErrnoClass::kShortage) << error;
  for (const int error : {EACCES, EPERM, EINTR, EAGAIN, ETIMEDOUT, ESTALE, ESHUTDOWN, EHOSTDOWN, ENODEV, EKEYEXPIRED}) {
    EXPECT_EQ(os::class_of(error), ErrnoClass::kMayPass) << error;
  }
  for (const int error : {0, EIO, ENOENT, ENOTDIR, EISDIR, ELOOP, ENODATA, EUCLEAN, EBADMSG, ENAMETOOLONG}) {
    EXPECT_EQ(os::class_of(error), ErrnoClass::kOfFile) << error;
  }
}

}  // namespace
}  // namespace cairn::test
