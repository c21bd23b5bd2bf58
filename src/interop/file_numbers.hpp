// The numbers of a set's files ("model-00002-of-00004.safetensors"): which there should be, and how the missing ones
// are called. One rule for all dialects.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>

namespace cairn::interop {

/// The numbers that the files of a set should have: `first` to `last`.
struct NumberRange {
  std::uint64_t first = 1;
  std::uint64_t last = 0;
};
/// The range of a set of "-of-<count>" files with the numbers `there`: 1 to `count`; with a file 0, 0 to `count` - 1,
/// or to `count` if that file exists, too. Programs number their files in all three ways.
NumberRange expected_numbers(std::uint64_t count, const std::set<std::uint64_t>& there);
/// The smallest number of the range that is not in `there`; `last` + 1 if all are.
std::uint64_t first_missing_number(const NumberRange& range, const std::set<std::uint64_t>& there);
/// The name of the file of a set that has that number, as the files that are there are called. `files`: numbered names
/// of data files of the set, at least one.
std::string name_of_number(std::uint64_t number, std::span<const std::string> files);
/// "; so are numbers 3, 5" for the missing numbers of the range above `from`, which is the first one; "" if there are
/// no more. All numbers in `there` must be in the range.
std::string other_missing_numbers(std::uint64_t from, const NumberRange& range, const std::set<std::uint64_t>& there);

}  // namespace cairn::interop
