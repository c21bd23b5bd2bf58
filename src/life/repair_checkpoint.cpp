#include "life/repair_checkpoint.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/aligned_buffer.hpp"
#include "base/bytes.hpp"
#include "base/checked.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "checkpoint/read_back.hpp"
#include "format/blocks.hpp"
#include "format/crc32c.hpp"
#include "format/hf_index.hpp"
#include "format/limits.hpp"
#include "format/manifest.hpp"
#include "interop/file_names.hpp"
#include "io/whole_files.hpp"
#include "life/restored_file.hpp"
#include "opening/open.hpp"
#include "os/access.hpp"
#include "os/errno_class.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"
#include "os/interrupt.hpp"
#include "root/root.hpp"
#include "shard/box_math.hpp"

namespace cairn::life {
namespace {

namespace fs = std::filesystem;

using os::shown;

constexpr std::string_view kRepairSuffix = ".repair";

/// The manifest and block table of another checkpoint.
struct Copy {
  std::string text;  ///< of the manifest
  format::Manifest manifest;
  std::optional<format::BlockRows> blocks;  ///< nothing unless it is the table that the manifest names
};

std::optional<Copy> read_copy(const fs::path& directory) {
  try {
    Copy copy;
    const fs::path manifest = directory / format::kManifestFile;
    copy.text = os::read_text(manifest, format::limits::kManifestBytes);
    copy.manifest = format::parse_manifest(copy.text, manifest.string());
    try {
      const fs::path path = directory / format::kBlocksFile;
      const std::string text = os::read_text(path, format::limits::kBlockTableBytes);
      const auto bytes = base::as_bytes(text);
      if (format::crc32c(bytes) == copy.manifest.blocks_crc32c) {
        copy.blocks.emplace(base::Bytes(bytes.begin(), bytes.end()), path.string());
      }
    } catch (const Error& error) {
      if (os::is_shortage(error)) throw;
    }
    return copy;
  } catch (const Error& error) {
    if (os::is_shortage(error)) throw;
    return std::nullopt;
  }
}

/// "'checkpoint-900' and '/copies/checkpoint-1000'".
std::string words_of_places(const std::vector<fs::path>& places, const fs::path& beside) {
  std::string words;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (i != 0) words += i + 1 == places.size() ? " and " : ", ";
    const bool is_beside = places[i].parent_path() == beside.parent_path();
    words += fmt::format("'{}'", shown(is_beside ? places[i].filename() : places[i]));
  }
  return words;
}

class CheckpointRepair {
 public:
  CheckpointRepair(const RepairJob& job, Repair& result)
      : job_(job), result_(result), memory_(checkpoint::disk_reader_bytes(1)), reader_(memory_.span()) {}

  void run() {
    if (!take_manifest()) return;
    if (take_table()) repair_data();
    for (const format::ManifestFile& file : manifest_.carried_files) guarded(file.name, [&] { repair_carried(file); });
  }

 private:
  [[nodiscard]] const fs::path& directory() const { return job_.directory; }
  [[nodiscard]] fs::path path_of(const std::string& name) const { return directory() / name; }
  [[nodiscard]] const char* would() const { return job_.dry_run ? "would be " : ""; }

  void add_action(const fs::path& path, std::string what, std::uint64_t bytes, std::uint64_t blocks = 0) {
    result_.actions.push_back({path, job_.step, std::move(what), blocks, bytes});
  }
  void add_fault(const fs::path& path, std::string message, std::optional<std::uint64_t> block = {},
                 std::vector<std::string> tensors = {}) {
    result_.faults.push_back({path, job_.step, block, std::move(tensors), std::move(message)});
  }

  /// Failures of one file do not end the repair of the others.
  template <class Work>
  void guarded(const std::string& name, Work work) {
    try {
      work();
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kState || os::is_shortage(error)) throw;
      add_fault(path_of(name), fmt::format("'{}' is not repaired: {}", shown(path_of(name)), error.what()));
    }
  }

  // Where bytes come from.

  [[nodiscard]] std::vector<fs::path> sources() const {
    std::vector<fs::path> all = job_.from;
    all.insert(all.end(), job_.beside.begin(), job_.beside.end());
    return all;
  }

