#include "checkpoint/targets.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/joined.hpp"
#include "base/units.hpp"
#include "cairn/error.hpp"
#include "plan/catalog.hpp"
#include "planning/describe.hpp"

namespace cairn::checkpoint {
namespace {

bool is_of_type(const ViewTensor& tensor, const Target& target) {
  return tensor.dtype == target.dtype && std::ranges::equal(tensor.shape, target.shape);
}

/// A part of the target's name and type, else the tensor of the view that has the name, else the part that has it.
std::optional<std::uint32_t> number_of(const View& view, const plan::NumbersByName& numbers,
                                       const plan::NumbersByName& parts, const Target& target) {
  const auto at = numbers.find({target.section, target.name});
  const auto part = parts.find({target.section, target.name});
  if (part != parts.end() && (at == numbers.end() || is_of_type(view.at(part->second), target))) return part->second;
  if (at == numbers.end()) return std::nullopt;
  return at->second;
}

}  // namespace

std::vector<WantedBox> wanted_boxes(const OpenCheckpoint& opened, const View& view, std::span<const Target> targets,
                                    DeviceMemory& device) {
  const plan::NumbersByName numbers = plan::numbers_by_name(view.tensors);
  plan::NumbersByName parts = plan::numbers_by_name(view.parts);
  for (auto& [key, number] : parts) number += static_cast<std::uint32_t>(view.tensors.size());
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
                              base::joined(stored.shape), name_of(target.dtype), base::joined(target.shape)));
    }
    number_of_target.push_back(*number);
  }
  std::vector<LocalBox> boxes = local_boxes(targets);
  device.stand_in(boxes);
  std::vector<WantedBox> wanted;
  for (LocalBox& local : boxes) {
    wanted.push_back({number_of_target[local.shard], std::move(local.box), {local.data, local.bytes}});
  }
  return wanted;
}

}  // namespace cairn::checkpoint
