#include "io/mpi_handles.hpp"

#include <array>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "comm/mpi.hpp"

namespace cairn::io {

InfoHandle::InfoHandle(const Hints& hints) {
  if (const int code = MPI_Info_create(&info_); code != MPI_SUCCESS) {
    throw Error(ErrorKind::kIo, "MPI_Info_create failed: " + comm::mpi_error_text(code));
  }
  for (const auto& [key, value] : hints) {
    const bool fits =
        !key.empty() && key.size() < MPI_MAX_INFO_KEY && !value.empty() && value.size() < MPI_MAX_INFO_VAL;
    if (fits && MPI_Info_set(info_, key.c_str(), value.c_str()) == MPI_SUCCESS) continue;
    MPI_Info_free(&info_);
    throw Error(ErrorKind::kUsage, "MPI does not take the hint '" + base::printable(key) + "' = '" +
                                       base::printable(value) + "'; keys have 1 to " +
                                       std::to_string(MPI_MAX_INFO_KEY - 1) + " and values 1 to " +
                                       std::to_string(MPI_MAX_INFO_VAL - 1) + " characters");
  }
}

InfoHandle::~InfoHandle() {
  if (info_ != MPI_INFO_NULL) MPI_Info_free(&info_);
}

int FileHandle::open(MPI_Comm group, const std::string& path, int mode, MPI_Info info) {
  const int code = MPI_File_open(group, path.c_str(), mode, info, &file_);
  if (code != MPI_SUCCESS) {
    file_ = MPI_FILE_NULL;
    return code;
  }
  return MPI_File_set_errhandler(file_, MPI_ERRORS_RETURN);
}

Hints FileHandle::hints() const {
  Hints hints;
  MPI_Info info = MPI_INFO_NULL;
  if (MPI_File_get_info(file_, &info) != MPI_SUCCESS || info == MPI_INFO_NULL) return hints;
  int count = 0;
  MPI_Info_get_nkeys(info, &count);
  for (int i = 0; i < count; ++i) {
    std::array<char, MPI_MAX_INFO_KEY + 1> key{};
    std::array<char, MPI_MAX_INFO_VAL + 1> value{};
    int known = 0;
    MPI_Info_get_nthkey(info, i, key.data());
    MPI_Info_get(info, key.data(), MPI_MAX_INFO_VAL, value.data(), &known);
    if (known != 0) hints[key.data()] = value.data();
  }
  MPI_Info_free(&info);
  return hints;
}

void FileHandle::close() {
  if (file_ != MPI_FILE_NULL) MPI_File_close(&file_);
  file_ = MPI_FILE_NULL;
}

}  // namespace cairn::io
