// Reads boxes of tensors from a staging file: every rank reads the boxes that it wants, as hyperslabs through HDF5.
//
// No byte passes through Cairn's planner, exchange or engines, so a staging file is an independent check of these. Only
// the agreement at the end of each load is collective.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "checkpoint/reader.hpp"
#include "hdf5/stage_file.hpp"

namespace cairn::conversion {

class StageReader final : public checkpoint::TensorReader {
 public:
  /// Arguments as for Loader. Reads in pieces of at most half the memory budget and at most 1 GiB, in phase "read".
  StageReader(comm::Communicator& communicator, const opening::OpenCheckpoint& checkpoint, const codes::View* view,
              checkpoint::ReadOptions options);

 private:
  void begin_stored(checkpoint::Wanted) override {}
  void load_stored(std::span<const plan::MemoryBox> wanted, checkpoint::Call& call) override;
  [[nodiscard]] std::uint64_t piece_bytes(const plan::MemoryBox& want) const;
  template <class Read>
  void fill(const plan::MemoryBox& want, std::uint64_t offset, std::uint64_t bytes, const Read& read);
  void read(const plan::MemoryBox& want, checkpoint::Call& call);
  void scatter(std::span<const std::byte> read, const Box& piece, const plan::MemoryBox& want);
  void read_packed(const plan::MemoryBox& want, checkpoint::Call& call);

  std::uint64_t piece_bytes_;
  base::Bytes with_gaps_;                  ///< a piece of a box with strides, before it is copied to its place
  std::unique_ptr<hdf5::StageFile> file_;  ///< null until this rank wants a box
};

/// Collective. Makes a reader for any kind of checkpoint. The reader must not outlive the first three arguments.
std::unique_ptr<checkpoint::TensorReader> make_reader(comm::Communicator& communicator,
                                                      const opening::OpenCheckpoint& checkpoint,
                                                      const codes::View& view, checkpoint::ReadOptions options);

}  // namespace cairn::conversion
