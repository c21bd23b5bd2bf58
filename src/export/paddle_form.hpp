// What a conversion writes for PaddlePaddle's trainers (interop/paddle/written.hpp): which tensors, under which names, in
// which order of their dimensions, and the indexes and small files that their loaders ask for. Pure, but for reading
// small files of the source.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "codes/view.hpp"
#include "directory/open.hpp"
#include "export/coded_catalog.hpp"
#include "interop/paddle/written.hpp"
#include "plan/catalog.hpp"
#include "plan/file_layout.hpp"

namespace cairn::checkpoint {

/// A tensor to be written, and the one of the source that it is, maybe transposed.
struct PaddleTensors {
  plan::Catalog catalog;
  std::vector<std::uint32_t> sources;  ///< of each tensor of the catalog: number in the source's
  std::vector<bool> transposed;
};

class PaddleForm {
 public:
  /// Rank-local. `cards`: processes that are to resume, 0 where nobody knows. Throws Error(kUsage) for a `quant` that
  /// Paddle cannot read.
  PaddleForm(const interop::PaddlePackage& package, const OpenCheckpoint& source, std::uint64_t cards,
             const std::string& quant);

  /// Whether codes can stay as they are; adds to `notes` when they must be decoded although they were to be kept.
  [[nodiscard]] bool keeps_codes(std::vector<std::string>& notes) const;

  /// The tensors of a view of the source. Throws Error(kUsage), one line that says what its loader would not find, for
  /// a state that it cannot resume from.
  PaddleTensors tensors_of(const plan::Catalog& view, std::vector<std::string>& notes);

  /// `content` is made of tensors_of(), with codes if it is to have them: gives tensors their dtypes in files, and finds
  /// what the indexes will say of all of them.
  void finish(CodedCatalog& content);

  /// How files are laid out; `max_bytes` is one's limit.
  [[nodiscard]] plan::LayoutOptions layout_options(std::uint64_t max_bytes, std::uint64_t align_bytes) const;

  /// File name -> text: the indexes of the files, and small files that its loader wants and `carried` lacks.
  std::map<std::string, std::string> small_files(const plan::FileLayout& layout,
                                                 const std::vector<std::string>& carried,
                                                 std::vector<std::string>& notes) const;

  /// What the manifest of the result keeps for the next conversion. Requires: finish() was called.
  [[nodiscard]] std::string state_text() const;

 private:
  struct Orders {
    bool model_out_in = false;
    bool state_out_in = false;
  };
  [[nodiscard]] Orders orders_of(const plan::Catalog& view) const;
  [[nodiscard]] std::string name_of(const std::string& name) const;
  void add_tied(PaddleTensors& out, std::vector<std::string>& notes) const;
  void check_loadable(const plan::Catalog& written) const;
  [[nodiscard]] const std::string* value(const char* key) const;
  [[nodiscard]] std::optional<std::uint64_t> step() const;
  [[nodiscard]] std::optional<std::string> scheduler_text() const;

  const interop::PaddlePackage& package_;
  const OpenCheckpoint& source_;
  std::uint64_t cards_;
  std::string quant_;
  base::Json config_;  ///< of config.json, or null
  bool has_paddle_state_ = false;
  interop::PaddleState found_;
  interop::PaddleState written_;
  bool has_masters_ = false;
};

}  // namespace cairn::checkpoint
