// A saver that a test drives, one process of one rank: reads commands from standard input, answers each with one line.
//
//   new SECONDS WAIT_S          a new Checkpointer of the root; the one before is destroyed      "ok"
//   save STEP VERSION           every element of the state is VERSION                            "saved"
//   load STEP                   "loaded VERSION", or "mixed" when the elements are not all one version
//   latest                      "latest STEP", or "latest none"
// An Error is "error KIND TEXT".
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"

namespace {

constexpr std::size_t kTensors = 8;
constexpr std::size_t kElements = 20'000;

class Driven {
 public:
  explicit Driven(std::string root) : root_(std::move(root)), values_(kTensors * kElements) {}

  std::string answer(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "new") return begin(words);
    std::uint64_t step = 0;
    words >> step;
    if (command == "save") {
      double version = 0;
      words >> version;
      std::fill(values_.begin(), values_.end(), version);
      checkpointer_->save(step, shards<cairn::Source>());
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
    double wait_seconds = 0;
    words >> options.lease.seconds >> wait_seconds;
    options.lease.wait_seconds = wait_seconds;
    options.overwrite = true;
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
      all[n].boxes = {{{0}, {kElements}}};
      all[n].data = values_.data() + n * kElements;
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
  std::vector<double> values_;
  std::unique_ptr<cairn::Checkpointer> checkpointer_;
};

void serve(const std::string& root) {
  Driven driven(root);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::string text;
    try {
      text = driven.answer(line);
    } catch (const cairn::Error& error) {
      text = "error " + std::to_string(static_cast<int>(error.kind())) + " " + error.what();
    }
    std::cout << text << std::endl;
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
