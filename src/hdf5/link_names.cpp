#include "hdf5/link_names.hpp"

namespace cairn::hdf5 {

std::string link_name(std::string_view name) {
  if (name.empty()) return "%";
  if (name == ".") return "%2E";
  std::string link;
  for (const char c : name) {
    switch (c) {
      case '/': link += "%2F"; break;
      case '\n': link += "%0A"; break;
      case '%': link += "%25"; break;
      case '\0': link += "%00"; break;
      default: link += c;
    }
  }
  return link;
}

std::string section_link_name(std::string_view section) {
  return section == kOwnGroup ? "%63airn" : link_name(section);
}

}  // namespace cairn::hdf5
