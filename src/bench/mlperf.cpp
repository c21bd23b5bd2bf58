#include "bench/mlperf.hpp"

#include <fmt/core.h>

#include <array>

#include "base/text.hpp"
#include "cairn/error.hpp"

namespace cairn::bench {
namespace {

constexpr std::uint64_t kGiB = 1ULL << 30;
constexpr double kBytesOfParameter = 14;  // of all sections

struct Set {
  const char* name;
  ModelShape shape;
  int ranks;  // closed division
  int tensor_parallel;
  bool is_sharded;           // ZeRO-3; the others have pipeline stages
  std::uint64_t size_bytes;  // model and optimizer, as its tool counts them
};

// Width 25872 of the 1T model is no multiple of its 192 heads: the nearest that is.
constexpr std::array<Set, 4> kSets = {{
    {"8b", kLlama8B, 8, 1, true, (15 + 90) * kGiB},
    {"70b", kLlama70B, 64, 8, true, (130 + 781) * kGiB},
    {"405b", kLlama405B, 512, 8, false, (755 + 4533) * kGiB},
    {"1t", {128, 25728, 192, 32, 98304, 128256}, 1024, 8, false, (2571 + 15426) * kGiB},
}};

const Set& set_of(const std::string& name) {
  for (const Set& set : kSets) {
    if (name == set.name) return set;
  }
  throw Error(ErrorKind::kUsage,
              fmt::format("--mlperf: '{}' is none of {}", base::printable(name), base::joined(mlperf_names())));
}

}  // namespace

std::vector<std::string> mlperf_names() {
  std::vector<std::string> names;
  for (const Set& set : kSets) names.emplace_back(set.name);
  return names;
}

Workload mlperf_workload(const std::string& name, int ranks, std::optional<std::uint64_t> bytes,
                         const std::vector<std::string>& sections) {
  const Set& set = set_of(name);
  const std::uint64_t per_rank = set.size_bytes / static_cast<std::uint64_t>(set.ranks);
  const double all = static_cast<double>(per_rank) * ranks * bytes_of_parameter(sections) / kBytesOfParameter;
  const std::uint64_t wanted = bytes.value_or(static_cast<std::uint64_t>(all));
  Workload out = scaled_workload("mlperf " + name, set.shape, wanted, sections);
  out.note = fmt::format("MLPerf Storage Llama 3 {} has {} on {} ranks, {} a rank; here {} on {} ranks: {}", name,
                         base::format_size(set.size_bytes), set.ranks, base::format_size(per_rank),
                         base::format_size(out.state.bytes), ranks, out.note);
  return out;
}

std::string mlperf_layout(const std::string& name, int ranks) {
  const Set& set = set_of(name);
  int tensor_parallel = set.tensor_parallel;
  while (ranks % tensor_parallel != 0) tensor_parallel /= 2;
  const int rest = ranks / tensor_parallel;
  if (set.is_sharded) {
    return tensor_parallel == 1 ? fmt::format("fsdp={}", rest) : fmt::format("fsdp={},tp={}", rest, tensor_parallel);
  }
  return fmt::format("tp={},pp={}", tensor_parallel, rest);
}

}  // namespace cairn::bench
