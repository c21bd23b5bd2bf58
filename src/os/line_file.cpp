#include "os/line_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <chrono>
#include <thread>

#include "base/checked.hpp"
#include "os/system_calls.hpp"

namespace cairn::os {
namespace {

constexpr int kOpenings = 10;
constexpr std::chrono::milliseconds kBetweenAttempts{1};

/// Whether the path names the open file: another process may have renamed a file over it.
bool is_at(const File& file, const std::filesystem::path& path) {
  struct stat open {};
  struct stat named {};
  return ::fstat(file.descriptor(), &open) == 0 && ::stat(path.c_str(), &named) == 0 && open.st_dev == named.st_dev &&
         open.st_ino == named.st_ino;
}

void set_appending(const File& file) {
  const int error = call_again([&] { return ::fcntl(file.descriptor(), F_SETFL, O_APPEND); });
  if (error != 0) throw_system_error("opening to append of", file.path(), error);
}

}  // namespace

LineFile::LineFile(const std::filesystem::path& path) {
  for (int opening = 1; opening <= kOpenings; ++opening) {
    if (!open(path)) continue;
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
    lock_ = writing_.lock([&] {
      std::this_thread::sleep_for(kBetweenAttempts);
      return std::chrono::steady_clock::now() < give_up;
    });
    if (is_at(writing_, path)) return;
    lock_ = {};
  }
  throw_system_error("opening to append of", path, EAGAIN);
}

/// False if the file came or went at the same time.
bool LineFile::open(const std::filesystem::path& path) {
  try {
    reading_ = File(path, OpenMode::kRead);  // first, because it refuses what is not a regular file
    writing_ = File(path, OpenMode::kWrite);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kNotFound) throw;
    static_cast<void>(create_exclusively(path));
    return false;
  }
  set_appending(writing_);
  return is_at(reading_, path) && is_at(writing_, path);
}

void LineFile::append(std::string_view line) {
  const std::uint64_t size = size_bytes();
  std::string text;
  if (size != 0) {
    std::byte last{};
    reading_.read_at(std::span(&last, 1), size - 1);
    if (last != std::byte{'\n'}) text = "\n";
  }
  text.append(line).append(1, '\n');
  writing_.write_at(std::as_bytes(std::span(text.data(), text.size())), size);
}

std::string LineFile::from(std::uint64_t offset) const {
  const std::uint64_t size = size_bytes();
  if (offset >= size) return {};
  std::string text(base::narrow<std::size_t>(size - offset, "size of a log"), '\0');
  reading_.read_at(std::as_writable_bytes(std::span(text.data(), text.size())), offset);
  return text;
}

void LineFile::close() {
  lock_ = {};
  reading_.close();
  writing_.close();
}

}  // namespace cairn::os