  /// The content of a small file elsewhere, if it has that checksum, and its directory. On another inode.
  std::optional<std::pair<std::string, fs::path>> small_file_of_others(const std::string& name,
                                                                       std::optional<std::uint64_t> size,
                                                                       std::uint32_t crc32c) const {
    for (const fs::path& other : sources()) {
      const fs::path path = other / name;
      std::error_code failed;
      try {
        if (!os::exists(path) || (fs::equivalent(path, path_of(name), failed) && !failed)) continue;
        if (size && os::file_size(path) != *size) continue;
        std::string text = os::read_text(path, format::limits::kBlockTableBytes);
        if (format::crc32c(base::as_bytes(text)) == crc32c) return std::pair(std::move(text), other);
      } catch (const Error& error) {
        if (os::is_shortage(error)) throw;
      }
    }
    return std::nullopt;
  }

  // Replacing a file.

  /// A name in the manifest may lead through a link to a place outside the checkpoint.
  void refuse_links(const std::string& name) const {
    fs::path place = directory();
    for (const fs::path& part : fs::path(name)) {
      place /= part;
      std::error_code ignored;
      if (!fs::is_symlink(fs::symlink_status(place, ignored))) continue;
      throw Error(ErrorKind::kUsage, fmt::format("'{}' is a link: repair what it leads to", shown(place)),
                  {0, place.native()});
    }
  }

  /// The access of the old file or, if there is none, of the manifest or another file of the checkpoint.
  [[nodiscard]] os::Access access_like(const fs::path& path) const {
    for (const fs::path& like : {path, directory() / format::kManifestFile, directory() / format::kBlocksFile}) {
      std::error_code failed;
      const fs::file_status status = fs::status(like, failed);
      if (failed || !fs::is_regular_file(status)) continue;
      return {static_cast<unsigned>(status.permissions() & fs::perms::all), std::nullopt};
    }
    return {};
  }

  /// Steps 1 to 4. `check` throws unless the new file is as it should be.
  void replace(const std::string& name, const std::function<void(os::File&)>& write,
               const std::function<void(const fs::path&)>& check) const {
    const fs::path path = path_of(name);
    os::make_directory(path.parent_path());
    const fs::path fresh = fmt::format("{}.{}{}", path.native(), job_.nonce, kRepairSuffix);
    os::remove_at_end(fresh);
    try {
      {
        const os::Access access = access_like(path);
        const os::AccessScope scope(access);
        os::File file(fresh, os::OpenMode::kCreateNew);
        os::fault_point("repair.write", path);
        write(file);
        file.sync();
        file.close();
      }
      os::fault_point("repair.check", path);
      check(fresh);
      job_.look();
      os::fault_point("repair.rename", path);
      os::rename(fresh, path);
    } catch (...) {
      remove_quietly(fresh);
      throw;
    }
    os::keep_at_end(fresh);
    os::fault_point("repair.sync", path);
    os::sync_directory(path.parent_path());
  }

  static void remove_quietly(const fs::path& path) noexcept {
    try {
      os::remove_tree(path);
      os::keep_at_end(path);
    } catch (const std::exception&) {  // the next repair removes it
    }
  }

  void replace_small(const std::string& name, const std::string& text) const {
    const auto bytes = base::as_bytes(text);
    replace(
        name, [&](os::File& file) { file.write_at(bytes, 0); },
        [&](const fs::path& fresh) { io::read_back_file(fresh, bytes.size(), format::crc32c(bytes)); });
  }

  /// A small file that is not as it was written gets `text`; `whence`: "written anew from the headers".
  void restore_small(const std::string& name, const std::string& text, const std::string& problem,
                     const std::string& whence) {
    refuse_links(name);
    if (!job_.dry_run) replace_small(name, text);
    add_action(path_of(name), fmt::format("'{}' {}: {}{}", shown(path_of(name)), problem, would(), whence),
               text.size());
  }

  // cairn.json

  bool take_manifest() {
    const fs::path path = path_of(format::kManifestFile);
    std::string problem;
    try {
      if (os::is_name_taken(path)) {
        manifest_ = format::parse_manifest(io::read_text_from_disk(reader_, path, format::limits::kManifestBytes),
                                           path.string());
        return true;
      }
      problem = "is missing";
    } catch (const format::NewerManifest& error) {
      result_.notes.push_back(fmt::format("'{}' is not examined: {}", shown(directory()), error.what()));
      return false;
    } catch (const Error& error) {
      if (os::is_shortage(error)) throw;
      if (os::class_of(error) != os::ErrnoClass::kOfFile) {
        add_fault(path, fmt::format("'{}' is not repaired: {}", shown(path), error.what()));
        return false;
      }
      problem = "is damaged";
    }
    bool is_found = false;
    guarded(format::kManifestFile, [&] { is_found = find_manifest(problem); });
    return is_found;
  }

