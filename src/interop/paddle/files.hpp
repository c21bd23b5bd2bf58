// The files of a save or a conversion that PaddlePaddle's trainers are to resume from (interop/paddle/written.hpp): how they are
// laid out, and what stands beside them. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "cairn/options.hpp"
#include "interop/paddle/written.hpp"
#include "plan/file_layout.hpp"
#include "interop/paddle/check.hpp"

namespace cairn::interop {

/// The package whose form a save writes (FileOptions::form); null: Hugging Face's. Throws Error(kUsage), naming those that
/// there are, for every other word.
const PaddlePackage* package_of_form(std::string_view form);

/// How a save lays out its files, in whatever form.
plan::LayoutOptions layout_of_save(const FileOptions& files);

/// Its indexes have no end yet: paddle_files() gives it. Of `__metadata__` it keeps all but the format.
plan::LayoutOptions paddle_layout(const PaddlePackage& package, const FileOptions& files);

/// Throws Error(kUsage) for codes that the package's loader does not know (`codecs`: section -> codec) and for weights that
/// are left out.
void check_paddle_quantisation(const PaddlePackage& package, const Quantisation& quantisation);

/// What is known besides the tensors.
struct PaddleBeside {
  PaddleState found;                ///< of the state that went on to be this one
  bool lost_codes = false;                   ///< its moments were codes, and are decoded or coded anew
  std::vector<std::string> carried;          ///< files that come along as they are
  base::Json config = base::Json::object();  ///< what config.json holds; an empty object where there is none
  std::optional<std::uint64_t> step;
  std::string scheduler;    ///< JSON of last_epoch and last_lr, or anything else
  std::uint64_t cards = 0;  ///< processes that are to resume; 0: any number but one
};

struct PaddleFiles {
  std::map<std::string, std::string> texts;  ///< by name: indexes, and small files that `carried` lacks
  std::string state;                         ///< what the manifest's metadata keeps of it (kPaddleValue)
  std::vector<std::string> notes;
};

/// `indexes`: of a layout by paddle_layout(). Throws what check_config() throws.
PaddleFiles paddle_files(const PaddlePackage& package, const PaddleFacts& facts,
                         std::map<std::string, std::string> indexes, const PaddleBeside& beside);

}  // namespace cairn::interop
