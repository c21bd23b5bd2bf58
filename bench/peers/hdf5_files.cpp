// Datasets are allocated early, without fill values; datasets of 1 MiB or more begin on whole MiB. These settings are
// HDF5's fastest. BF16 is stored as 16-bit words, since HDF5 has no type for it.
#include "hdf5_files.hpp"
#include "cairn/tensor.hpp"

#include <hdf5.h>
#include <mpi.h>

#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "cairn/dtype.hpp"

namespace cairn::peers {
namespace {

constexpr hsize_t kAlignmentBytes = 1 << 20;

// An HDF5 identifier and the function that closes it.
class Id {
 public:
  Id(hid_t id, herr_t (*closer)(hid_t), const char* call) : id_(id), close_(closer) {
    if (id_ < 0) throw std::runtime_error(std::string(call) + " failed");
  }
  Id(const Id&) = delete;
  Id& operator=(const Id&) = delete;
  ~Id() {
    if (id_ >= 0) close_(id_);
  }
  operator hid_t() const { return id_; }
  void close(const char* call) {
    const hid_t id = id_;
    id_ = -1;
    if (close_(id) < 0) throw std::runtime_error(std::string(call) + " failed");
  }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

void check(herr_t result, const char* call) {
  if (result < 0) throw std::runtime_error(std::string(call) + " failed");
}

std::filesystem::path path_of(const Hdf5Options& options) { return options.directory / "state.h5"; }

Id mpi_access() {
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  check(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL), "H5Pset_fapl_mpio");
  check(H5Pset_alignment(access, kAlignmentBytes, kAlignmentBytes), "H5Pset_alignment");
  check(H5Pset_all_coll_metadata_ops(access, true), "H5Pset_all_coll_metadata_ops");
  check(H5Pset_coll_metadata_write(access, true), "H5Pset_coll_metadata_write");
  return {access, H5Pclose, "H5Pcreate"};
}

hid_t type_of(DType dtype) {
  switch (bits_of(dtype)) {
    case 16: return H5T_NATIVE_UINT16;
    case 32: return H5T_NATIVE_FLOAT;
    default: throw std::runtime_error("a dtype of neither 16 nor 32 bits");
  }
}

std::vector<hsize_t> sizes(const std::vector<std::uint64_t>& values) { return {values.begin(), values.end()}; }

// A name in HDF5 must not contain a slash.
std::string dataset_name(const PeerState& state, std::size_t tensor) {
  std::string name = state.state().sections[tensor] + "." + state.state().tensors[tensor].name;
  for (char& c : name) {
    if (c == '/') c = ':';
  }
  return name;
}

Id create_dataset(hid_t file, const PeerState& state, std::size_t tensor) {
  const Tensor& spec = state.state().tensors[tensor];
  const std::vector<hsize_t> shape = sizes(spec.shape);
  const Id space(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr), H5Sclose, "H5Screate_simple");
  const Id creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "H5Pcreate");
  check(H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY), "H5Pset_alloc_time");
  check(H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER), "H5Pset_fill_time");
  return {H5Dcreate2(file, dataset_name(state, tensor).c_str(), type_of(spec.dtype), space, H5P_DEFAULT, creation,
                     H5P_DEFAULT),
          H5Dclose, "H5Dcreate2"};
}

// Transfers this rank's piece of a dataset. In a collective transfer, ranks without a piece participate with no bytes.
void transfer(const Hdf5Options& options, hid_t dataset, const PeerState::Piece* piece,
              const std::function<herr_t(hid_t memory, hid_t file, hid_t how)>& move) {
  if (piece == nullptr && !options.is_collective) return;
  const Id space(H5Dget_space(dataset), H5Sclose, "H5Dget_space");
  std::vector<hsize_t> counts(1, 1);
  if (piece != nullptr) {
    counts = sizes(piece->box.shape);
    const std::vector<hsize_t> start = sizes(piece->box.offset);
    check(H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, counts.data(), nullptr),
          "H5Sselect_hyperslab");
  } else {
    check(H5Sselect_none(space), "H5Sselect_none");
  }
  const Id memory(H5Screate_simple(static_cast<int>(counts.size()), counts.data(), nullptr), H5Sclose,
                  "H5Screate_simple");
  if (piece == nullptr) check(H5Sselect_none(memory), "H5Sselect_none");
  const Id how(H5Pcreate(H5P_DATASET_XFER), H5Pclose, "H5Pcreate");
  check(H5Pset_dxpl_mpio(how, options.is_collective ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT),
        "H5Pset_dxpl_mpio");
  check(move(memory, space, how), "H5Dwrite or H5Dread");
}

std::map<std::size_t, const PeerState::Piece*> pieces_by_tensor(const PeerState& state, bool only_first_holders) {
  std::map<std::size_t, const PeerState::Piece*> out;
  for (const PeerState::Piece& piece : state.pieces()) {
    if (only_first_holders && !piece.is_first_holder) continue;
    if (!out.emplace(piece.tensor, &piece).second) throw std::runtime_error("a tensor in several boxes on one rank");
  }
  return out;
}

}  // namespace

Seconds hdf5_save(const Hdf5Options& options, const PeerState& state) {
  const auto pieces = pieces_by_tensor(state, true);
  int rank = 0;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  return timed([&] {
    {
      const Id access = mpi_access();
      Id file(H5Fcreate(path_of(options).c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access), H5Fclose, "H5Fcreate");
      for (std::size_t tensor = 0; tensor < state.state().tensors.size(); ++tensor) {
        const Id dataset = create_dataset(file, state, tensor);
        const auto piece = pieces.find(tensor);
        const hid_t type = type_of(state.state().tensors[tensor].dtype);
        const PeerState::Piece* mine = piece == pieces.end() ? nullptr : piece->second;
        transfer(options, dataset, mine, [&](hid_t memory, hid_t space, hid_t how) {
          return H5Dwrite(dataset, type, memory, space, how, mine == nullptr ? nullptr : mine->memory);
        });
      }
      file.close("H5Fclose");
    }
    fsync_path(path_of(options));
    if (rank == 0) fsync_path(options.directory);
  });
}

Seconds hdf5_load(const Hdf5Options& options, const PeerState& state) {
  const auto pieces = pieces_by_tensor(state, false);
  return timed([&] {
    const Id access = mpi_access();
    Id file(H5Fopen(path_of(options).c_str(), H5F_ACC_RDONLY, access), H5Fclose, "H5Fopen");
    for (std::size_t tensor = 0; tensor < state.state().tensors.size(); ++tensor) {
      const Id dataset(H5Dopen2(file, dataset_name(state, tensor).c_str(), H5P_DEFAULT), H5Dclose, "H5Dopen2");
      const auto piece = pieces.find(tensor);
      const hid_t type = type_of(state.state().tensors[tensor].dtype);
      const PeerState::Piece* mine = piece == pieces.end() ? nullptr : piece->second;
      transfer(options, dataset, mine, [&](hid_t memory, hid_t space, hid_t how) {
        return H5Dread(dataset, type, memory, space, how, mine == nullptr ? nullptr : mine->memory);
      });
    }
    file.close("H5Fclose");
  });
}

}  // namespace cairn::peers
