// In place of everything that calls HDF5, in a build without it.
#include "cairn/error.hpp"
#include "hdf5/external_files.hpp"
#include "hdf5/library.hpp"
#include "hdf5/stage_file.hpp"
#include "hdf5/stage_skeleton.hpp"

namespace cairn::hdf5 {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorKind::kUsage,
              "this build of Cairn has no HDF5: neither the engine 'hdf5' nor .h5 files; build it where CMake finds an "
              "HDF5 of the same MPI");
}

}  // namespace

bool is_available() { return false; }
void require() { refuse(); }
std::string version() { return ""; }

struct ExternalFiles::State {};
ExternalFiles::ExternalFiles() { refuse(); }
ExternalFiles::~ExternalFiles() = default;
ExternalFiles::ExternalFiles(ExternalFiles&&) noexcept = default;
ExternalFiles& ExternalFiles::operator=(ExternalFiles&&) noexcept = default;
std::size_t ExternalFiles::add(const std::filesystem::path&, std::uint64_t) { refuse(); }
void ExternalFiles::write_at(std::size_t, std::span<const std::byte>, std::uint64_t) { refuse(); }
void ExternalFiles::read_at(std::size_t, std::span<std::byte>, std::uint64_t) { refuse(); }

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
