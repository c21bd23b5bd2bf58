// MindSpore Transformers: files of single ranks are recognised and refused.
#include "base/digits.hpp"
#include "interop/dialect.hpp"

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

  [[nodiscard]] bool recognises(Reading& reading) const override { return !first_part(reading).empty(); }

  void describe(Reading& reading, Recognised& /*out*/) const override {
    throw reading.error(ErrorKind::kFormat, first_part(reading),
                        "is one rank's file of a MindSpore Transformers checkpoint, which is not read; "
                        "convert it to Hugging Face files there");
  }

  [[nodiscard]] bool describes_file(std::string_view key, std::string_view value) const override {
    return key == "format" && value == "ms";
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
