// `cairn convert`: rewrites a checkpoint of any dialect, in bounded memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "cairn/options.hpp"
#include "cairn/selection.hpp"
#include "cli/output.hpp"

namespace cairn::cli {

/// The forms that a conversion can write: "hf", "shards" ...
std::vector<std::string> conversion_forms();

struct ConvertCommand {
  std::filesystem::path source;
  std::vector<std::string> parts;  ///< other directories with files of the source
  bool by_rank = false;            ///< each rank reads the files that it can see
  std::filesystem::path destination;
  std::string layout;          ///< empty: none; a short form or "@file.json"
  std::string to = "hf";       ///< one of conversion_forms()
  std::string quant = "keep";  ///< as in conversion::ConvertOptions
  std::string dtype;           ///< "BF16", "F16" or "F32" for weights; empty: as they are
  Selection select;            ///< tensors to convert; empty: all
  bool decode_by_reciprocals = false;
  bool keep_names = false;
  std::uint64_t cards = 0;         ///< as `processes` in conversion::ConvertOptions
  std::vector<std::string> hints;  ///< key=value
  Options write;                   ///< options of the save; engine and memory budget are also for reading
  bool follow_links = false;       ///< follow links that lead out of the source's directory
  bool trust_index = false;        ///< as in cairn::Options
  bool strict = false;             ///< omissions are a failure
  bool json = false;
};

/// Collective. A failed conversion leaves nothing at the destination.
int run_convert(Context& context, const ConvertCommand& command);

}  // namespace cairn::cli
