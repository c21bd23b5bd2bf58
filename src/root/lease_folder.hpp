// The directory `.cairn` of a root, as a saver reads it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "os/process.hpp"
#include "root/lease_rules.hpp"

namespace cairn::root {

inline constexpr const char* kLeaseDirectory = ".cairn";
/// Begins the names of directories in it that are to be deleted, or were being deleted when a saver ended.
inline constexpr const char* kRemovedPrefix = "removed.";

/// The request of this process, from its environment. Throws kUsage for a wait that is negative or too long.
LeaseRequest own_request(const std::optional<double>& wait_seconds);

/// Rank-local; errors of the file system are kIo or kNotFound. Only clear_old() changes files of other savers.
class LeaseFolder {
 public:
  /// `nonce`: the nonce of this saver, which is also in the name that refresh() uses.
  LeaseFolder(const std::filesystem::path& root, os::ProcessName process, std::string nonce);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path path_of(std::uint64_t epoch) const;

  /// The highest epoch; 0 without epochs, or without the directory.
  [[nodiscard]] std::uint64_t highest_epoch() const;
  /// Makes the client of a network file system see the server's directory (os::refresh_directory). Does nothing if the
  /// directory does not exist.
  void refresh() const;
  /// One look at the highest epoch, as an observer on this machine.
  [[nodiscard]] LeaseSighting see() const;
  /// One look at a record, whose epoch counts as `epoch`. Without the file the result has no text.
  [[nodiscard]] LeaseSighting see(const std::filesystem::path& file, std::uint64_t epoch) const;
  /// Whether the epoch's record names another saver; false for a torn record.
  [[nodiscard]] bool is_of_another(std::uint64_t epoch) const;
  /// The holder of the epoch, in words.
  [[nodiscard]] std::string name_holder(std::uint64_t epoch) const;
  /// Removes epochs far below `own`, and files that other savers' refresh() left behind; never throws.
  void clear_old(std::uint64_t own) const noexcept;

 private:
  [[nodiscard]] Surroundings surroundings_of(const LeaseRecord& record, const std::filesystem::path& file) const;

  std::filesystem::path path_;
  os::ProcessName process_;
  std::string nonce_;
};

}  // namespace cairn::root
