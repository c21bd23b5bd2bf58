// Names of sections and tensors as names of HDF5 links. Pure.
//
// In HDF5 no link can have an empty name or the name "." (the group itself); NUL ends a name, and '/' separates groups.
// So an empty name becomes '%'; the name ".", these characters, '%' and the end of a line (the index has a path per
// line) become %XX. The attribute `name` has the true name.
#pragma once

#include <string>
#include <string_view>

namespace cairn::hdf5 {

/// The top-level group of a staging file for all data except tensors.
inline constexpr const char* kOwnGroup = "cairn";

/// "optimizer/step" becomes "optimizer%2Fstep", "" becomes "%". Different names have different link names.
std::string link_name(std::string_view name);

/// As link_name(); the section "cairn" becomes "%63airn", since Cairn's own group has that name.
std::string section_link_name(std::string_view section);

}  // namespace cairn::hdf5
