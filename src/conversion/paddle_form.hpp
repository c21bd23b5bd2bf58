// What a conversion makes of its source for PaddlePaddle's trainers (interop/paddle/written.hpp): which tensors, under which
// names, in which order of their dimensions. Their files are those of interop/paddle/files.hpp. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "codes/view.hpp"
#include "conversion/coded_catalog.hpp"
#include "interop/paddle/written.hpp"
#include "opening/open.hpp"
#include "plan/catalog.hpp"
#include "plan/file_layout.hpp"
#include "interop/paddle/files.hpp"

namespace cairn::conversion {

/// A tensor to be written, and the one of the source that it is, maybe transposed.
struct PaddleTensors {
  plan::Catalog catalog;
  std::vector<std::uint32_t> sources;  ///< of each tensor of the catalog: number in the source's
  std::vector<bool> transposed;
};

class PaddleForm {
 public:
  /// Rank-local. `config`: the text of config.json, or empty. `cards`: processes that are to resume, 0 where nobody knows.
  /// Throws Error(kUsage) for a `quant` that Paddle cannot read.
  PaddleForm(const interop::PaddlePackage& package, const opening::OpenCheckpoint& source, const std::string& config,
             std::uint64_t cards, const std::string& quant);

  /// Whether codes can stay as they are; adds to `notes` when they must be decoded although they were to be kept.
  [[nodiscard]] bool keeps_codes(std::vector<std::string>& notes) const;

  /// The tensors of a view of the source. Throws Error(kUsage) when nothing says in which order they are.
  [[nodiscard]] PaddleTensors tensors_of(const plan::Catalog& view, std::vector<std::string>& notes) const;

  /// Its files, `content` being made of tensors_of(), with codes if it is to have them; `files` are options. Throws
  /// Error(kUsage) as check_for_paddle().
  [[nodiscard]] plan::FileLayout lay_out(const CodedCatalog& content, FileOptions files);

  /// What stands beside the files of lay_out(), whose indexes are finished. Throws as paddle_files().
  [[nodiscard]] interop::PaddleFiles files_beside(const CodedCatalog& content, const plan::FileLayout& layout,
                                                   std::vector<std::string> carried) const;

 private:
  struct Orders {
    bool model_out_in = false;
    bool state_out_in = false;
  };
  [[nodiscard]] Orders orders_of(const plan::Catalog& view) const;
  [[nodiscard]] std::string name_of(const std::string& name) const;
  void add_tied(PaddleTensors& out, std::vector<std::string>& notes) const;
  [[nodiscard]] const std::string* value(const char* key) const;
  [[nodiscard]] std::optional<std::uint64_t> step() const;

  const interop::PaddlePackage& package_;
  const opening::OpenCheckpoint& source_;
  std::uint64_t cards_;
  std::string quant_;
  base::Json config_ = base::Json::object();
  bool has_paddle_state_ = false;
  interop::PaddleState found_;
  interop::PaddleFacts facts_;
};

}  // namespace cairn::conversion
