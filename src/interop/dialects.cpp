// The dialects that Cairn reads. A new one is a folder, and a line here.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "interop/dcp/dcp.hpp"
#include "interop/dialect.hpp"
#include "interop/huggingface/hugging_face.hpp"
#include "interop/paddle/paddle.hpp"

namespace cairn::interop {

std::span<const Dialect* const> dialects() {
  static const std::array kAll = {
      &dcp_dialect(), &paddle_dialect(),
      &hugging_face_dialect(),  // last: whatever is no other's
  };
  return kAll;
}

std::vector<std::string> form_words() {
  std::vector<std::string> words;
  for (const Dialect* dialect : dialects()) {
    for (const Form& form : dialect->forms()) words.emplace_back(form.word);
  }
  std::ranges::sort(words);
  return words;
}

const Form& form_called(std::string_view word) {
  for (const Dialect* dialect : dialects()) {
    for (const Form& form : dialect->forms()) {
      if (form.word == word) return form;
    }
  }
  throw Error(ErrorKind::kUsage, fmt::format("nothing is written in the form '{}'; there are {}", base::printable(word),
                                             base::joined(form_words())));
}

}  // namespace cairn::interop
