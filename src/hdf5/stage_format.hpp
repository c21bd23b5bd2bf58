// Names of sections and tensors as names of HDF5 links. Pure.
//
// HDF5 takes any text but '/', which separates groups, a lone ".", which is the group itself, and NUL. Those
// characters, the end of a line (the index has a name per line) and '%' become %XX; the true name stands in the
// attribute `name`.
#pragma once

#include <string>
#include <string_view>

namespace cairn::hdf5 {

/// The group at the top of a staging file that holds what is not a tensor.
inline constexpr const char* kOwnGroup = "cairn";

/// "optimizer/step" is "optimizer%2Fstep"; "" is "%". Different names have different link names.
std::string link_name(std::string_view name);

/// As link_name; the section "cairn" is "%63airn", since the group of that name is Cairn's own.
std::string section_link_name(std::string_view section);

}  // namespace cairn::hdf5
