// MPI_Finalize while an asynchronous save is under way: it is finished first; and whatever is used after, says so. Two
// ranks. Prints "finalize: good" from rank 0.
#include <fmt/core.h>
#include <mpi.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "cairn/log.hpp"
#include "os/fault.hpp"

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

void wait_for(const fs::path& file) {
  while (!fs::exists(file)) std::this_thread::sleep_for(1ms);
}

}  // namespace

int main(int argc, char** argv) {
  int granted = 0;
  int rank = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &granted);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  cairn::os::set_fault_rank(rank);
  std::string said;
  cairn::set_log_sink([&](cairn::LogLevel, std::string_view line) { said += line; });
  if (rank == 0) {
    fs::remove_all("root");
    fs::remove("pause");
    fs::remove("pause.reached");
  }
  MPI_Barrier(MPI_COMM_WORLD);

  std::vector<float> values(1 << 16, 1.0F);
  cairn::Source source;
  source.name = "w";
  source.shape = {2, values.size()};
  source.boxes = {{{static_cast<std::uint64_t>(rank), 0}, {1, values.size()}}};
  source.data = values.data();
  const std::vector<cairn::Source> sources = {source};
  std::optional<cairn::Checkpointer> checkpointer(std::in_place, MPI_COMM_WORLD, "root");
  cairn::os::set_faults("commit.manifest:rank=0:times=1:pause=pause");
  cairn::SaveTicket ticket = checkpointer->save_async(7, sources);
  if (rank == 0) wait_for("pause.reached");
  bool good = !fs::exists("root/checkpoint-7");
  // The save goes on when MPI_Finalize has begun.
  std::thread later([rank] {
    std::this_thread::sleep_for(300ms);
    if (rank == 0) std::ofstream("pause") << "";
  });
  MPI_Finalize();
  later.join();
  const auto expect = [&](bool condition, const char* what) {
    if (!condition) fmt::print(stderr, "rank {}: {}\n", rank, what);
    good = good && condition;
  };
  expect(ticket.test(), "MPI_Finalize did not wait for the save");
  expect(ticket.wait().step == 7, "another step");
  expect(fs::exists("root/checkpoint-7/cairn.json"), "nothing was saved");
  expect(rank != 0 || said.find("step 7") != std::string::npos, "nothing was said");
  std::string text;
  try {
    checkpointer->save(8, sources);
  } catch (const cairn::Error& error) {
    if (error.kind() == cairn::ErrorKind::kState) text = error.what();
  }
  expect(text.find("MPI has been finalised") != std::string::npos, "a save after MPI_Finalize");
  checkpointer.reset();
  cairn::set_log_sink({});
  if (rank == 0) fmt::print("finalize: {}\n", good ? "good" : "bad");
  return good ? 0 : 1;
}
