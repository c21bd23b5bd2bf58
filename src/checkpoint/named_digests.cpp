#include "checkpoint/named_digests.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <system_error>

#include "base/text.hpp"
#include "format/sha.hpp"
#include "os/file.hpp"
#include "plan/extents.hpp"

namespace cairn::checkpoint {
namespace {

namespace fs = std::filesystem;

bool is_digest(std::string_view name) {
  return (name.size() == 64 || name.size() == 40) &&
         name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string digest_of(const fs::path& path, const NamedFile& file, io::DiskReader& reader,
                      const std::function<void(std::uint64_t)>& seen) {
  format::RunningSha256 sha256;
  format::RunningSha1 sha1;
  const std::string head = fmt::format("blob {}", file.size_bytes) + '\0';
  sha1.add(base::as_bytes(head));
  const io::EngineFile whole[] = {{path, file.size_bytes}};
  const plan::Extent all[] = {{0, 0, file.size_bytes, 0}};
  if (file.size_bytes != 0) {
    reader.read(whole, all, [&](std::uint32_t, std::uint64_t, std::span<const std::byte> data) {
      file.is_sha256() ? sha256.add(data) : sha1.add(data);
      seen(data.size());
    });
  }
  return file.is_sha256() ? sha256.finish() : sha1.finish();
}

}  // namespace

std::vector<NamedFile> named_files(const fs::path& directory, std::span<const std::string> names) {
  std::vector<NamedFile> files;
  for (const std::string& name : names) {
    std::error_code failed;
    const fs::path real = fs::canonical(directory / name, failed);
    if (failed || real.parent_path().filename() != "blobs" || !is_digest(real.filename().native())) continue;
    files.push_back({name, real.filename().string(), os::file_size(real)});
  }
  return files;
}

void put_named_files(base::ByteWriter& out, std::span<const NamedFile> files) {
  out.u64(files.size());
  for (const NamedFile& file : files) {
    out.text(file.name);
    out.text(file.digest);
    out.u64(file.size_bytes);
  }
}

std::vector<NamedFile> get_named_files(base::ByteReader& in) {
  std::vector<NamedFile> files;
  for (std::uint64_t left = in.u64(); left > 0; --left) {
    NamedFile& file = files.emplace_back();
    file.name = in.text();
    file.digest = in.text();
    file.size_bytes = in.u64();
  }
  return files;
}

std::vector<std::uint32_t> files_of_rank(std::span<const NamedFile> files, std::uint64_t ranks, std::uint64_t rank) {
  std::vector<std::uint32_t> order(files.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, std::greater<>(), [&](std::uint32_t i) { return files[i].size_bytes; });
  std::vector<std::uint64_t> load(ranks);
  std::vector<std::uint32_t> mine;
  for (const std::uint32_t number : order) {
    const auto least = std::ranges::min_element(load);
    if (static_cast<std::uint64_t>(least - load.begin()) == rank) mine.push_back(number);
    *least += files[number].size_bytes + 1;  // files without bytes count as well
  }
  std::ranges::sort(mine);
  return mine;
}

std::vector<WrongDigest> check_digests(const fs::path& directory, std::span<const NamedFile> files,
                                       std::span<const std::uint32_t> numbers, io::DiskReader& reader,
                                       const std::function<void(std::uint64_t)>& seen) {
  std::vector<WrongDigest> wrong;
  for (const std::uint32_t number : numbers) {
    const NamedFile& file = files[number];
    const fs::path path = directory / file.name;
    const std::string found = digest_of(path, file, reader, seen);
    if (found == file.digest) continue;
    wrong.push_back(
        {file.name, fmt::format("'{}' has the {} {}, but its name in the cache is {}: it was damaged or cut "
                                "off; remove the file '{}', and download it again",
                                os::shown(path), file.is_sha256() ? "SHA-256" : "SHA-1 of git", found, file.digest,
                                os::shown(fs::path("blobs") / file.digest))});
  }
  return wrong;
}

}  // namespace cairn::checkpoint
