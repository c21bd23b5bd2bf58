// Loads tensors of checkpoints of any dialect in other layouts, for tests that know their values: `load_boxes
// DIRECTORY LIST OUT [DIRECTORY LIST OUT]...`, on any number of ranks. LIST has a line for each tensor: section, name,
// dtype and sizes, with tabs between them. For each cut ("rows", "columns", "flat") each rank writes its boxes of all
// tensors, end to end, to OUT/<cut>.<rank>.bin, and a line for each box to OUT/<cut>.<rank>.txt: number of the tensor,
// offsets, sizes, with tabs.
#include <mpi.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "cairn/staging.hpp"
#include "sharded_state.hpp"

namespace {

using cairn::test::Cut;
using cairn::test::StateTensor;

std::vector<StateTensor> read_list(const std::string& path) {
  std::vector<StateTensor> tensors;
  std::ifstream list(path);
  for (std::string line; std::getline(list, line);) {
    std::istringstream words(line);
    StateTensor& tensor = tensors.emplace_back();
    std::string word;
    std::getline(words, tensor.section, '\t');
    std::getline(words, tensor.name, '\t');
    std::getline(words, word, '\t');
    tensor.dtype = cairn::dtype_from_name(word).value();
    while (std::getline(words, word, '\t')) tensor.shape.push_back(std::stoull(word));
  }
  return tensors;
}

template <class Numbers>
void write_numbers(std::ostream& out, const Numbers& numbers) {
  for (const std::uint64_t number : numbers) out << '\t' << number;
}

void load(const std::string& directory, const std::vector<StateTensor>& tensors, Cut cut, const std::string& out) {
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::vector<std::vector<std::byte>> memory;
  std::vector<cairn::Target> targets;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    cairn::Target& target = targets.emplace_back();
    target.section = tensors[i].section;
    target.name = tensors[i].name;
    target.dtype = tensors[i].dtype;
    target.shape = tensors[i].shape;
    target.boxes = cairn::test::cut_boxes(tensors[i], i, cut, rank, ranks);
    std::uint64_t elements = 0;
    for (const cairn::Box& box : target.boxes) {
      std::uint64_t of_box = 1;
      for (const std::uint64_t size : box.shape) of_box *= size;
      elements += of_box;
    }
    memory.emplace_back(elements * cairn::bits_of(target.dtype) / 8, std::byte{0x5a});
    target.data = memory.back().data();
  }
  cairn::Options options;
  options.limits.memory_budget_bytes = 32 << 20;
  cairn::load_from(MPI_COMM_WORLD, directory, targets, options);
  std::ofstream bytes(out + "." + std::to_string(rank) + ".bin", std::ios::binary);
  std::ofstream boxes(out + "." + std::to_string(rank) + ".txt");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    bytes.write(reinterpret_cast<const char*>(memory[i].data()), static_cast<std::streamsize>(memory[i].size()));
    for (const cairn::Box& box : targets[i].boxes) {
      boxes << i;
      write_numbers(boxes, box.offset);
      write_numbers(boxes, box.shape);
      boxes << '\n';
    }
  }
  bytes.close();
  boxes.close();
  if (!bytes || !boxes) throw cairn::Error(cairn::ErrorKind::kIo, "cannot write to " + out);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int status = 0;
  try {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    for (std::size_t i = 0; i < arguments.size(); i += 3) {
      const std::vector<StateTensor> tensors = read_list(arguments.at(i + 1));
      const std::string& out = arguments.at(i + 2);
      load(arguments[i], tensors, Cut::kRows, out + "/rows");
      load(arguments[i], tensors, Cut::kColumns, out + "/columns");
      load(arguments[i], tensors, Cut::kFlat, out + "/flat");
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "load_boxes: %s\n", error.what());
    status = 1;
  }
  MPI_Finalize();  // all ranks have the same error
  return status;
}
