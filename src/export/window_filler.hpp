// Fills windows of files to be written with tensors that are read, or coded from moments that are read.
//
// A window's codes are made from just the moments that they need, which are read in batches of bounded size. Where the
// scales of a codec span a whole tensor (paddle-o1), all moments are read once before, for the scales alone; those of
// paddle-o2 are found again for each of its three scale tensors.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "checkpoint/tensor_reader.hpp"
#include "codes/coding_errors.hpp"
#include "comm/communicator.hpp"
#include "export/coded_catalog.hpp"
#include "export/coding_items.hpp"
#include "export/window_regions.hpp"
#include "io/exchange.hpp"
#include "plan/file_layout.hpp"

namespace cairn::checkpoint {

/// Of moments in memory at a time: an eighth of the budget.
std::uint64_t batch_bytes(const Options& options);

class WindowFiller {
 public:
  struct Work {
    const plan::FileLayout& layout;  ///< of the tensors of content.catalog
    const CodedCatalog& content;
    TensorReader& reader;                      ///< of the source, whose numbers `content` has
    std::uint64_t batch_bytes;                 ///< of moments in memory at a time
    Measuring measuring = Measuring::kSample;  ///< of what is coded
  };
  /// Collective: reads the moments whose scales span whole tensors. What `work` refers to must outlive the object.
  WindowFiller(comm::Communicator& communicator, const Work& work);

  /// Collective: loads and codes what the window holds (a rank may have none). Returns the bytes of tensors in it.
  std::uint64_t fill(const io::WindowBuffer& window);

  /// Of this rank's windows so far, by the number of the pair; filled when asked for.
  [[nodiscard]] const ErrorsByTensor& errors() const { return errors_; }

 private:
  void find_scales();
  /// A part that has scales of whole tensors, which are known.
  [[nodiscard]] bool is_whole_scale(const TensorOrigin& origin) const;
  void copy_scales(const WindowRegion& region, const TensorOrigin& origin) const;
  void run(std::vector<CodingItem>& items);
  void code(const CodingItem& item, const quant::ConstMoments& moments);

  comm::Communicator& communicator_;
  Work work_;
  WindowIndex index_;
  std::vector<std::uint32_t> numbers_;                 ///< in the catalog, of each tensor of the layout
  std::map<std::uint32_t, quant::Statistics> scales_;  ///< by pair, of whole tensors
  ErrorsByTensor errors_;
};

}  // namespace cairn::checkpoint
