// The dialects that Cairn reads. A new one is a folder, and a line here.
#include <array>

#include "interop/dcp/dcp.hpp"
#include "interop/dialect.hpp"
#include "interop/huggingface/hugging_face.hpp"
#include "interop/paddle/paddle.hpp"

namespace cairn::interop {

std::span<const Dialect* const> dialects() {
  static const std::array kAll = {
      &dcp_dialect(), &paddle_dialect(),
      &hugging_face_dialect(),  // last: whatever is no other's
  };
  return kAll;
}

}  // namespace cairn::interop
