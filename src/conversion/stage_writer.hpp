// Writes a staging file: one HDF5 file, whole or absent, by all ranks.
//
//   1 commit.begin     make the directory <file>.<nonce>.partial
//   2 stage.skeleton   rank 0 alone writes the metadata through HDF5 to a sparse skeleton there; all learn the offsets
//   3 (data)           every rank writes its extents of the new file: tensors as they come, everything between them
//                      from the skeleton, the file's first bytes last; fsync
//   4 stage.rename     the file gets its name: from here on it is visible
//   5 stage.publish    fsync of the file's directory
//
// HDF5 is never called by two ranks together: in parallel HDF5 1.10 a write that fails on one rank leaves the others
// waiting forever. A failure before step 4 leaves the file's name as it was: free, or with the older file.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/call.hpp"
#include "checkpoint/engine_choice.hpp"
#include "checkpoint/file_writer.hpp"
#include "hdf5/stage_file.hpp"
#include "io/window_pool.hpp"
#include "plan/catalog.hpp"
#include "plan/extents.hpp"
#include "plan/file_layout.hpp"
#include "plan/runs.hpp"
#include "root/commit.hpp"

namespace cairn::conversion {

class StageWriter {
 public:
  /// Collective, steps 1 and 2. `content` is needed on rank 0; its tensors come from `catalog`. `call` must outlive the
  /// object. Throws kUsage if the file exists and the options do not allow overwriting it, or if it is a directory.
  StageWriter(comm::Communicator& communicator, const std::filesystem::path& file, const plan::Catalog& catalog,
              hdf5::StageContent content, const Options& options, checkpoint::Call& call);
  ~StageWriter();
  StageWriter(const StageWriter&) = delete;
  StageWriter& operator=(const StageWriter&) = delete;

  /// The layout for write()'s `fill`: one file, its extents, and this rank's windows of them, one for each round.
  [[nodiscard]] const plan::FileLayout& layout() const { return layout_; }
  [[nodiscard]] const plan::ExtentMap& extents() const { return *extents_; }
  [[nodiscard]] std::span<const plan::Window> windows() const { return windows_; }
  [[nodiscard]] const checkpoint::MemorySplit& budget() const { return budget_; }
  [[nodiscard]] io::WindowPool& pool() { return *pool_; }

  /// Collective, steps 3 to 5, once. `fill` puts the tensors' bytes into each window, and nothing else.
  void write(const checkpoint::FillWindow& fill);

  /// Collective: the report of the call.
  [[nodiscard]] Report report() const;

 private:
  void make_skeleton(const plan::Catalog& catalog, hdf5::StageContent content);
  void find_gaps();
  void read_head();
  std::uint64_t fill_gaps(const io::WindowBuffer& window) const;
  void write_data(const checkpoint::FillWindow& fill);
  void publish();
  [[nodiscard]] std::filesystem::path skeleton_path() const;

  comm::Communicator& communicator_;
  std::filesystem::path file_;
  Options options_;
  checkpoint::Call& call_;
  checkpoint::EngineChoice engine_;
  std::optional<root::Commit> commit_;  ///< makes and removes the partial directory
  plan::FileLayout layout_;
  std::unique_ptr<plan::ExtentMap> extents_;
  checkpoint::MemorySplit budget_;
  std::vector<plan::Window> windows_;
  std::unique_ptr<io::WindowPool> pool_;
  std::string warning_;                ///< warning from reading back
  std::vector<plan::FileRange> gaps_;  ///< ranges of the file without tensors, ascending
};

}  // namespace cairn::conversion
