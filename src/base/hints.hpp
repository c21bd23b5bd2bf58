// Hints for a message about a name that does not exist: the names that exist, and the nearest of them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace cairn::base {

/// "'a', 'b' and 'c'", "'a', 'b' and 5 more": at most `most` names, printable.
std::string quoted_names(std::span<const std::string> names, std::size_t most = 8);

/// The number of bytes to insert, remove or change to make one string of the other; `most` + 1 if there are more. The
/// time is at most the length of the strings times `most`.
std::size_t edits_between(std::string_view a, std::string_view b, std::size_t most);

/// Among names that are given one by one, the name that a user may have meant: with the fewest edits, at most a third
/// of the wanted name and 8; or with the same end, after a dot ("wte.weight" for "model.wte.weight").
class NearestName {
 public:
  /// `wanted` must outlive the object.
  explicit NearestName(std::string_view wanted);
  void consider(std::string_view name);
  /// The nearest name, the first of several; empty if no name is near.
  [[nodiscard]] const std::string& found() const { return found_; }

 private:
  std::string_view wanted_;
  std::size_t most_;  ///< edits that are still better than those of `found_`
  std::string found_;
};

}  // namespace cairn::base
