// All systems whose checkpoints Cairn recognises.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "interop/dialect.hpp"

// To add a system, add a folder, and an entry here: its Dialect is `const Dialect& <name>_dialect()`.
// The entries are in order of precedence.
#define CAIRN_SYSTEMS(system) \
  system(dcp) system(mindspore) system(paddle) system(hugging_face)  // last: accepts any safetensors files

namespace cairn::interop {

#define CAIRN_DECLARE(name) const Dialect& name##_dialect();
CAIRN_SYSTEMS(CAIRN_DECLARE)
#undef CAIRN_DECLARE

std::span<const Dialect* const> dialects() {
#define CAIRN_LIST(name) &name##_dialect(),
  static const std::array kAll = {CAIRN_SYSTEMS(CAIRN_LIST)};
#undef CAIRN_LIST
  return kAll;
}

const Dialect* dialect_called(std::string_view name) {
  const auto found = std::ranges::find(dialects(), name, &Dialect::name);
  return found == dialects().end() ? nullptr : *found;
}

FileKind file_kind(std::string_view file) {
  for (const Dialect* dialect : dialects()) {
    if (const FileKind kind = dialect->kind_of(file); kind != FileKind::kOther) return kind;
  }
  return FileKind::kOther;
}

std::vector<std::string> form_words() {
  std::vector<std::string> words;
  for (const Dialect* dialect : dialects()) {
    for (const Form* form : dialect->forms()) words.emplace_back(form->traits().word);
  }
  std::ranges::sort(words);
  return words;
}

namespace {

const Form* find_form(std::string_view word) {
  for (const Dialect* dialect : dialects()) {
    for (const Form* form : dialect->forms()) {
      if (form->traits().word == word) return form;
    }
  }
  return nullptr;
}

}  // namespace

const Form& form_called(std::string_view word) {
  if (const Form* form = find_form(word)) return *form;
  throw Error(ErrorKind::kUsage, fmt::format("nothing is written in the form '{}'; there are {}", base::printable(word),
                                             base::joined(form_words())));
}

const Form& form_of_save(std::string_view word) {
  const Form* form = find_form(word.empty() ? "hf" : word);
  if (form != nullptr && !form->traits().is_sharded) return *form;
  std::vector<std::string> words = form_words();
  std::erase_if(words, [](const std::string& other) { return form_called(other).traits().is_sharded; });
  throw Error(ErrorKind::kUsage,
              fmt::format("no save writes files in the form '{}' (Options::files.form); there are {}",
                          base::printable(word), base::joined(words)));
}

}  // namespace cairn::interop
