#include "checkpoint/targets.hpp"

#include <fmt/format.h>

#include "base/units.hpp"
#include "cairn/error.hpp"
#include "checkpoint/describe.hpp"

namespace cairn::checkpoint {

std::map<std::pair<std::string, std::string>, std::uint32_t> tensor_numbers(const OpenCheckpoint& opened) {
  std::map<std::pair<std::string, std::string>, std::uint32_t> numbers;
  for (std::uint32_t i = 0; i < opened.stored.tensors.size(); ++i) {
    numbers[{opened.stored.tensors[i].section, opened.stored.tensors[i].name}] = i;
  }
  return numbers;
}

std::vector<WantedBox> wanted_boxes(const OpenCheckpoint& opened, std::span<const Target> targets) {
  const auto numbers = tensor_numbers(opened);
  const std::string shown = base::printable(opened.directory.string());
  std::vector<std::uint32_t> number_of_target;
  for (const Target& target : targets) {
    const auto at = numbers.find({target.section, target.name});
    if (at == numbers.end()) {
      throw Error(ErrorKind::kNotFound, fmt::format("'{}' has no tensor '{}' in section {}", shown,
                                                    base::printable(target.name), base::printable(target.section)));
    }
    const auto& stored = opened.stored.tensors[at->second];
    if (stored.dtype != target.dtype || stored.shape != target.shape) {
      throw Error(ErrorKind::kState,
                  fmt::format("'{}': tensor '{}' (section {}) is {} [{}], wanted is {} [{}]", shown,
                              base::printable(target.name), base::printable(target.section), name_of(stored.dtype),
                              fmt::join(stored.shape, ", "), name_of(target.dtype), fmt::join(target.shape, ", ")));
    }
    number_of_target.push_back(at->second);
  }
  std::vector<WantedBox> wanted;
  for (LocalBox& local : local_boxes(targets)) {
    wanted.push_back({number_of_target[local.shard], std::move(local.box), {local.data, local.bytes}});
  }
  return wanted;
}

}  // namespace cairn::checkpoint
