#include "interop/huggingface/hugging_face.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "interop/codings.hpp"
#include "interop/data_set.hpp"
#include "interop/rank_slices.hpp"
#include "interop/sharding_info.hpp"
#include "interop/state_beside.hpp"

namespace cairn::interop {
namespace {

/// Some makers publish their weights twice: for transformers, and as "consolidated" under their own tensor names.
void warn_of_second_copy(Reading& reading) {
  if (!reading.directory().manifest.empty() || !reading.sets().contains("model")) return;
  for (const auto& [name, set] : reading.sets()) {
    if (name != "consolidated" && !name.starts_with("consolidated.")) continue;
    reading.warn("the set " + in_quotes(name) +
                 " is usually a second copy of 'model' under its maker's tensor names: both are taken");
  }
}

/// A set of another name is the model if it is the only one.
void warn_of_assumed_model(Reading& reading) {
  if (reading.directory().is_of_cairn() || reading.directory().alone) return;
  const DataSets& sets = reading.sets();
  if (sets.size() != 1) return;
  const DataSet& set = sets.begin()->second;
  if (set.section != "model" || set.name.find("model") != std::string::npos) return;
  reading.warn(fmt::format("the files of {} are taken for the model, since there are no others", in_quotes(set.name)));
}

/// Names files without tensors, which a save does not write. Sections of Cairn's own may be empty.
template <class IsEmpty>
void warn_of_empty_files(Reading& reading, const IsEmpty& is_empty) {
  if (reading.directory().is_of_cairn()) return;
  std::vector<std::string> files;
  for (const auto& [file, header] : reading.directory().safetensors) {
    if (is_empty(file)) files.push_back(file);
  }
  if (files.empty()) return;
  reading.warn(fmt::format("{} without a single tensor: {}", base::counted(files.size(), "file is", "files are"),
                           list_some(files)));
}

class HuggingFace final : public Dialect {
 public:
  [[nodiscard]] std::string_view name() const override { return "Hugging Face"; }

  /// Accepts any directory with safetensors files; other dialects take precedence.
  [[nodiscard]] bool recognises(Reading& reading) const override { return !reading.directory().safetensors.empty(); }

  void describe(Reading& reading, Recognised& out) const override {
    read_sets(reading, out, [](const DataSet&) { return IndexRules{}; });
    warn_of_alike_files(reading, [&](const std::string& file) { return summary_of(reading.header(file)).names; });
    warn_of_empty_files(reading, [&](const std::string& file) { return reading.header(file).tensors.empty(); });
  }

  void tell(Reading& reading, About& out) const override {
    warn_of_second_copy(reading);
    warn_of_assumed_model(reading);
    tell_of_trainer(reading, out);
    tell_of_quantised_weights(reading, out);
  }

  [[nodiscard]] std::optional<SectionOfFile> outline(Reading& reading, const FileSummaries& files,
                                                     const IndexSummaries& indexes) const override {
    for (const auto& [file, header] : reading.directory().safetensors) {
      if (has_sharding_info(header) || has_codings(header)) return std::nullopt;
    }
    SectionOfFile section_of_file;
    for (const auto& [name, set] : reading.sets()) {
      refuse_rank_slices(set, reading);
      const auto index = indexes.find(set.index_file);
      const IndexSummary* const summary = index == indexes.end() ? nullptr : &index->second;
      if (!is_as_summarised(set, files, summary, reading)) return std::nullopt;
      for (const std::string& file : set.index_file.empty() ? set.files : set.index.files) {
        if (!section_of_file.emplace(file, set.section).second) return std::nullopt;
      }
    }
    warn_of_alike_files(reading, [&](const std::string& file) { return files.at(file).names; });
    warn_of_empty_files(reading, [&](const std::string& file) { return files.at(file).names.count == 0; });
    return section_of_file;
  }

  [[nodiscard]] std::string_view why_unread(std::string_view file) const override {
    const bool is_torch = file.ends_with(".bin") || file.ends_with(".pt") || file.ends_with(".pth");
    return is_torch ? "pickled torch files (.bin, .pt, .pth) are not read: load them with torch, and save them as "
                      "safetensors"
                    : "";
  }

  [[nodiscard]] std::span<const Form* const> forms() const override {
    static const std::array<const Form*, 1> kForms = {&hugging_face_form()};
    return kForms;
  }
};

}  // namespace

const Dialect& hugging_face_dialect() {
  static const HuggingFace dialect;
  return dialect;
}

}  // namespace cairn::interop
