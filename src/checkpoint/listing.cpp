#include "checkpoint/listing.hpp"

#include <algorithm>

#include "base/bytes.hpp"
#include "checkpoint/extras.hpp"
#include "comm/agree.hpp"
#include "root/root.hpp"
#include "shard/name_pattern.hpp"

namespace cairn::checkpoint {
namespace {

base::Bytes encode(const std::vector<root::RootEntry>& entries) {
  base::ByteWriter out;
  for (const root::RootEntry& entry : entries) {
    out.u64(entry.step);
    out.text(entry.directory.native());
    out.u64(entry.is_complete() ? 1 : 0);
    out.u64(entry.is_void ? 1 : 0);
    out.text(entry.problem);
    out.text(entry.part ? format::words_of(*entry.part) : "");
    out.u64(entry.bytes);
    out.u64(entry.files);
  }
  return out.take();
}

std::vector<StepInfo> decode(std::span<const std::byte> bytes) {
  std::vector<StepInfo> steps;
  for (base::ByteReader in(bytes); !in.done();) {
    StepInfo& step = steps.emplace_back();
    step.step = in.u64();
    step.directory = in.text();
    step.complete = in.u64() != 0;
    step.is_void = in.u64() != 0;
    step.problem = in.text();
    step.part = in.text();
    step.bytes = in.u64();
    step.files = in.u64();
  }
  return steps;
}

}  // namespace

std::vector<StepInfo> list_steps(comm::Communicator& communicator, const std::filesystem::path& root) {
  base::Bytes bytes;
  comm::agree_on_root(communicator, "list the checkpoints", 0, [&] {
    std::vector<root::RootEntry> entries = root::list_root(root);
    std::ranges::stable_sort(entries, {},
                             &root::RootEntry::step);  // partial entries of a step stay after its checkpoint
    bytes = encode(entries);
  });
  communicator.share(bytes, 0);
  std::vector<StepInfo> steps;
  comm::agree(communicator, "list the checkpoints", [&] { steps = decode(bytes); });
  return steps;
}

std::vector<TensorInfo> list_tensors(const opening::OpenCheckpoint& opened, const codes::View& view,
                                     const Selection& selection) {
  const shard::Selector selector(selection);
  const std::vector<std::uint32_t> blobs = rank_blobs(opened);
  std::vector<TensorInfo> tensors;
  codes::ViewCursor cursor(opened, view);
  for (std::uint32_t i = 0; i < cursor.size(); ++i) {
    const codes::ViewTensor seen = cursor.at(i);
    if (!selector.selects(seen.section, seen.name)) continue;
    const bool is_stored = seen.origin == codes::Origin::kStored;
    if (is_stored && std::ranges::binary_search(blobs, seen.source)) continue;
    TensorInfo& info = tensors.emplace_back();
    info.name = seen.name;
    info.dtype = seen.dtype;
    info.shape.assign(seen.shape.begin(), seen.shape.end());
    info.section = seen.section;
    const bool is_moment = seen.origin == codes::Origin::kFirstMoment || seen.origin == codes::Origin::kSecondMoment;
    if (is_moment) info.codec = view.pairs.at(seen.source).moments->codec;
  }
  return tensors;
}

}  // namespace cairn::checkpoint
