// MindSpore Transformers: files of single ranks are recognised and refused. Files of whole tensors are read, by their
// names, which Hugging Face's classes do not know.
#include <algorithm>

#include "base/digits.hpp"
#include "interop/dialect.hpp"
#include "interop/rank_slices.hpp"
#include "interop/state_beside.hpp"

namespace cairn::interop {
namespace {

/// "model-0000000-0000004.safetensors": the parts of tensors that rank 0 of 4 holds. With one rank the tensors are
/// whole, but moments and step are in files that are not read.
bool is_part_name(std::string_view file) {
  if (!file.ends_with(kDataSuffix)) return false;
  const std::string_view stem = file.substr(0, file.size() - kDataSuffix.size());
  constexpr std::size_t kTail = 16;  // "-0000000-0000004"
  if (stem.size() < kTail) return false;
  const std::string_view tail = stem.substr(stem.size() - kTail);
  const auto seven = [](std::string_view text) {
    return text.starts_with('-') && base::leading_digits(text.substr(1)) == 7;
  };
  return seven(tail.substr(0, 8)) && seven(tail.substr(8));
}

constexpr std::string_view kFormat = "ms";  // in `__metadata__`
constexpr const char* kMindSporeValue = "mindspore";

/// Whether MindSpore wrote a data file. Cairn's own checkpoints are Hugging Face's, whatever they were made from.
bool is_marked(const Reading& reading) {
  if (reading.directory().is_of_cairn()) return false;
  return std::ranges::any_of(reading.directory().safetensors, [](const auto& file) {
    const auto format = file.second.metadata.find("format");
    return format != file.second.metadata.end() && format->second == kFormat;
  });
}

/// The first file with one rank's parts of tensors; empty if there is none.
std::string first_part(const Reading& reading) {
  for (const auto& [file, header] : reading.directory().safetensors) {
    if (is_part_name(file)) return file;
  }
  return {};
}

class MindSpore final : public Dialect {
 public:
  [[nodiscard]] std::string_view name() const override { return "MindSpore Transformers"; }

  [[nodiscard]] bool recognises(Reading& reading) const override {
    return !first_part(reading).empty() || is_marked(reading);
  }

  void describe(Reading& reading, Recognised& out) const override {
    if (const std::string part = first_part(reading); !part.empty()) {
      throw reading.error(ErrorKind::kFormat, part,
                          "is one rank's file of a MindSpore Transformers checkpoint, which is not read; "
                          "convert it to Hugging Face files there");
    }
    read_sets(reading, out, [](const DataSet&) { return IndexRules{}; });
    warn_of_alike_files(reading, [&](const std::string& file) { return summary_of(reading.header(file)).names; });
  }

  void tell(Reading& reading, About& out) const override {
    tell_of_trainer(reading, out);
    out.values[kMindSporeValue] = "{}";
  }

  [[nodiscard]] std::string_view key_of_states() const override { return kMindSporeValue; }

  [[nodiscard]] std::optional<plan::TensorMap> map_to_hugging_face(const plan::Catalog& /*view*/,
                                                                   const StateToWrite& state) const override {
    throw no_model_of_transformers(state, "its tensors have the names of MindSpore's programs");
  }

  [[nodiscard]] bool describes_file(std::string_view key, std::string_view value) const override {
    return key == "format" && value == kFormat;
  }

  [[nodiscard]] FileKind kind_of(std::string_view file) const override {
    return is_part_name(file) ? FileKind::kPart : FileKind::kOther;
  }
};

}  // namespace

const Dialect& mindspore_dialect() {
  static const MindSpore dialect;
  return dialect;
}

}  // namespace cairn::interop
