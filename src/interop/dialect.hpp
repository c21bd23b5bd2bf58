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

  /// What can be written for that system.
  [[nodiscard]] virtual std::span<const Form* const> forms() const { return {}; }

  /// Whether the system resumes from this file, which describe() or tell() may have read: it goes along all the same.
  [[nodiscard]] virtual bool carries(std::string_view /*file*/) const { return false; }
};

/// In the order in which they are asked; the first that recognises a directory describes it.
std::span<const Dialect* const> dialects();

/// The one of that name; null: none, as for a staging file.
const Dialect* dialect_called(std::string_view name);

}  // namespace cairn::interop
