// The directory `.cairn` of a root as a saver reads it: epochs, what their files say, and what else tells of their holders.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "directory/lease_rules.hpp"

namespace cairn::checkpoint {

inline constexpr const char* kLeaseDirectory = ".cairn";

/// Of this process, by its environment. Throws kUsage for a time that nobody can wait.
LeaseWish own_wish(const std::optional<double>& wait_seconds);

/// Rank-local; errors of the file system are kIo. Nothing here changes what another saver wrote, but for clear_old().
class LeaseFolder {
 public:
  /// `nonce` is in the names that refresh() uses.
  LeaseFolder(const std::filesystem::path& root, os::ProcessName process, std::string nonce);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path path_of(std::uint64_t epoch) const;

  /// 0 when there is none, or no such directory.
  [[nodiscard]] std::uint64_t highest_epoch() const;
  /// The directory as its server has it (os::refresh_directory); nothing where it does not exist.
  void refresh() const;
  /// One look at the highest epoch, as an observer on this machine.
  [[nodiscard]] LeaseSighting see() const;
  /// Who has the epoch, in words.
  [[nodiscard]] std::string name_holder(std::uint64_t epoch) const;
  /// Removes epochs long below `own`, and what others left of a refresh(); never throws.
  void clear_old(std::uint64_t own) const noexcept;

 private:
  [[nodiscard]] Surroundings surroundings_of(const LeaseRecord& record, const std::filesystem::path& file) const;

  std::filesystem::path path_;
  os::ProcessName process_;
  std::string nonce_;
};

}  // namespace cairn::checkpoint
