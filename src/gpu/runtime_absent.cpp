// The runtime's calls in a build without CUDA: there is no device, and any use of one is an error that says so.
#include "cairn/error.hpp"
#include "gpu/runtime.hpp"

namespace cairn::gpu {
namespace {

constexpr const char* kReason = "this build of Cairn has no CUDA";

[[noreturn]] void refuse() {
  throw Error(ErrorKind::kUsage,
              std::string("GPU: ") + kReason + "; build it where nvcc is found, with -DCAIRN_CUDA=ON");
}

}  // namespace

Availability availability() { return {0, kReason}; }
std::string built_with() { return "no CUDA"; }
std::string describe_device(int) { refuse(); }
MemoryPlace place_of(const void*) noexcept { return {}; }
int current_device() { refuse(); }
void set_current_device(int) { refuse(); }

// No handle and no memory exists, so there is nothing to free.
namespace runtime {

std::byte* allocate_device(std::uint64_t) { refuse(); }
void free_device(std::byte*) noexcept {}
std::byte* allocate_pinned(std::uint64_t) { refuse(); }
void free_pinned(std::byte*) noexcept {}
StreamHandle* create_stream() { refuse(); }
void destroy_stream(StreamHandle*) noexcept {}
void synchronise(StreamHandle*) { refuse(); }
EventHandle* create_event() { refuse(); }
void destroy_event(EventHandle*) noexcept {}
void record(EventHandle*, StreamHandle*) { refuse(); }
void wait(StreamHandle*, EventHandle*) { refuse(); }
float elapsed_ms(EventHandle*, EventHandle*) { refuse(); }
void copy(void*, const void*, std::uint64_t, StreamHandle*) { refuse(); }
void copy_rows(const RowCopy&, StreamHandle*) { refuse(); }
void fill(void*, unsigned char, std::uint64_t, StreamHandle*) { refuse(); }

}  // namespace runtime
}  // namespace cairn::gpu
