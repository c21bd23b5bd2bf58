#include "checkpoint/extras.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/bytes.hpp"
#include "base/hints.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "checkpoint/load.hpp"
#include "comm/agree.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"
#include "plan/catalog.hpp"
#include "planning/describe.hpp"
#include "root/root.hpp"
#include "shard/box_math.hpp"

namespace cairn::checkpoint {
namespace {

std::string shown(const opening::OpenCheckpoint& opened) { return os::shown(opened.directory); }

/// The end of a message about a file that the checkpoint does not carry.
std::string words_of_carried(const opening::OpenCheckpoint& opened) {
  return opened.carried.empty() ? "; it carries none" : "; it carries " + base::quoted_names(opened.carried);
}

std::vector<std::uint32_t> blob_tensors(const opening::OpenCheckpoint& opened) {
  const plan::StoredTensors& tensors = opened.stored.tensors;
  std::vector<std::uint32_t> numbers;
  for (int rank = 0;; ++rank) {
    const auto number = tensors.catalog().find(format::kRankSection, planning::rank_blob_name(rank));
    if (!number) return numbers;
    const format::StoredTensor tensor = tensors[*number];
    if (tensor.dtype != DType::kU8 || tensor.shape.size() != 1) return numbers;
    numbers.push_back(*number);
  }
}

/// Makes room for a blob; returns its box.
plan::MemoryBox want_blob(const opening::OpenCheckpoint& opened, std::uint32_t number, std::vector<std::byte>& blob) {
  const auto& shape = opened.stored.tensors[number].shape;
  blob.resize(shape.at(0));
  return {number, shard::whole(shape), blob};
}

const char* kind_text(BlobMapping::Kind kind) {
  switch (kind) {
    case BlobMapping::Kind::kSameRanks: return "none";
    case BlobMapping::Kind::kByRank: return "by_rank";
    case BlobMapping::Kind::kRank0: return "all_to_rank_0";
    case BlobMapping::Kind::kChosen: return "chosen";
  }
  return "";
}

/// The saving ranks whose blobs `rank`, one of `ranks` loading ranks, gets. `saving_ranks`: number of saving ranks.
std::vector<std::uint64_t> saving_ranks_for(const BlobMapping& mapping, std::uint64_t rank, std::uint64_t ranks,
                                            std::uint64_t saving_ranks, const std::string& where) {
  std::vector<std::uint64_t> wanted;
  switch (mapping.kind()) {
    case BlobMapping::Kind::kSameRanks:
      if (saving_ranks != ranks) {
        throw Error(ErrorKind::kState,
                    fmt::format("'{}' has the blobs of {} (Extras::rank_blob), and {} load it: say who gets which, by "
                                "load_extras(step, mapping) with BlobMapping::by_rank(), all_to_rank_0() or chosen()",
                                where, base::counted(saving_ranks, "rank"), base::counted(ranks, "rank")));
      }
      return {rank};
    case BlobMapping::Kind::kByRank:
      if (rank < saving_ranks) wanted = {rank};
      return wanted;
    case BlobMapping::Kind::kRank0:
      if (rank != 0) return wanted;
      wanted.resize(saving_ranks);
      std::iota(wanted.begin(), wanted.end(), std::uint64_t{0});
      return wanted;
    case BlobMapping::Kind::kChosen:
      if (!mapping.choose()) throw Error(ErrorKind::kUsage, "BlobMapping::chosen() was given an empty function");
      return mapping.choose()(saving_ranks);
  }
  return wanted;
}

Error did_not_save(const std::string& where, std::uint64_t saving_ranks, std::uint64_t rank) {
  return {ErrorKind::kState,
          fmt::format("'{}' was saved by {}, and none of them was rank {}: its blobs are those of ranks 0 to {}; "
                      "BlobMapping (load_extras) says how another number of ranks gets them",
                      where, base::counted(saving_ranks, "rank"), rank, saving_ranks - 1)};
}

}  // namespace

std::vector<std::uint32_t> rank_blobs(const opening::OpenCheckpoint& opened) {
  const std::uint64_t named = opened.manifest ? opened.manifest->rank_blobs : 0;
  const bool is_said = named != 0 || (opened.manifest && !opened.manifest->form.empty());  // old manifests name neither
  if (is_said && named == 0) return {};  // a program's own tensors may be named like blobs
  std::vector<std::uint32_t> numbers = blob_tensors(opened);
  if (!is_said || named == numbers.size()) return numbers;
  throw Error(ErrorKind::kFormat,
              fmt::format("'{}': {} names the blobs of {}, but there are those of {}", shown(opened),
                          format::kManifestFile, base::counted(named, "rank"), base::counted(numbers.size(), "rank")),
              {0, (opened.directory / format::kManifestFile).native()});
}

void agree_on_mapping(comm::Communicator& communicator, const BlobMapping& mapping) {
  comm::agree_on_values(communicator, "argument", [&](std::vector<comm::NamedValue>& values) {
    values.push_back({"mapping", kind_text(mapping.kind())});
  });
}

Checkpointer::LoadedExtras read_extras(comm::Communicator& communicator, const opening::OpenCheckpoint& opened,
                                       const BlobMapping& mapping, const ReadOptions& options,
                                       io::WindowStore& windows) {
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
      extras.metrics = opened.manifest->metrics;
      extras.layout = opened.manifest->layout;
      extras.ranks = opened.manifest->ranks;
    } else {
      extras.metadata = opened.about.values;
      extras.layout = opened.about.parallel;
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) extras.carried[opened.carried[i]] = sizes[i];
    const std::vector<std::uint32_t> blobs = rank_blobs(opened);
    extras.rank_blobs = blobs.size();
    if (blobs.empty()) return;
    const bool is_by_rank =
        mapping.kind() == BlobMapping::Kind::kSameRanks || mapping.kind() == BlobMapping::Kind::kByRank;
    for (const std::uint64_t rank :
         saving_ranks_for(mapping, static_cast<std::uint64_t>(communicator.rank()),
                          static_cast<std::uint64_t>(communicator.size()), blobs.size(), shown(opened))) {
      if (rank >= blobs.size()) throw did_not_save(shown(opened), blobs.size(), rank);
      if (is_by_rank) {
        wanted.push_back(want_blob(opened, blobs[rank], extras.rank_blob));
      } else if (const auto [at, is_new] = extras.blobs.try_emplace(rank); is_new) {
        wanted.push_back(want_blob(opened, blobs[rank], at->second));
      }
    }
  });
  Loader(communicator, opened, nullptr, options, &windows).load(wanted);
  return extras;
}

