// A training job that hands a checkpoint to a job of another system. It loads step STEP of the root FROM,
// of any dialect, some rows on each rank, and saves it with all its metadata and carried files into the root TO,
// in the form FORM (Options::files.form). Runs on any number of ranks, with the public interface alone:
//
//   save_in_form FROM STEP TO FORM [MAX_FILE_BYTES]
#include <mpi.h>

#include <cstdio>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "sharded_state.hpp"

namespace {

/// Targets for this rank's rows of all tensors, and the memory of the targets.
struct Rows {
  Rows(const std::vector<cairn::TensorInfo>& tensors, int rank, int ranks) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const cairn::TensorInfo& tensor = tensors[i];
      cairn::Target& target = targets.emplace_back();
      target.section = tensor.section;
      target.name = tensor.name;
      target.dtype = tensor.dtype;
      target.shape = tensor.shape;
      target.boxes = cairn::test::cut_boxes({tensor.section, tensor.name, tensor.dtype, tensor.shape}, i,
                                            cairn::test::Cut::kRows, rank, ranks);
      std::uint64_t elements = 0;
      for (const cairn::Box& box : target.boxes) {
        std::uint64_t of_box = 1;
        for (const std::uint64_t size : box.shape) of_box *= size;
        elements += of_box;
      }
      memory.emplace_back(elements * cairn::bits_of(target.dtype) / 8);
      target.data = memory.back().data();
    }
  }

  [[nodiscard]] std::vector<cairn::Source> sources() const {
    std::vector<cairn::Source> all;
    for (const cairn::Target& target : targets) all.push_back({target, target.data});
    return all;
  }

  std::vector<cairn::Target> targets;
  std::vector<std::vector<std::byte>> memory;
};

void save_in_form(const std::string& from, std::uint64_t step, const std::string& to, const cairn::Options& options) {
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  cairn::Checkpointer source(MPI_COMM_WORLD, from);
  Rows state(source.tensors(step), rank, ranks);
  source.load(step, state.targets);
  const auto travelled = source.load_extras(step);
  cairn::Extras extras;
  extras.metadata = travelled.metadata;
  for (const auto& [name, bytes] : travelled.carried) {
    std::string& text = extras.carry_texts[name];
    source.load_carried(step, name, [&text](std::span<const std::byte> piece) {
      text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    });
  }
  cairn::Checkpointer target(MPI_COMM_WORLD, to, options);
  const cairn::Report report = target.save(step, state.sources(), extras);
  for (const std::string& warning : report.warnings) std::printf("warning: %s\n", warning.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int status = 0;
  try {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    cairn::Options options;
    options.files.form = arguments.at(3);
    if (arguments.size() > 4) options.files.max_bytes = std::stoull(arguments[4]);
    save_in_form(arguments[0], std::stoull(arguments[1]), arguments[2], options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "save_in_form: %s\n", error.what());
    status = 1;
  }
  MPI_Finalize();  // all ranks have the same error
  return status;
}
