#include "checkpoint/targets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/units.hpp"
#include "cairn/error.hpp"
#include "checkpoint/describe.hpp"

namespace cairn::checkpoint {
namespace {

using Numbers = std::map<std::pair<std::string_view, std::string_view>, std::uint32_t>;

Numbers numbers_of(std::span<const ViewTensor> tensors, std::size_t first) {
  Numbers numbers;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    numbers[{tensors[i].section, tensors[i].name}] = static_cast<std::uint32_t>(first + i);
  }
  return numbers;
}

bool is_of_type(const ViewTensor& tensor, const Target& target) {
  return tensor.dtype == target.dtype && std::ranges::equal(tensor.shape, target.shape);
}

/// A part of the target's name and type, else the tensor of the view that has the name, else the part that has it.
std::optional<std::uint32_t> number_of(const View& view, const Numbers& numbers, const Numbers& parts,
                                       const Target& target) {
  const auto at = numbers.find({target.section, target.name});
  const auto part = parts.find({target.section, target.name});
  if (part != parts.end() && (at == numbers.end() || is_of_type(view.at(part->second), target))) return part->second;
  if (at == numbers.end()) return std::nullopt;
  return at->second;
}

}  // namespace

std::map<std::pair<std::string, std::string>, std::uint32_t> tensor_numbers(const OpenCheckpoint& opened) {
  std::map<std::pair<std::string, std::string>, std::uint32_t> numbers;
  for (std::uint32_t i = 0; i < opened.stored.tensors.size(); ++i) {
    numbers[{opened.stored.tensors[i].section, opened.stored.tensors[i].name}] = i;
  }
  return numbers;
}

std::vector<WantedBox> wanted_boxes(const OpenCheckpoint& opened, const View& view, std::span<const Target> targets) {
  const Numbers numbers = numbers_of(view.tensors, 0);
  const Numbers parts = numbers_of(view.parts, view.tensors.size());
  const std::string shown = base::printable(opened.directory.string());
  std::vector<std::uint32_t> number_of_target;
  for (const Target& target : targets) {
    const std::optional<std::uint32_t> number = number_of(view, numbers, parts, target);
    if (!number) {
      throw Error(ErrorKind::kNotFound, fmt::format("'{}' has no tensor '{}' in section {}", shown,
                                                    base::printable(target.name), base::printable(target.section)));
    }
    const ViewTensor& stored = view.at(*number);
    if (!is_of_type(stored, target)) {
      throw Error(ErrorKind::kState,
                  fmt::format("'{}': tensor '{}' (section {}) is {} [{}], wanted is {} [{}]", shown,
                              base::printable(target.name), base::printable(target.section), name_of(stored.dtype),
                              fmt::join(stored.shape, ", "), name_of(target.dtype), fmt::join(target.shape, ", ")));
    }
    number_of_target.push_back(*number);
  }
  std::vector<WantedBox> wanted;
  for (LocalBox& local : local_boxes(targets)) {
    wanted.push_back({number_of_target[local.shard], std::move(local.box), {local.data, local.bytes}});
  }
  return wanted;
}

}  // namespace cairn::checkpoint
