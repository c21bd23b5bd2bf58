// Small files are copied whole or not at all: files that change during the copy,
// and files whose reported size is wrong.
#include "opening/carried.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/bytes.hpp"
#include "expect_error.hpp"
#include "temp_dir.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using opening::PiecewiseFile;

void append(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::app) << text; }

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string all_of(const base::ByteStream& stream) {
  std::string text;
  stream.give([&](std::span<const std::byte> piece) { text += text_of(piece); });
  return text;
}

TEST(Carried, FilesWhoseSizeIsNoSizeAreRefused) {
  for (const char* path : {"/proc/self/status", "/proc/cpuinfo"}) {
    ASSERT_EQ(fs::file_size(path), 0U);
    expect_error(ErrorKind::kUsage, [&] { opening::file_stream(path); }, {path, "0 bytes", "carry a copy"});
    expect_error(ErrorKind::kUsage, [&] { PiecewiseFile(path).next(); }, {path});
  }
}

TEST(Carried, EmptyFilesAreCopied) {
  const TempDir directory;
  append(directory / "empty", "");
  EXPECT_EQ(all_of(opening::file_stream(directory / "empty")), "");
}

TEST(Carried, WhatIsAppendedMeanwhileIsCopied) {
  const TempDir directory;
  const fs::path path = directory / "log";
  append(path, "one ");
  PiecewiseFile file(path);
  EXPECT_EQ(text_of(file.next()), "one ");
  append(path, "two");
  EXPECT_EQ(text_of(file.next()), "two");
  EXPECT_TRUE(file.next().empty());
}

TEST(Carried, AFileThatShrinksIsNotCutInSilence) {
  const TempDir directory;
  append(directory / "log", "one two");
  PiecewiseFile file(directory / "log");
  fs::resize_file(directory / "log", 3);
  expect_error(ErrorKind::kIo, [&] { file.next(); }, {"log", "ends at byte 3"});
}

TEST(Carried, AFileOfACheckpointMustStayAsItIs) {
  const TempDir directory;
  const fs::path path = directory / "config.json";
  append(path, "{}");
  opening::OpenCheckpoint opened;
  opened.directory = directory.path();
  const base::ByteStream stream = opening::carried_stream(opened, "config.json");
  EXPECT_EQ(all_of(stream), "{}");
  PiecewiseFile file(opened, "config.json");
  EXPECT_EQ(text_of(file.next()), "{}");
  append(path, " ");
  expect_error(ErrorKind::kIo, [&] { file.next(); }, {"config.json", "changed while it was copied"});
  expect_error(ErrorKind::kIo, [&] { all_of(stream); }, {"config.json", "2 bytes", "3 now"});
  fs::resize_file(path, 1);
  expect_error(ErrorKind::kIo, [&] { all_of(stream); }, {"config.json", "2 bytes", "1 now"});
}

}  // namespace
}  // namespace cairn::test
