#include "checkpoint/extras.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/bytes.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "checkpoint/load.hpp"
#include "comm/agree.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"
#include "plan/catalog.hpp"
#include "planning/describe.hpp"
#include "shard/box_math.hpp"

namespace cairn::checkpoint {
namespace {

/// Room for the blob, and the box that fills it; nothing for none.
std::vector<plan::MemoryBox> want_blob(const OpenCheckpoint& opened, std::optional<std::uint32_t> number,
                                       std::vector<std::byte>& blob) {
  if (!number) return {};
  const auto& shape = opened.stored.tensors[*number].shape;
  blob.resize(shape.at(0));
  return {{*number, shard::whole(shape), blob}};
}

}  // namespace

std::vector<std::uint32_t> rank_blobs(const OpenCheckpoint& opened) {
  const plan::StoredTensors& tensors = opened.stored.tensors;
  std::vector<std::uint32_t> numbers;
  for (int rank = 0;; ++rank) {
    const auto number = tensors.catalog().find(kRankSection, rank_blob_name(rank));
    if (!number) return numbers;
    const format::StoredTensor tensor = tensors[*number];
    if (tensor.dtype != DType::kU8 || tensor.shape.size() != 1) return numbers;
    numbers.push_back(*number);
  }
}

Checkpointer::LoadedExtras read_extras(comm::Communicator& communicator, const OpenCheckpoint& opened,
                                       const ReadOptions& options, io::WindowStore& windows) {
  std::vector<std::uint64_t> sizes;
  comm::agree(communicator, "look at the carried files", [&] {
    sizes.resize(opened.carried.size());
    if (communicator.rank() != 0) return;
    std::ranges::transform(opened.carried, sizes.begin(),
                           [&](const std::string& name) { return os::file_size(opened.path_of(name)); });
  });
  communicator.broadcast(std::as_writable_bytes(std::span(sizes)), 0);
  Checkpointer::LoadedExtras extras;
  std::vector<plan::MemoryBox> wanted;
  comm::agree(communicator, "find the extras", [&] {
    os::fault_memory("memory.extras");
    if (opened.manifest) {
      extras.metadata = opened.manifest->user_metadata;
      extras.layout = opened.manifest->layout;
    } else {
      extras.metadata = opened.about.values;
      extras.layout = opened.about.parallel;
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) extras.carried[opened.carried[i]] = sizes[i];
    const std::vector<std::uint32_t> blobs = rank_blobs(opened);
    extras.rank_blobs = blobs.size();
    const auto rank = static_cast<std::size_t>(communicator.rank());
    if (rank < blobs.size()) wanted = want_blob(opened, blobs[rank], extras.rank_blob);
  });
  Loader(communicator, opened, nullptr, options, &windows).load(wanted);
  return extras;
}

std::vector<std::byte> read_rank_blob(comm::Communicator& communicator, const OpenCheckpoint& opened,
                                      std::optional<std::uint64_t> saving_rank, const ReadOptions& options,
                                      io::WindowStore& windows) {
  std::vector<std::byte> blob;
  std::vector<plan::MemoryBox> wanted;
  comm::agree(communicator, "find the blob of a rank", [&] {
    if (!saving_rank) return;
    const std::vector<std::uint32_t> blobs = rank_blobs(opened);
    if (*saving_rank >= blobs.size()) {
      throw Error(ErrorKind::kNotFound, fmt::format("'{}' has the blobs of {}, counted from 0, and none of rank {}",
                                                    base::printable(opened.directory.string()),
                                                    base::counted(blobs.size(), "rank"), *saving_rank));
    }
    wanted = want_blob(opened, blobs[*saving_rank], blob);
  });
  Loader(communicator, opened, nullptr, options, &windows).load(wanted);
  return blob;
}

std::optional<PiecewiseFile> open_carried(comm::Communicator& communicator, const OpenCheckpoint& opened,
                                          const std::string& name) {
  std::optional<PiecewiseFile> file;
  comm::agree_on_root(communicator, "open a carried file", 0, [&] {
    if (!std::ranges::binary_search(opened.carried, name)) {
      throw Error(ErrorKind::kNotFound, fmt::format("'{}' carries no file '{}'",
                                                    base::printable(opened.directory.string()), base::printable(name)));
    }
    file.emplace(opened, name);
  });
  // What was opened is of this checkpoint if that still has its name, whatever happens to the name later.
  if (opened.manifest && is_manifest_changed(communicator, opened.directory, opened.manifest_crc32c)) {
    comm::agree(communicator, "open a carried file", [&] {
      throw Error(ErrorKind::kIo, fmt::format("'{}' was replaced while it was opened",
                                              base::printable(opened.directory.string(), 1000)));
    });
  }
  return file;
}

void give_carried(comm::Communicator& communicator, std::optional<PiecewiseFile> file, const CarriedSink& sink) {
  std::array<std::uint64_t, 1> size = {file ? file->size_bytes() : 0};
  communicator.broadcast(std::as_writable_bytes(std::span(size)), 0);
  const bool is_root = communicator.rank() == 0;
  const bool is_shared = communicator.max(!is_root && sink ? 1 : 0) != 0;
  base::Bytes buffer;  // of the other ranks
  comm::agree(communicator, "make room for a carried file", [&] {
    if (is_shared && !is_root) buffer.resize(std::min(size[0], PiecewiseFile::kPieceBytes));
  });
  for (std::uint64_t at = 0; at < size[0]; at += PiecewiseFile::kPieceBytes) {
    const std::uint64_t bytes = std::min(PiecewiseFile::kPieceBytes, size[0] - at);
    std::span<std::byte> piece = std::span(buffer).first(is_shared && !is_root ? bytes : 0);
    comm::agree_on_root(communicator, "read a carried file", 0, [&] { piece = file->next(); });
    if (is_shared) communicator.broadcast(piece, 0);
    comm::agree(communicator, "sink of a carried file", [&] {
      if (sink) sink(piece);
    });
  }
  comm::agree_on_root(communicator, "read a carried file", 0, [&] { static_cast<void>(file->next()); });
}

}  // namespace cairn::checkpoint
