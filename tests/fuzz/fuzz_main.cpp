// libFuzzer for the parsers: fuzz_format covers the format layer (safetensors, index, manifest, block table),
// fuzz_pickle pickles, fuzz_shard layouts, configurations and names, fuzz_directory whole directories of other systems.
//
//   CXX=clang++ cmake -G Ninja -S . -B build/fuzz -DCAIRN_FUZZ=ON
//   ninja -C build/fuzz fuzz_format fuzz_pickle fuzz_shard fuzz_directory
//   build/fuzz/bin/fuzz_format -max_total_time=60
//
// Starts from the small files among its seeds, a word list, and any given corpus folders. A crash leaves crash-<hash>.
// `fuzz_format crash-<hash>` runs it again, and so does `fuzz_format_replay crash-<hash>` of an ordinary build.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz_entry.hpp"

namespace {

constexpr std::uintmax_t kLargestSeedBytes = 4096;

/// "-seed_inputs=a,b,c" of the small files in the folders of seeds.
std::string seed_argument() {
  std::string out = "-seed_inputs=";
  for (const char* folder : {CAIRN_FUZZ_SEEDS}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (!entry.is_regular_file() || entry.file_size() > kLargestSeedBytes || entry.file_size() == 0) continue;
      if (out.back() != '=') out += ',';
      out += entry.path().string();
    }
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  static std::vector<std::string> own;
  static std::vector<char*> all(*argv, *argv + *argc);
  const auto given = [&](std::string_view start) {
    return std::any_of(all.begin() + 1, all.end(),
                       [&](const char* arg) { return std::string_view(arg).starts_with(start); });
  };
  const bool runs_one_file =
      std::any_of(all.begin() + 1, all.end(), [](const char* arg) { return std::filesystem::is_regular_file(arg); });
  if (!runs_one_file) {
    if (!given("-seed_inputs=")) own.push_back(seed_argument());
    if (!given("-dict=")) own.emplace_back("-dict=" CAIRN_FUZZ_DICTIONARY);
    // An input that takes a minute is a hang; an allocation of over 128 MB is too large for an input of 6 kB.
    if (!given("-timeout=")) own.emplace_back("-timeout=60");
    if (!given("-malloc_limit_mb=")) own.emplace_back("-malloc_limit_mb=128");
    // Room for the largest text seeds to grow: longer inputs cost speed and find nothing more.
    if (!given("-max_len=")) own.emplace_back("-max_len=" CAIRN_FUZZ_MAX_LEN);
  }
  for (std::string& argument : own) all.push_back(argument.data());
  *argc = static_cast<int>(all.size());
  all.push_back(nullptr);
  *argv = all.data();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  cairn::fuzz::feed_all_parsers({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
