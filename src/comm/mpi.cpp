// The lifetime of MPI in the process, its forced end, and the choice of the MPI-IO implementation.
#include "comm/mpi.hpp"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "cairn/error.hpp"
#include "comm/launcher.hpp"
#include "comm/mpi_call.hpp"

namespace cairn::comm {

// The lifetime of MPI in the process, and its forced end.

MpiSession::MpiSession(int& argc, char**& argv) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) {
    if (is_child_of_rank()) leave_job();
    prefer_romio();
    const SlowStart slow_start;
    int granted = 0;
    const int code = MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &granted);
    if (code != MPI_SUCCESS) throw Error(ErrorKind::kIo, fmt::format("MPI_Init_thread failed with code {}", code));
    owned_ = true;
  }
  int rank = 0;
  int size = 1;
  internal::check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  internal::check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  base::set_log_rank(rank, size);
}

MpiSession::~MpiSession() {
  if (!owned_ || !internal::mpi_is_up()) return;
  // MPI_Finalize waits for all ranks, but perhaps only this rank is unwinding an exception.
  if (std::uncaught_exceptions() > 0) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Finalize();
}

void abort_job(int exit_code) {
  if (internal::mpi_is_up()) MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

// The MPI-IO implementation of Open MPI: ROMIO is preferred, because OMPIO of Open MPI 4 loses write errors.
//
// Measured on Open MPI 4.1.4 (ROMIO_PRINT_HINTS=1 shows which one opened the file): the choice is made at the first
// MPI_File_open of the process, not in MPI_Init. OMPI_MCA_io in the environment is read
//   - at the first MPI_File_open: a setenv between MPI_Init and that call takes effect;
//   - or, while a tool holds MPI_T, at MPI_T_init_thread, before or after MPI_Init: then setenv has no effect, but
//     writing the control variable "io" does;
//   - never again after the first MPI_File_open: neither setenv nor the control variable changes anything, and the
//     control variable keeps the true value.
// MPI_T_init_thread takes 0.2 s, because it loads every component, so it is called only if there is no other way.

namespace {

constexpr const char* kIoVariable = "OMPI_MCA_io";
constexpr const char* kSharedPointerVariable = "OMPI_MCA_sharedfp";

/// The major version of Open MPI: 4 for "Open MPI v4.1.4, ..."; 0 for any other library.
int open_mpi_major(std::string_view library) {
  constexpr std::string_view kPrefix = "Open MPI v";
  if (!library.starts_with(kPrefix)) return 0;
  const std::string_view version = library.substr(kPrefix.size());
  int major = 0;
  std::from_chars(version.data(), version.data() + version.size(), major);
  return major;
}

/// Name of the ROMIO component of an Open MPI version; null if the version has none, or is too old.
const char* romio_component(int major) {
  if (major == 4) return "romio321";
  if (major == 5) return "romio341";
  return nullptr;  // 3 and earlier: too old; 6: ROMIO was removed
}

bool tool_interface_is_up() {
  int count = 0;
  return MPI_T_cvar_get_num(&count) == MPI_SUCCESS;
}

/// The control variable "io" of Open MPI, which exists while MPI_T is up.
class IoControlVariable {
 public:
  IoControlVariable() {
    int count = 0;
    if (MPI_T_cvar_get_num(&count) != MPI_SUCCESS) return;
    for (int index = 0; index < count && handle_ == MPI_T_CVAR_HANDLE_NULL; ++index) open_if_io(index);
  }
  ~IoControlVariable() {
    if (handle_ != MPI_T_CVAR_HANDLE_NULL) MPI_T_cvar_handle_free(&handle_);
  }
  IoControlVariable(const IoControlVariable&) = delete;
  IoControlVariable& operator=(const IoControlVariable&) = delete;

  [[nodiscard]] std::optional<std::string> read() const {
    if (handle_ == MPI_T_CVAR_HANDLE_NULL) return std::nullopt;
    std::vector<char> value(value_chars_ + 1, '\0');
    if (MPI_T_cvar_read(handle_, value.data()) != MPI_SUCCESS) return std::nullopt;
    return std::string(value.data());
  }
  void write(std::string value) {
    if (handle_ == MPI_T_CVAR_HANDLE_NULL || value.size() >= value_chars_) return;
    value.resize(value_chars_, '\0');
    MPI_T_cvar_write(handle_, value.data());  // if refused, mpi_io_implementation() shows it
  }

 private:
  void open_if_io(int index) {
    std::array<char, 64> name{};
    int name_chars = static_cast<int>(name.size());
    int verbosity = 0;
    int binding = 0;
    int scope = 0;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    if (MPI_T_cvar_get_info(index, name.data(), &name_chars, &verbosity, &type, nullptr, nullptr, nullptr, &binding,
                            &scope) != MPI_SUCCESS) {
      return;
    }
    if (std::string_view(name.data()) != "io" || type != MPI_CHAR) return;
    int chars = 0;
    if (MPI_T_cvar_handle_alloc(index, nullptr, &handle_, &chars) != MPI_SUCCESS) handle_ = MPI_T_CVAR_HANDLE_NULL;
    value_chars_ = static_cast<std::size_t>(chars);
  }

  MPI_T_cvar_handle handle_ = MPI_T_CVAR_HANDLE_NULL;
  std::size_t value_chars_ = 0;
};

/// Initialising Open MPI's tool interface sets the thread level of the whole process (MPI_Query_thread). Initialising
/// it with the current level keeps that level.
bool begin_tool_interface() {
  int level = MPI_THREAD_MULTIPLE;
  if (internal::mpi_is_up()) MPI_Query_thread(&level);
  int granted = 0;
  return MPI_T_init_thread(level, &granted) == MPI_SUCCESS;
}

/// Avoids setenv, which would race with getenv in threads of the host program. Does not release MPI_T, because then the
/// control variable would lose its value.
void ask_for(const char* component) {
  static std::once_flag once;
  std::call_once(once, [&] {
    if (!begin_tool_interface()) return;
    IoControlVariable variable;
    if (variable.read() == std::string()) variable.write(component);
  });
}

/// Open MPI's setting of "io"; "" for the default.
std::string chosen_component() {
  const char* environment = std::getenv(kIoVariable);
  const bool tool_is_up = tool_interface_is_up();
  if (!tool_is_up && environment != nullptr) return environment;
  if (!tool_is_up && !begin_tool_interface()) return environment != nullptr ? environment : "";
  const std::optional<std::string> value = IoControlVariable().read();
  if (!tool_is_up) MPI_T_finalize();
  if (value) return *value;
  return environment != nullptr ? environment : "";
}

}  // namespace

std::string mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING + 1> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "unknown MPI";
  const std::string_view all(text.data());  // Open MPI counts the zero at the end in `length`
  return std::string(all.substr(0, all.find('\n')));
}

void prefer_romio() {
  const char* component = romio_component(open_mpi_major(mpi_library()));
  if (internal::mpi_is_up()) {
    if (component != nullptr && std::getenv(kIoVariable) == nullptr) ask_for(component);
    return;
  }
  setenv(kSharedPointerVariable, "individual", 0);  // in case OMPIO is used after all: no semaphores, no lock files
  if (component == nullptr || std::getenv(kIoVariable) != nullptr) return;
  setenv(kIoVariable, component, 0);
  if (tool_interface_is_up()) ask_for(component);
}

MpiIoImplementation mpi_io_implementation() {
  MpiIoImplementation out;
  out.library = mpi_library();
  const int major = open_mpi_major(out.library);
  if (major == 0) {
    out.io_component = "romio (MPICH)";
    return out;
  }
  out.io_component = chosen_component();
  if (out.io_component.empty()) out.io_component = "ompio";
  const bool is_romio = out.io_component.starts_with("romio") || out.io_component == "^ompio";
  out.loses_write_errors = !is_romio && major < 5;  // 5.0 reports write errors, on the failing rank
  return out;
}

}  // namespace cairn::comm
