#include "codes/wanted_box.hpp"

#include <fmt/core.h>

#include "base/units.hpp"
#include "cairn/error.hpp"
#include "shard/box_math.hpp"

namespace cairn::checkpoint {

void check_wanted(const WantedBox& want, const WantedTensor& tensor) {
  const std::uint64_t bits = shard::elements_of(want.box) * bits_of(tensor.dtype);
  if (shard::fits(want.box, tensor.shape) && bits % 8 == 0 && bits / 8 == want.memory.size()) return;
  throw Error(ErrorKind::kInternal,
              fmt::format("wanted box {} of '{}' and its memory of {} bytes do not match", shard::to_string(want.box),
                          base::printable(tensor.name), want.memory.size()));
}

}  // namespace cairn::checkpoint
