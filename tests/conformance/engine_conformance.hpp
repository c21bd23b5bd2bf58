// Requirements on every engine, as test bodies that do not depend on MPI: conformance_threads_test.cpp runs them on
// simulated ranks, conformance_files_test.cpp on MPI.
//
// Written files are read back by plain POSIX calls, and by the engine with a different division of the files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cairn/error.hpp"
#include "comm/communicator.hpp"
#include "io/engine.hpp"

namespace cairn::test {

/// One rank's view of a test.
struct EngineCase {
  comm::Communicator& communicator;
  std::string engine;
  std::filesystem::path directory;  ///< an empty directory, the same on all ranks
  io::EngineOptions options;
  std::size_t rounds_ahead = 0;  ///< rounds in flight in addition to the last one; 0: each round is done before the
                                 ///< next begins

  [[nodiscard]] std::unique_ptr<io::Engine> make() const { return io::make_engine(engine, communicator, options); }
};

struct EngineTest {
  std::string name;
  std::function<void(const EngineCase&)> body;  ///< called by all ranks
};
const std::vector<EngineTest>& engine_tests();

/// Collective: `work` must throw an Error of `kind` on every rank, with the same message, which is returned.
std::string common_error(comm::Communicator& communicator, ErrorKind kind, const std::function<void()>& work);

/// The byte that test files hold at a place.
std::byte expected_byte(std::uint32_t file, std::uint64_t offset);

/// Collective: opens, writes every byte of `extents` in windows of `window_bytes`, syncs, closes.
void write_files(const EngineCase& c, const std::vector<io::EngineFile>& files, const plan::ExtentMap& extents,
                 std::uint64_t window_bytes);

/// Collective: reads every byte of `extents` with the engine and compares. Returns the bytes that all ranks compared.
std::uint64_t read_and_compare(const EngineCase& c, const std::vector<io::EngineFile>& files,
                               const plan::ExtentMap& extents, std::uint64_t window_bytes);

/// Collective: rank 0 reads `ranges` without the engine and compares. All ranks get the number of bytes compared.
std::uint64_t compare_by_other_means(const EngineCase& c, const std::vector<io::EngineFile>& files,
                                     const std::vector<plan::FileRange>& ranges);

}  // namespace cairn::test