  /// Only cairn.blocks tells whose manifest it was: it has the checksums of all data, and the manifest has its own.
  bool find_manifest(const std::string& problem) {
    const fs::path path = path_of(format::kManifestFile);
    const fs::path blocks = path_of(format::kBlocksFile);
    std::string why = fmt::format("so is {}, which would tell whose it was", format::kBlocksFile);
    if (os::exists(blocks)) {
      const std::string text = io::read_text_from_disk(reader_, blocks, format::limits::kBlockTableBytes);
      const std::uint32_t crc32c = format::crc32c(base::as_bytes(text));
      why = "no directory of --from has it";
      for (const fs::path& from : job_.from) {
        std::optional<Copy> copy = read_copy(from);
        if (!copy || copy->manifest.blocks_crc32c != crc32c) continue;
        if (job_.step && copy->manifest.has_step && copy->manifest.step != *job_.step) continue;
        manifest_ = std::move(copy->manifest);
        restore_small(format::kManifestFile, copy->text, problem,
                      fmt::format("written anew from {}", words_of_places({from}, directory())));
        return true;
      }
    }
    add_fault(path,
              fmt::format("'{}' {}, and {}: copy the whole checkpoint from elsewhere", shown(path), problem, why));
    return false;
  }

  // cairn.blocks

  void use_table(std::string_view text, const fs::path& path) {
    table_ = format::decode_blocks(base::as_bytes(text), path.string());
  }

  /// False: without a table, and with data that cannot give one, nothing more can be done.
  bool take_table() {
    const fs::path path = path_of(format::kBlocksFile);
    std::string problem = "is missing";
    bool is_ended = false;
    try {
      if (os::is_name_taken(path)) {
        const std::string text = io::read_text_from_disk(reader_, path, format::limits::kBlockTableBytes);
        if (format::crc32c(base::as_bytes(text)) == manifest_.blocks_crc32c) {
          use_table(text, path);
          return true;
        }
        problem = "is damaged";
      }
    } catch (const Error& error) {
      if (os::is_shortage(error)) throw;
      is_ended = os::class_of(error) != os::ErrnoClass::kOfFile;
      if (is_ended) add_fault(path, fmt::format("'{}' is not repaired: {}", shown(path), error.what()));
      problem = "is damaged";
    }
    if (is_ended) return false;
    if (const auto found = small_file_of_others(format::kBlocksFile, std::nullopt, manifest_.blocks_crc32c)) {
      bool is_restored = false;
      guarded(format::kBlocksFile, [&] {
        use_table(found->first, found->second / format::kBlocksFile);
        restore_small(format::kBlocksFile, found->first, problem,
                      fmt::format("written anew from {}", words_of_places({found->second}, directory())));
        is_restored = true;
      });
      return is_restored;
    }
    bool is_made = false;
    guarded(format::kBlocksFile, [&] { is_made = make_table(problem); });
    return is_made;
  }

  /// The table from the data files: their checksums, and the table's own, are in the manifest.
  bool make_table(const std::string& problem) {
    format::BlockTable table{manifest_.block_bytes, {}};
    const fs::path path = path_of(format::kBlocksFile);
    for (const format::ManifestFile& file : manifest_.data_files) {
      if (!add_row(file, table)) {
        add_fault(path,
                  fmt::format("'{}' {}, and cannot be made anew because '{}' is not as it was written either: give "
                              "a copy of the checkpoint with --from",
                              shown(path), problem, shown(path_of(file.name))));
        return false;
      }
    }
    const base::Bytes bytes = format::encode_blocks(table);
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (format::crc32c(bytes) != manifest_.blocks_crc32c) {
      add_fault(path, fmt::format("'{}' {}, and one made from the data files differs from it: give a copy of the "
                                  "checkpoint with --from",
                                  shown(path), problem));
      return false;
    }
    table_ = std::move(table);
    restore_small(format::kBlocksFile, text, problem, "written anew from the data files, which have their checksums");
    return true;
  }

  bool add_row(const format::ManifestFile& file, format::BlockTable& table) {
    const fs::path path = path_of(file.name);
    if (!os::exists(path) || os::file_size(path) != file.size_bytes) return false;
    format::FileBlocks row{file.name, file.size_bytes, {}};
    const io::EngineFile files[] = {{path, file.size_bytes}};
    const plan::Extent ranges[] = {{0, 0, file.size_bytes, 0}};
    format::RunningCrc32c crc;
    const auto see = [&](std::uint32_t, std::uint64_t offset, std::span<const std::byte> piece) {
      while (!piece.empty()) {
        const std::uint64_t end = std::min((offset / table.block_bytes + 1) * table.block_bytes, file.size_bytes);
        const auto part = piece.first(std::min<std::uint64_t>(piece.size(), end - offset));
        crc.add(part);
        offset += part.size();
        piece = piece.subspan(part.size());
        if (offset != end) continue;
        row.crcs.push_back(crc.value());
        crc = {};
      }
    };
    if (file.size_bytes != 0) reader_.read(files, ranges, see);
    if (format::file_digest(row, table.block_bytes) != file.crc32c) return false;
    table.files.push_back(std::move(row));
    return true;
  }

