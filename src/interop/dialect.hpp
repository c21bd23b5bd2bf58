// The checkpoint format of another system: recognises and describes its directories.
//
// A dialect is a folder here and an entry in dialects.cpp. It opens no files: all access goes through Reading.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "interop/directory.hpp"
#include "interop/file_names.hpp"
#include "interop/form.hpp"
#include "interop/outline.hpp"
#include "interop/reading.hpp"

namespace cairn::interop {

/// File name -> section of its tensors.
using SectionOfFile = std::map<std::string, std::string>;

class Dialect {
 public:
  Dialect() = default;
  Dialect(const Dialect&) = delete;
  Dialect& operator=(const Dialect&) = delete;
  virtual ~Dialect() = default;

  /// The name for people and programs, such as "Hugging Face"; `cairn inspect --json` shows the name as "dialect".
  [[nodiscard]] virtual std::string_view name() const = 0;

  /// Whether the directory is this system's, judged by file contents and names, never by the directory's own name.
  /// Headers and indexes may have no tensors (outline.hpp). Throws Error(kFormat) for an unreadable index, and for an
  /// invalid directory that can only be this system's.
  [[nodiscard]] virtual bool recognises(Reading& reading) const = 0;

  /// Adds tensors and their codings to `out`, and to `out.about.left` a line for tensors that are left out.
  /// Throws Error(kFormat or kNotFound), one line naming file and tensor; assumptions become warnings of `reading`.
  virtual void describe(Reading& reading, Recognised& out) const = 0;

  /// Adds facts that need no tensors: version, parallel layout, step, other values, and further state that is left out.
  virtual void tell(Reading& /*reading*/, About& /*out*/) const {}

  /// The section of each file, from summaries, if all tensors are whole and stored unchanged in safetensors files;
  /// no rank then needs all headers. Nothing if describe() must read the directory as a whole.
  [[nodiscard]] virtual std::optional<SectionOfFile> outline(Reading& /*reading*/, const FileSummaries& /*files*/,
                                                             const IndexSummaries& /*indexes*/) const {
    return std::nullopt;
  }

  [[nodiscard]] virtual FileKind kind_of(std::string_view /*file*/) const { return FileKind::kOther; }

  /// Whether a key of `__metadata__` describes how its file holds tensors, and so does not apply to other files.
  [[nodiscard]] virtual bool describes_file(std::string_view /*key*/, std::string_view /*value*/) const {
    return false;
  }

  /// For a directory without readable files: the reason why a file that looks like the system's is not read. Empty if
  /// the file does not look like the system's.
  [[nodiscard]] virtual std::string_view why_unread(std::string_view /*file*/) const { return {}; }

  /// The forms in which Cairn writes for this system.
  [[nodiscard]] virtual std::span<const Form* const> forms() const { return {}; }

  /// For a conversion to Hugging Face files: how Hugging Face's classes have the tensors of this system's state, by
  /// names and order of dimensions. Nothing: the state is another system's. Throws Error(kUsage) for tensors that have
  /// no counterpart there.
  [[nodiscard]] virtual std::optional<plan::TensorMap> map_to_hugging_face(const plan::Catalog& /*view*/,
                                                                           const StateToWrite& /*state*/) const {
    return std::nullopt;
  }

  /// The key of About::values that marks a state as this system's; empty: the system has none.
  [[nodiscard]] virtual std::string_view key_of_states() const { return {}; }

  /// Whether the system resumes from this file, which is then carried even if describe() or tell() reads it.
  [[nodiscard]] virtual bool carries(std::string_view /*file*/) const { return false; }
};

/// All dialects in order of precedence: the first that recognises a directory describes it.
std::span<const Dialect* const> dialects();

/// The dialect with that name; null if there is none, as for a staging file.
const Dialect* dialect_called(std::string_view name);

}  // namespace cairn::interop
