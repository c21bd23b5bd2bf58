// Opens a directory by all ranks: carries the messages between the steps of open_steps.hpp, and looks at the directory.
//
// Nothing but memory fails here: whatever else is not as it should be on any rank ends the attempt on all, and open_here() then reads the
// directory on rank 0 alone, which words the error, recognises other dialects, and waits for a checkpoint that is being
// replaced. So errors are the same ones in the same order, whatever ranks there are.
#include <algorithm>
#include <new>
#include <utility>

#include "base/bytes.hpp"
#include "comm/agree.hpp"
#include "opening/open_parts.hpp"
#include "opening/open_steps.hpp"
#include "os/file.hpp"
#include "plan/stored_tensors.hpp"
#include "root/root.hpp"

namespace cairn::opening {
namespace {

namespace fs = std::filesystem;

format::SafetensorsHeader read_header_in(const OpenCheckpoint& opened, const std::string& file) {
  return read_header_of(opened.path_of(file), opened.blocks);
}

std::string read_index_in(const OpenCheckpoint& opened, const std::string& index) {
  return read_index_text(opened.path_of(index));
}

class Opening {
 public:
  Opening(comm::Communicator& communicator, Links links)
      : communicator_(communicator), links_(links), share_{communicator.rank(), communicator.size(), {}, {}} {}

  /// Collective.
  std::optional<OpenCheckpoint> open(const Parts& given) {
    base::Bytes bytes;
    base::Bytes blocks;
    const bool is_root = communicator_.rank() == 0;
    if (is_root) attempt([&] { bytes = list(given, blocks); });
    if (!shared(bytes)) return std::nullopt;
    communicator_.share(blocks, 0);
    attempt([&] {
      listing_ = take_announced(bytes, std::move(blocks));
      bytes = read_share(listing_, {read_header_in, read_index_in}, share_);
    });
    if (!all_well()) return std::nullopt;
    const comm::Messages summaries = communicator_.gather(bytes, 0);
    bytes.clear();
    if (is_root) attempt([&] { bytes = judge_directory(summaries); });
    if (!shared(bytes)) return std::nullopt;
    attempt([&] {
      take_judged(bytes, listing_);
      bytes = place(listing_, share_);
    });
    if (!all_well()) return std::nullopt;
    comm::Messages messages = communicator_.all_gather(bytes);
    attempt([&] { messages = spread(share_, messages); });
    if (!all_well()) return std::nullopt;
    messages = communicator_.all_to_all(std::move(messages));
    attempt([&] {
      auto run = plan::merge_runs(messages);
      is_well_ = run.has_value();
      if (run) bytes = std::move(*run);
    });
    if (!all_well()) return std::nullopt;
    messages = communicator_.all_gather(bytes);
    attempt([&] { listing_.opened.stored.tensors = plan::StoredTensors(plan::PackedCatalog(messages)); });
    if (!all_well()) return std::nullopt;
    return std::move(listing_.opened);
  }

 private:
  template <class Work>
  void attempt(const Work& work) {
    try {
      work();
    } catch (const std::bad_alloc&) {
      is_well_ = false;
      is_out_of_memory_ = true;
    } catch (const std::exception&) {
      is_well_ = false;
    }
  }

  /// Collective. Throws as comm::agree() when a rank has run out of memory: rank 0 alone would need more.
  bool all_well() {
    const bool all = communicator_.max(is_well_ ? 0 : 1) == 0;
    if (!all) {
      comm::agree(communicator_, "open the checkpoint", [&] {
        if (is_out_of_memory_) throw std::bad_alloc();
      });
    }
    return all;
  }

  /// Collective: shares what rank 0 has; false on all ranks where it has nothing.
  bool shared(base::Bytes& bytes) {
    if (!is_well_) bytes.clear();
    communicator_.share(bytes, 0);
    if (!bytes.empty()) return true;
    static_cast<void>(all_well());
    return false;
  }

  /// Rank 0: what there is to read, and the block table. No bytes where open_here() must look.
  base::Bytes list(const Parts& given, base::Bytes& blocks) {
    Parts where = given;
    if (where.is_one()) {
      fs::path& path = where.paths.front();
      if (!path.has_filename()) path = path.parent_path();
      if (!fs::is_directory(path)) return {};
    }
    listed_ = list_parts(where, links_, IndexTexts::kLeave);
    if (listed_.data_files.empty()) return {};
    listed_.found.access = access_to(where, links_);
    on_root_.directory = listed_.directory;
    on_root_.part_of = listed_.part_of;
    OpenedTexts texts = read_texts(on_root_.directory);
    manifest_ = texts.manifest.value_or("");
    attach_texts(on_root_, std::move(texts));
    if (on_root_.manifest) interop::take_manifest(listed_.found, *on_root_.manifest);
    if (on_root_.blocks) blocks = on_root_.blocks->bytes();
    return announce(on_root_, listed_.data_files, listed_.indexes);
  }

  /// Rank 0: sections, metadata and warnings, for all. No bytes where open_here() must look.
  base::Bytes judge_directory(const comm::Messages& summaries) {
    auto outline = judge(listing_, listed_.found, summaries);
    if (!outline) return {};
    add_warnings(outline->warnings, listed_);
    on_root_.stored.files = listing_.opened.stored.files;
    if (on_root_.manifest) check_files(on_root_, listing_.digests, links_);
    if (manifest_text(on_root_.directory) != manifest_) return {};  // replaced meanwhile
    on_root_ = {};
    listed_ = {};
    return encode_judged(listing_, *outline);
  }

  comm::Communicator& communicator_;
  Links links_;
  bool is_well_ = true;
  bool is_out_of_memory_ = false;
  Listing listing_;
  HeaderShare share_;
  // On rank 0, until it has judged:
  OpenCheckpoint on_root_;  ///< with the whole manifest
  Listed listed_;
  std::string manifest_;  ///< its text, or empty
};

}  // namespace

std::optional<OpenCheckpoint> open_together(comm::Communicator& communicator, const Parts& where, Links links) {
  return Opening(communicator, links).open(where);
}

}  // namespace cairn::opening
