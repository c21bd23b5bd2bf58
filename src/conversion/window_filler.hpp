// Fills windows of files to be written with tensors that are read, or with codes of moments that are read.
//
// The needs of all windows are known before the first is filled, so the reader plans once for all of them.
// A window's codes are made from just the moments that they need, which are read in batches of bounded size.
// For codecs whose scales span whole columns, all moments are read once beforehand, only for the scales. If scales span
// a few rows, moments are read and measured again for each of the three scale tensors.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "checkpoint/reader.hpp"
#include "codes/piece_coder.hpp"
#include "comm/communicator.hpp"
#include "conversion/coded_catalog.hpp"
#include "conversion/window_ranges.hpp"
#include "io/exchange.hpp"
#include "plan/extents.hpp"
#include "plan/file_layout.hpp"

namespace cairn::conversion {

/// The bytes of moments in memory at a time: an eighth of the budget, but at least 8 KiB.
std::uint64_t batch_bytes(const Options& options);

class WindowFiller {
 public:
  struct Work {
    const plan::FileLayout& layout;  ///< layout of the tensors of content.catalog
    const CodedCatalog& content;
    checkpoint::TensorReader& reader;                        ///< reader of the source, whose numbers are in `content`
    std::span<const plan::Window> windows;                   ///< windows of this rank, in the order in which they are
                                                             ///< filled
    std::uint64_t batch_bytes;                               ///< bytes of moments in memory at a time
    codes::Measuring measuring = codes::Measuring::kSample;  ///< the way to measure the errors of the codes
  };
  /// Collective: reads the moments whose scales span whole columns. References in `work` must outlive the object,
  /// which must outlive the reader's loads.
  WindowFiller(comm::Communicator& communicator, const Work& work);
  WindowFiller(const WindowFiller&) = delete;
  WindowFiller& operator=(const WindowFiller&) = delete;

  /// Collective, once for each round: loads and codes the contents of this rank's next window, if there is one. Returns
  /// the bytes of tensors in the window.
  std::uint64_t fill(const io::WindowBuffer& window);

  /// The errors in this rank's windows so far, by number of the pair, as far as Work::measuring asks for them.
  [[nodiscard]] const codes::ErrorsByTensor& errors() const { return errors_; }

 private:
  /// The contents of a window and the batches in which they are loaded; the first batch has all uncoded tensors.
  struct Content {
    std::vector<TensorRange> ranges;
    std::vector<CodingItem> items;  ///< items without bytes are only measured
    std::vector<std::size_t> ends;  ///< for each batch, the end of its items
  };
  struct BatchMemory;
  [[nodiscard]] std::vector<CodingItem> scale_items() const;
  [[nodiscard]] Content content_of(std::uint64_t step) const;
  void cut_batches(Content& content) const;
  [[nodiscard]] const TensorOrigin& origin_of(const TensorRange& range) const;
  [[nodiscard]] std::vector<plan::MemoryBox> boxes_of(const Content& content, std::uint64_t batch,
                                                      BatchMemory* memory) const;
  [[nodiscard]] std::vector<plan::MemoryBox> boxes_of(std::uint64_t batch);
  void find_scales();
  /// Whether a part holds scales that step 0 measured, because they span whole columns.
  [[nodiscard]] bool is_whole_scale(const TensorOrigin& origin) const;
  void copy_scales(const TensorRange& range, const TensorOrigin& origin, std::span<std::byte> window) const;
  void run_step(const Content& content, std::span<std::byte> window);
  void code(const CodingItem& item, const quant::ConstMoments& moments, std::span<std::byte> window);

  comm::Communicator& communicator_;
  Work work_;
  LayoutIndex index_;
  std::vector<std::uint32_t> numbers_;                 ///< for each tensor of the layout, its number in the catalog
  std::map<std::uint32_t, quant::Statistics> scales_;  ///< statistics of whole tensors, by pair
  codes::ErrorsByTensor errors_;

  // Step 0 measures scales; step r + 1 fills the windows of round r. Each step has some of the reader's batches.
  std::vector<std::uint64_t> first_batches_;  ///< the first batch of each step; at the end, the number of batches
  std::uint64_t next_step_ = 0;
  std::optional<std::pair<std::uint64_t, Content>> planned_;  ///< a step whose boxes the reader will request again
};

}  // namespace cairn::conversion
