// Runs files, and seeded random mutations of them, through the fuzz entry: the fuzzing that every build does in ctest.
//
//   fuzz_NAME_replay [--mutations N] [--seed S] <file or folder> ...
//
// The seed is printed; the same seed and files give the same inputs. An input that fails is left as fuzz-failure.bin.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "fuzz_entry.hpp"

namespace {

using Input = std::vector<std::byte>;

constexpr std::size_t kLargestMutatedBytes = 16384;

struct Options {
  std::uint64_t mutations = 0;
  std::uint64_t seed = std::random_device{}();
  std::vector<std::filesystem::path> paths;
};

Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--mutations" && i + 1 < argc) {
      options.mutations = std::stoull(argv[++i]);
    } else if (argument == "--seed" && i + 1 < argc) {
      options.seed = std::stoull(argv[++i]);
    } else {
      options.paths.emplace_back(argument);
    }
  }
  return options;
}

/// The files in sorted order, so that a seed gives the same inputs on every machine.
std::vector<std::filesystem::path> files_of(const std::vector<std::filesystem::path>& paths) {
  std::vector<std::filesystem::path> out;
  for (const auto& path : paths) {
    if (!std::filesystem::is_directory(path)) {
      out.push_back(path);
      continue;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
      if (entry.is_regular_file()) out.push_back(entry.path());
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

Input read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot open " + path.string());
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  Input mutate(Input input) {
    for (std::uint64_t count = 1 + below(4); count > 0; --count) once(input);
    return input;
  }

 private:
  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  std::ptrdiff_t place(const Input& input) { return static_cast<std::ptrdiff_t>(below(input.size() + 1)); }

  void once(Input& input) {
    if (input.empty()) {
      input.push_back(static_cast<std::byte>(below(256)));
      return;
    }
    const auto at = below(input.size());
    switch (below(6)) {
      case 0: input[at] ^= static_cast<std::byte>(1u << below(8)); break;
      case 1: input[at] = static_cast<std::byte>(below(256)); break;
      case 2: input.resize(at); break;
      case 3: input.insert(input.begin() + place(input), static_cast<std::byte>("0129\"{}[],:\\-. "[below(15)])); break;
      case 4: {  // repeats a piece of the input somewhere
        const auto from = input.begin() + static_cast<std::ptrdiff_t>(at);
        const Input piece(
            from, from + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(1 + below(64), input.size() - at)));
        input.insert(input.begin() + place(input), piece.begin(), piece.end());
        break;
      }
      default: {
        const auto end = std::min<std::uint64_t>(at + 1 + below(16), input.size());
        input.erase(input.begin() + static_cast<std::ptrdiff_t>(at), input.begin() + static_cast<std::ptrdiff_t>(end));
      }
    }
  }

  std::mt19937_64 random_;
};

void feed(const Input& input, const std::filesystem::path& origin) {
  try {
    cairn::fuzz::feed_all_parsers(input);
  } catch (const std::exception& error) {
    std::ofstream("fuzz-failure.bin", std::ios::binary)
        .write(reinterpret_cast<const char*>(input.data()), static_cast<std::streamsize>(input.size()));
    throw std::runtime_error("input from " + origin.string() + " (left as fuzz-failure.bin): " + error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse_options(argc, argv);
    const auto files = files_of(options.paths);
    if (files.empty())
      throw std::runtime_error("usage: fuzz_NAME_replay [--mutations N] [--seed S] <file or folder> ...");
    std::cout << "seed " << options.seed << ", " << files.size() << " files" << std::endl;
    Mutator mutator(options.seed);
    std::uint64_t inputs = 0;
    for (const auto& file : files) {
      const Input original = read(file);
      feed(original, file);
      ++inputs;
      if (original.size() > kLargestMutatedBytes) continue;
      for (std::uint64_t i = 0; i < options.mutations; ++i, ++inputs) feed(mutator.mutate(original), file);
    }
    std::cout << inputs << " inputs, no failure\n";
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "fuzz replay: " << error.what() << '\n';
    return 1;
  }
}
