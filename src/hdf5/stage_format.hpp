// Names of sections and tensors as names of HDF5 links. Pure.
//
// HDF5 accepts any name except ".", which is the group itself, and names with '/', which separates groups, or NUL.
// These characters, the end of a line (the index has a name per line) and '%' become %XX; the attribute `name` has the
// true name.
#pragma once

#include <string>
#include <string_view>

namespace cairn::hdf5 {

/// The group at the top of a staging file for everything but tensors.
inline constexpr const char* kOwnGroup = "cairn";

/// "optimizer/step" becomes "optimizer%2Fstep", "" becomes "%". Different names have different link names.
std::string link_name(std::string_view name);

/// As link_name(); the section "cairn" becomes "%63airn", since Cairn's own group has that name.
std::string section_link_name(std::string_view section);

}  // namespace cairn::hdf5
