// Replaces the calls of HDF5 in a build without HDF5.
#include "cairn/error.hpp"
#include "hdf5/library.hpp"
#include "hdf5/stage_file.hpp"

namespace cairn::hdf5 {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      ErrorKind::kUsage,
      "this build of Cairn has no HDF5, which .h5 files need; build it where CMake finds an HDF5 of the same MPI");
}

}  // namespace

bool is_available() { return false; }
void require() { refuse(); }
std::string version() { return ""; }

format::StoredCheckpoint write_skeleton(const std::filesystem::path&, const StageContent&) { refuse(); }

StageDescription describe_stage(const std::filesystem::path&) { refuse(); }

struct StageFile::State {};
StageFile::StageFile(const std::filesystem::path&, std::uint64_t) { refuse(); }
StageFile::~StageFile() = default;
void StageFile::read_box(const format::StoredTensor&, const Box&, std::span<std::byte>) { refuse(); }
void StageFile::read_packed(const format::StoredTensor&, std::uint64_t, std::span<std::byte>) { refuse(); }
std::uint64_t StageFile::carried_bytes(const std::string&) { refuse(); }
base::Bytes StageFile::read_carried(const std::string&) { refuse(); }
void StageFile::give_carried(const std::string&, const base::PutBytes&) { refuse(); }

}  // namespace cairn::hdf5
