// Saves and loads of the small state on simulated ranks, with small blocks so that everything is cut often.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "checkpoint/load.hpp"
#include "checkpoint/save.hpp"
#include "environment.hpp"
#include "os/fault.hpp"
#include "plan/catalog.hpp"
#include "root/lease.hpp"
#include "root/root.hpp"
#include "sharded_state.hpp"
#include "simulated.hpp"
#include "temp_dir.hpp"

namespace cairn::test {

inline Options small_options() {
  Options options = options_for_small_state("posix");
  options.run_id = "test";
  return options;
}

inline std::unique_ptr<root::Lease> lease_of(const std::filesystem::path& root, const Options& options,
                                             os::Clock& clock = os::Clock::of_system()) {
  return std::make_unique<root::Lease>(root,
                                       root::Lease::Setup{options.lease.seconds, options.lease.wait_seconds,
                                                          [root] { return root::highest_saved_epoch(root); }, &clock});
}

/// Saves as the owner of `lease`; the lease can serve further saves.
inline void save_simulated_by(root::Lease& lease, std::uint64_t step, Cut cut, int ranks, const Options& options,
                              int version, const std::vector<format::Life>& lineage = {}, std::uint64_t saves = 0,
                              int ranks_per_node = 0) {
  const auto save = [&](comm::Communicator& communicator) {
    os::set_fault_rank(communicator.rank());
    RankState state(small_state(), cut, communicator.rank(), ranks);
    state.fill(version);
    io::WindowStore store;
    checkpoint::Saver saver(communicator, options, store);
    const auto sources = state.sources();
    checkpoint::RootLife life{communicator.rank() == 0 ? &lease : nullptr, lineage, saves};
    saver.save(root::checkpoint_directory(lease.root(), step), step, sources, {}, &life);
  };
  comm::run_simulated(ranks, save, ranks_per_node);
}

/// Saves as a new saver.
inline void save_simulated(const std::filesystem::path& root, std::uint64_t step, Cut cut, int ranks,
                           const Options& options = small_options(), int ranks_per_node = 0) {
  std::filesystem::create_directories(root);
  const auto lease = lease_of(root, options);
  save_simulated_by(*lease, step, cut, ranks, options, static_cast<int>(step), {}, 0, ranks_per_node);
}

/// Loads and compares; fails the test unless every byte of every rank was compared and equal.
inline void expect_loads(const std::filesystem::path& directory, int version, Cut cut, int ranks,
                         std::uint64_t memory_budget_bytes = 64 << 10, int ranks_per_node = 0) {
  std::atomic<std::uint64_t> total = 0;
  std::atomic<std::uint64_t> matching = 0;
  const auto load = [&](comm::Communicator& communicator) {
    RankState state(small_state(), cut, communicator.rank(), ranks);
    const auto opened = opening::open_checkpoint(communicator, directory);
    std::vector<plan::MemoryBox> wanted;
    for (const Target& target : state.targets()) {
      const std::uint32_t number = opened.stored.tensors.catalog().find(target.section, target.name).value();
      auto* at = static_cast<std::byte*>(target.data);
      for (const Box& box : target.boxes) {
        std::uint64_t bits = bits_of(target.dtype);
        for (const std::uint64_t n : box.shape) bits *= n;
        wanted.push_back({number, box, {at, bits / 8}});
        at += bits / 8;
      }
    }
    checkpoint::Loader loader(communicator, opened, {"posix", memory_budget_bytes, {}});
    loader.load(wanted);
    total += state.bytes();
    matching += state.matching_bytes(version);
  };
  comm::run_simulated(ranks, load, ranks_per_node);
  std::uint64_t at_least = 0;
  for (const StateTensor& tensor : small_state()) at_least += whole_content(tensor, 0, 0).size();
  EXPECT_GE(total, at_least);
  EXPECT_EQ(matching, total);
}

/// Name -> content of every data file, every index and cairn.blocks.
inline std::map<std::string, std::string> data_files(const std::filesystem::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    if (name.ends_with(".safetensors") || name == format::kBlocksFile || name.ends_with(".index.json")) {
      files[name] = read_file(entry.path());
    }
  }
  return files;
}

}  // namespace cairn::test