std::vector<std::byte> read_rank_blob(comm::Communicator& communicator, const opening::OpenCheckpoint& opened,
                                      std::optional<std::uint64_t> saving_rank, const ReadOptions& options,
                                      io::WindowStore& windows) {
  std::vector<std::byte> blob;
  std::vector<plan::MemoryBox> wanted;
  comm::agree(communicator, "find the blob of a rank", [&] {
    if (!saving_rank) return;
    const std::vector<std::uint32_t> blobs = rank_blobs(opened);
    if (blobs.empty()) {
      throw Error(ErrorKind::kNotFound,
                  fmt::format("'{}' has no blobs of ranks (Extras::rank_blob): none had one when "
                              "it was saved",
                              shown(opened)),
                  {0, {}, -1, Missing::kRankBlob});
    }
    if (*saving_rank >= blobs.size()) throw did_not_save(shown(opened), blobs.size(), *saving_rank);
    wanted.push_back(want_blob(opened, blobs[*saving_rank], blob));
  });
  Loader(communicator, opened, nullptr, options, &windows).load(wanted);
  return blob;
}

std::optional<opening::PiecewiseFile> open_carried(comm::Communicator& communicator,
                                                   const opening::OpenCheckpoint& opened, const std::string& name) {
  std::optional<opening::PiecewiseFile> file;
  comm::agree_on_root(communicator, "open a carried file", 0, [&] {
    if (!std::ranges::binary_search(opened.carried, name)) {
      throw Error(ErrorKind::kNotFound,
                  fmt::format("'{}' carries no file '{}'{}", base::printable(opened.directory.string()),
                              base::printable(name), words_of_carried(opened)),
                  {0, {}, -1, Missing::kCarriedFile});
    }
    file.emplace(opened, name);
  });
  // The open file belongs to `opened` if the manifest is still the same now; later changes do not matter.
  if (opened.manifest && opening::is_manifest_changed(communicator, opened.directory, opened.manifest_crc32c)) {
    comm::agree(communicator, "open a carried file", [&] {
      throw Error(ErrorKind::kIo, fmt::format("'{}' was replaced while it was opened", os::shown(opened.directory)));
    });
  }
  return file;
}

void give_carried(comm::Communicator& communicator, std::optional<opening::PiecewiseFile> file,
                  const CarriedSink& sink) {
  std::array<std::uint64_t, 1> size = {file ? file->size_bytes() : 0};
  communicator.broadcast(std::as_writable_bytes(std::span(size)), 0);
  const bool is_root = communicator.rank() == 0;
  const bool is_shared = communicator.max(!is_root && sink ? 1 : 0) != 0;
  base::Bytes buffer;  // on ranks other than 0
  comm::agree(communicator, "make room for a carried file", [&] {
    if (is_shared && !is_root) buffer.resize(std::min(size[0], opening::PiecewiseFile::kPieceBytes));
  });
  for (std::uint64_t at = 0; at < size[0]; at += opening::PiecewiseFile::kPieceBytes) {
    const std::uint64_t bytes = std::min(opening::PiecewiseFile::kPieceBytes, size[0] - at);
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
