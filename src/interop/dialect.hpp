// One other system's checkpoint format: how it is known, and what its directories hold.
//
// A dialect is a folder here and a line in dialects.cpp. It opens no file: what it looks at comes through Reading.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "interop/directory.hpp"
#include "interop/outline.hpp"
#include "interop/reading.hpp"

namespace cairn::interop {

/// File name -> section of its tensors.
using SectionOfFile = std::map<std::string, std::string>;

/// What a conversion can write for that system.
struct Form {
  std::string_view word;     ///< of `convert --to`
  std::string_view what;     ///< in messages: "Hugging Face files"
  bool is_sharded = false;   ///< files of the ranks of a layout, each with its parts of tensors; else whole tensors
  bool holds_codes = false;  ///< moments may stay codes, and weights left out
};

class Dialect {
 public:
  Dialect() = default;
  Dialect(const Dialect&) = delete;
  Dialect& operator=(const Dialect&) = delete;
  virtual ~Dialect() = default;

  /// "PaddlePaddle": for people and programs; `cairn inspect --json` has it as "dialect".
  [[nodiscard]] virtual std::string_view name() const = 0;

  /// Whether the directory is this system's: by what is in its files and by their names, never by the directory's own.
  /// Headers and indexes may have no tensors (outline.hpp). Throws Error(kFormat) for what is this system's and nothing
  /// else, and wrong.
  [[nodiscard]] virtual bool recognises(Reading& reading) const = 0;

  /// Adds tensors, sections and codings to `out`, and to `out.about.left` which tensors it leaves behind. Throws
  /// Error(kFormat or kNotFound), one line naming file and tensor; what had to be assumed is a warning of `reading`.
  virtual void describe(Reading& reading, Recognised& out) const = 0;

  /// Adds what can be said without tensors: version, parallel layout, step, values beside the tensors, what else is not
  /// taken over.
  virtual void tell(Reading& /*reading*/, About& /*out*/) const {}

  /// Where all tensors lie whole in safetensors files, as they are: in which section those of a file are, from summaries;
  /// all ranks then read the headers side by side. Nothing where describe() must read the directory as a whole.
  [[nodiscard]] virtual std::optional<SectionOfFile> outline(Reading& /*reading*/, const FileSummaries& /*files*/,
                                                             const IndexSummaries& /*indexes*/) const {
    return std::nullopt;
  }

  [[nodiscard]] virtual std::span<const Form> forms() const { return {}; }
};

/// In the order in which they are asked; the first that recognises a directory describes it.
std::span<const Dialect* const> dialects();

/// The words of all dialects' forms.
std::vector<std::string> form_words();
/// The form of that word. Throws Error(kUsage), naming those that there are.
const Form& form_called(std::string_view word);

}  // namespace cairn::interop
