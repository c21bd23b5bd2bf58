#include "format/part.hpp"

#include <fmt/core.h>

#include "base/text.hpp"

namespace cairn::format {
namespace {

using base::Json;
using base::JsonReader;

constexpr const char* kOnly = "only";
constexpr const char* kWithout = "without";
constexpr const char* kSections = "sections";
constexpr const char* kNames = "names";
constexpr const char* kStep = "step";
constexpr const char* kPath = "path";
constexpr const char* kIdentity = "identity";

std::string list_of(const std::vector<std::string>& texts) { return base::printable(base::joined(texts)); }

std::string words_of(const Selection& selection) {
  if (selection.names.empty()) return "sections " + list_of(selection.sections);
  const std::string names = "names " + list_of(selection.names);
  return selection.sections.empty() ? names : fmt::format("{} of sections {}", names, list_of(selection.sections));
}

Json texts_as_json(const std::vector<std::string>& texts) {
  return Json::array_of(texts, [](const std::string& text) { return Json(text); });
}

std::vector<std::string> read_texts(const JsonReader& object, const char* key) {
  std::vector<std::string> texts;
  if (const auto list = object.find(key)) {
    for (const JsonReader& item : list->items()) texts.push_back(item.text());
  }
  return texts;
}

}  // namespace

std::string words_of_tensors(const Part& part) {
  std::string text;
  for (const Selection& selection : part.only) text += (text.empty() ? "" : ", or ") + words_of(selection);
  if (part.without.empty()) return text;
  return fmt::format("{} without section {}", text.empty() ? "all" : text, list_of(part.without));
}

std::string words_of_base(const Part& part) {
  if (!part.base) return {};
  std::string text;
  if (part.base->step) text = fmt::format("step {}", *part.base->step);
  if (!part.base->path.empty()) text = fmt::format("'{}'", base::printable(part.base->path));
  const std::string& identity = part.base->identity;
  if (identity.empty()) return text;
  return text.empty() ? base::printable(identity) : fmt::format("{} ({})", text, base::printable(identity));
}

std::string words_of(const Part& part) {
  const std::string base = words_of_base(part);
  return words_of_tensors(part) + (base.empty() ? "" : "; base: " + base);
}

Json part_as_json(const Part& part) {
  Json document = Json::object();
  if (!part.only.empty()) {
    document[kOnly] = Json::array_of(part.only, [](const Selection& selection) {
      Json entry = Json::object();
      if (!selection.sections.empty()) entry[kSections] = texts_as_json(selection.sections);
      if (!selection.names.empty()) entry[kNames] = texts_as_json(selection.names);
      return entry;
    });
  }
  if (!part.without.empty()) document[kWithout] = texts_as_json(part.without);
  return document;
}

Json base_as_json(const BaseCheckpoint& base) {
  Json document = Json::object();
  if (base.step) document[kStep] = *base.step;
  if (!base.path.empty()) document[kPath] = base.path;
  if (!base.identity.empty()) document[kIdentity] = base.identity;
  return document;
}

Part read_part(const JsonReader& part) {
  part.check_keys({kOnly, kWithout});
  Part read;
  if (const auto only = part.find(kOnly)) {
    for (const JsonReader& selection : only->items()) {
      selection.check_keys({kSections, kNames});
      read.only.push_back({read_texts(selection, kSections), read_texts(selection, kNames)});
    }
  }
  read.without = read_texts(part, kWithout);
  if (read.only.empty() && read.without.empty()) part.fail("names no tensors");
  return read;
}

BaseCheckpoint read_base(const JsonReader& base) {
  base.check_keys({kStep, kPath, kIdentity});
  BaseCheckpoint read;
  if (base.has(kStep)) read.step = base.at(kStep).number();
  read.path = base.text_or(kPath, "");
  read.identity = base.text_or(kIdentity, "");
  return read;
}

}  // namespace cairn::format