  // Data files

  void repair_data() {
    std::vector<std::unique_ptr<DamagedFile>> damaged;
    for (const format::FileBlocks& file : table_.files) {
      guarded(file.name, [&] {
        const fs::path path = path_of(file.name);
        std::vector<std::uint64_t> bad = bad_blocks(path, file, table_.block_bytes, reader_);
        result_.blocks += file.crcs.size();
        result_.bytes += file.size_bytes;
        std::string problem = problem_of(path, file, bad);
        if (problem.empty()) return;
        damaged.push_back(
            std::make_unique<DamagedFile>(path, file, table_.block_bytes, std::move(bad), std::move(problem)));
      });
    }
    if (damaged.empty()) return;
    for (const fs::path& source : sources()) {
      const std::optional<Copy> copy = read_copy(source);
      if (!copy || !copy->blocks) continue;
      for (const auto& file : damaged) file->consider(source, *copy->blocks);
    }
    for (const auto& file : damaged) guarded(file->file().name, [&] { repair_file(*file); });
  }

  static std::string problem_of(const fs::path& path, const format::FileBlocks& file,
                                const std::vector<std::uint64_t>& bad) {
    if (!os::exists(path)) return "is missing";
    const std::uint64_t size = os::file_size(path);
    if (size != file.size_bytes) return fmt::format("has {} bytes, {} were written", size, file.size_bytes);
    if (bad.empty()) return "";
    return fmt::format("has {} of {} damaged", bad.size(), base::counted(file.crcs.size(), "block"));
  }

  void repair_file(DamagedFile& file) {
    refuse_links(file.file().name);
    file.find();
    const std::vector<std::uint64_t> lost = file.lost();
    if (!lost.empty()) return add_lost(file, lost);
    if (!job_.dry_run) {
      replace(
          file.file().name, [&](os::File& out) { file.restore(out); },
          [&](const fs::path& fresh) { check_new(fresh, file.file()); });
    }
    will_have_headers_ = true;
    const std::vector<fs::path> used = file.used();
    const std::string whence =
        used.empty() ? "from its own blocks" : fmt::format("with blocks of {}", words_of_places(used, directory()));
    add_action(file.path(),
               fmt::format("'{}' {}: {}written anew {}", shown(file.path()), file.problem(), would(), whence),
               file.bad_bytes(), file.bad().size());
  }

  void check_new(const fs::path& fresh, const format::FileBlocks& file) {
    const std::uint64_t size = os::file_size(fresh);
    const std::vector<std::uint64_t> bad = bad_blocks(fresh, file, table_.block_bytes, reader_);
    if (size == file.size_bytes && bad.empty()) return;
    throw Error(ErrorKind::kIntegrity,
                fmt::format("'{}', which was just written, reads back otherwise: {} bytes, {} were written; {} of its "
                            "blocks differ",
                            shown(fresh), size, file.size_bytes, bad.size()),
                {0, fresh.native()});
  }

  void add_lost(const DamagedFile& file, const std::vector<std::uint64_t>& lost) {
    const std::string path = shown(file.path());
    constexpr std::size_t kListed = 16;
    const bool has_no_good_one = file.bad().size() == file.file().crcs.size();
    if (has_no_good_one && (!os::exists(file.path()) || lost.size() > kListed)) {
      return add_fault(file.path(), fmt::format("'{}' {}, and {} {} found nowhere else", path, file.problem(),
                                                base::counted(lost.size(), "block"), lost.size() == 1 ? "is" : "are"));
    }
    for (const std::uint64_t block : file.bad()) {
      const std::uint64_t begin = block * table_.block_bytes;
      const std::vector<std::string> tensors = file.tensors_of(block);
      const auto place = file.place_of(block);
      const std::string found = place ? fmt::format("a good one is in {}, but block {} of this file is found nowhere",
                                                    words_of_places({*place}, directory()), lost.front())
                                      : "a good one is found nowhere else";
      add_fault(
          file.path(),
          fmt::format("'{}': block {} (bytes {} to {}{}) is damaged: {}", path, block, begin,
                      begin + bytes_of_block(file.file(), table_.block_bytes, block), words_of_tensors(tensors), found),
          block, tensors);
    }
  }

