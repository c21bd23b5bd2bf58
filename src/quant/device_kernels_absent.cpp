// A build without CUDA has no kernels. Nothing calls these functions, since there is no device memory to work on.
#include "cairn/error.hpp"
#include "quant/device_kernels.hpp"
#include "quant/own_block.hpp"

namespace cairn::quant {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorKind::kUsage, "GPU: quantisation on a device needs a build of Cairn with CUDA (-DCAIRN_CUDA=ON)");
}

}  // namespace

void own::launch(const Format&, const EncodeJob&, gpu::StreamHandle*) { refuse(); }
void paddle::launch(const MeasureJob&, gpu::StreamHandle*) { refuse(); }
void paddle::launch(Stage, const EncodeJob&, gpu::StreamHandle*) { refuse(); }

}  // namespace cairn::quant
