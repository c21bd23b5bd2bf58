// A saver controlled by a test, as one process or as the ranks of a job. Rank 0 reads commands from standard input and
// answers each with one line: the common answer of all ranks, or that they differ.
//
//   new SECONDS WAIT_S [ENGINE [READ_BACK]]
//                               makes a new Checkpointer after destroying the previous one. WAIT_S "-" leaves
//                               the wait unset; READ_BACK "read_back": everything is read back  "ok"
//   save STEP VERSION           every element of the state is VERSION                            "saved"
//   save_async STEP VERSION     saves likewise, changes the state once the call returns, and waits "saved"
//   load STEP                   "loaded VERSION", or "mixed" if the elements are not all of one version
//   latest                      "latest STEP", or "latest none"
//   pids                        "pids PID...", of all ranks
// An Error is "error KIND TEXT".
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cairn/checkpoint.hpp"

namespace {

constexpr std::size_t kTensors = 8;
constexpr std::uint64_t kElements = 20'000;

class Driven {
 public:
  Driven(std::string root, std::uint64_t rank, std::uint64_t ranks)
      : root_(std::move(root)),
        first_(kElements * rank / ranks),
        elements_(kElements * (rank + 1) / ranks - first_),
        values_(kTensors * elements_) {}

  std::string answer(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "new") return begin(words);
    std::uint64_t step = 0;
    words >> step;
    if (command == "save" || command == "save_async") {
      double version = 0;
      words >> version;
      std::fill(values_.begin(), values_.end(), version);
      if (command == "save") {
        checkpointer_->save(step, shards<cairn::Source>());
      } else {
        cairn::SaveTicket ticket = checkpointer_->save_async(step, shards<cairn::Source>());
        std::fill(values_.begin(), values_.end(), -2);
        ticket.wait();
      }
      return "saved";
    }
    if (command == "load") return load(step);
    if (command == "latest") {
      const auto latest = checkpointer_->latest();
      return "latest " + (latest ? std::to_string(*latest) : "none");
    }
    return "what? " + line;
  }

 private:
  std::string begin(std::istringstream& words) {
    cairn::Options options;
    std::string wait_seconds, read_back;
    words >> options.lease.seconds >> wait_seconds >> options.engine.name >> read_back;
    if (wait_seconds != "-") options.lease.wait_seconds = std::stod(wait_seconds);
    if (options.engine.name.empty()) options.engine.name = "auto";
    if (read_back == "read_back") options.read_back = cairn::ReadBack::kAll;
    options.overwrite = true;
    options.preflight = false;  // the save itself meets the faults; preflight_test.cpp has the other way
    options.files.max_bytes = 400'000;
    checkpointer_.reset();
    checkpointer_ = std::make_unique<cairn::Checkpointer>(MPI_COMM_WORLD, root_, options);
    return "ok";
  }

  template <class Shard>
  std::vector<Shard> shards() {
    std::vector<Shard> all(kTensors);
    for (std::size_t n = 0; n < kTensors; ++n) {
      all[n].name = "tensor." + std::to_string(n);
      all[n].dtype = cairn::DType::kF64;
      all[n].shape = {kElements};
      all[n].boxes = {{{first_}, {elements_}}};
      all[n].data = values_.data() + n * elements_;
    }
    return all;
  }

  std::string load(std::uint64_t step) {
    std::fill(values_.begin(), values_.end(), -1);
    checkpointer_->load(step, shards<cairn::Target>());
    const auto [low, high] = std::minmax_element(values_.begin(), values_.end());
    if (*low != *high) return "mixed";
    return "loaded " + std::to_string(static_cast<long>(*low));
  }

  std::string root_;
  std::uint64_t first_;
  std::uint64_t elements_;
  std::vector<double> values_;
  std::unique_ptr<cairn::Checkpointer> checkpointer_;
};

/// Sends a line of rank 0 to all ranks without a spinning wait, which would take processors from other tests.
std::string next_command(int rank) {
  std::array<char, 256> text{};
  std::string line;
  if (rank == 0 && std::getline(std::cin, line)) line.copy(text.data(), text.size() - 1);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibcast(text.data(), static_cast<int>(text.size()), MPI_CHAR, 0, MPI_COMM_WORLD, &request);
  int is_there = 0;
  for (;;) {
    MPI_Test(&request, &is_there, MPI_STATUS_IGNORE);
    if (is_there != 0) return text.data();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// On rank 0: the common answer of all ranks, or that they differ.
std::string common_answer(const std::string& text, int rank, int ranks) {
  std::array<char, 2048> mine{};
  text.copy(mine.data(), mine.size() - 1);
  std::vector<std::array<char, 2048>> all(rank == 0 ? static_cast<std::size_t>(ranks) : 0);
  MPI_Gather(mine.data(), static_cast<int>(mine.size()), MPI_CHAR, all.data(), static_cast<int>(mine.size()), MPI_CHAR,
             0, MPI_COMM_WORLD);
  for (std::size_t other = 1; other < all.size(); ++other) {
    if (all[other] != mine) return "ranks differ: '" + text + "' and '" + all[other].data() + "'";
  }
  return text;
}

std::string pids(int rank, int ranks) {
  const int mine = ::getpid();
  std::vector<int> all(rank == 0 ? static_cast<std::size_t>(ranks) : 0);
  MPI_Gather(&mine, 1, MPI_INT, all.data(), 1, MPI_INT, 0, MPI_COMM_WORLD);
  std::string text = "pids";
  for (const int pid : all) text += " " + std::to_string(pid);
  return text;
}

void serve(const std::string& root) {
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  Driven driven(root, static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(ranks));
  for (std::string line = next_command(rank); !line.empty(); line = next_command(rank)) {
    std::string text;
    if (line == "pids") {
      text = pids(rank, ranks);
    } else {
      try {
        text = driven.answer(line);
      } catch (const cairn::Error& error) {
        text = "error " + std::to_string(static_cast<int>(error.kind())) + " " + error.what();
      }
      text = common_answer(text, rank, ranks);
    }
    if (rank == 0) std::cout << text << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: saver ROOT\n");
    return 2;
  }
  int granted = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &granted);
  serve(argv[1]);
  MPI_Finalize();
}