  static std::string words_of_tensors(const std::vector<std::string>& tensors) {
    constexpr std::size_t kShown = 4;
    std::string words;
    for (std::size_t i = 0; i < std::min(tensors.size(), kShown); ++i) {
      words += fmt::format("{} '{}'",
                           i != 0                ? ","
                           : tensors.size() == 1 ? ", tensor"
                                                 : ", tensors",
                           base::printable(tensors[i]));
    }
    if (tensors.size() > kShown) words += fmt::format(" and {} more", tensors.size() - kShown);
    return words;
  }

  // Carried files, and among them the indexes

  void repair_carried(const format::ManifestFile& file) {
    const fs::path path = path_of(file.name);
    result_.bytes += file.size_bytes;
    const std::string problem = problem_of_carried(path, file);
    if (problem.empty()) return;
    refuse_links(file.name);
    if (const auto index = index_text(file.name);
        index && index->size() == file.size_bytes && format::crc32c(base::as_bytes(*index)) == file.crc32c) {
      return restore_small(file.name, *index, problem, "written anew from the headers of the data files");
    }
    if (const auto found = small_file_of_others(file.name, file.size_bytes, file.crc32c)) {
      return restore_small(file.name, found->first, problem,
                           fmt::format("written anew from {}", words_of_places({found->second}, directory())));
    }
    if (job_.dry_run && will_have_headers_ && interop::set_of_index(file.name)) {
      return add_action(
          path,
          fmt::format("'{}' {}: would be written anew from the headers of the data files, if they tell the "
                      "same when they are repaired",
                      shown(path), problem),
          file.size_bytes);
    }
    add_fault(path, fmt::format("'{}' {}, and a good one is found nowhere else", shown(path), problem));
  }

  std::string problem_of_carried(const fs::path& path, const format::ManifestFile& file) {
    if (!os::exists(path)) return "is missing";
    const std::uint64_t size = os::file_size(path);
    if (size != file.size_bytes) return fmt::format("has {} bytes, {} were written", size, file.size_bytes);
    try {
      if (size == 0 || io::crc32c_from_disk(reader_, path, size) == file.crc32c) return "";
    } catch (const Error& error) {
      if (os::class_of(error) != os::ErrnoClass::kOfFile) throw;
    }
    return "is damaged";
  }

  /// The index of that name as a save writes it; nothing if the name is not an index's, or if a header cannot be read.
  std::optional<std::string> index_text(const std::string& name) const {
    const auto set = interop::set_of_index(name);
    if (!set) return std::nullopt;
    std::map<std::string, std::string> file_of;
    format::IndexTotals totals;
    try {
      for (const format::ManifestFile& file : manifest_.data_files) {
        if (interop::parse_data_name(file.name).set != *set) continue;
        const format::SafetensorsHeader header = opening::read_header(path_of(file.name));
        totals.size_bytes += header.file_bytes - header.data_start;
        for (const format::TensorEntry& tensor : header.tensors) {
          file_of.emplace(tensor.name, file.name);
          if (file.section == format::kModelSection) totals.parameters += shard::elements_of(tensor.shape);
        }
      }
      return format::encode_hf_index(file_of, totals.size_bytes, totals.parameters);
    } catch (const Error& error) {
      if (os::is_shortage(error)) throw;
      return std::nullopt;
    }
  }

  const RepairJob& job_;
  Repair& result_;
  base::AlignedBuffer memory_;
  io::DiskReader reader_;
  format::Manifest manifest_;
  format::BlockTable table_;
  bool will_have_headers_ = false;  ///< a data file is, or would be, repaired
};

}  // namespace

void repair_checkpoint(const RepairJob& job, Repair& result) {
  ++result.checkpoints;
  CheckpointRepair(job, result).run();
}

std::vector<fs::path> left_by_repairs(const fs::path& directory) {
  constexpr std::size_t kNonceDigits = 16;
  std::vector<fs::path> left;
  for (const auto& entry : os::list_directory(directory)) {
    std::string_view name = entry.name;
    if (!entry.is_regular || entry.is_link || !name.ends_with(kRepairSuffix)) continue;
    name.remove_suffix(kRepairSuffix.size());
    if (name.size() <= kNonceDigits + 1 || name[name.size() - kNonceDigits - 1] != '.') continue;
    const std::string_view nonce = name.substr(name.size() - kNonceDigits);
    if (nonce.find_first_not_of("0123456789abcdef") == std::string_view::npos) left.push_back(directory / entry.name);
  }
  return left;
}

}  // namespace cairn::life
