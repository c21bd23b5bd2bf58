// Named values as text, and in the extras of a checkpoint.
#include "cairn/values.hpp"

#include <fmt/core.h>

#include <cmath>
#include <limits>
#include <utility>

#include "base/bytes.hpp"
#include "base/hints.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "base/utf8.hpp"
#include "cairn/error.hpp"
#include "format/crc32c.hpp"

namespace cairn {
namespace {

using base::Json;

constexpr std::string_view kKey = "cairn.values";  // of a run, in the metadata
constexpr const char* kVersionKey = "cairn_values";
constexpr const char* kChecksumKey = "crc32c";
constexpr const char* kValuesKey = "values";
constexpr std::uint64_t kVersion = 1;
constexpr const char* kWhere = "named values";

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string checksum_of(const Json& values) {
  return fmt::format("{:08x}", format::crc32c(base::as_bytes(values.dump({.sorted = true, .ascii = true}))));
}

std::string hex_of(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<std::size_t>(byte >> 4)];
    text += kDigits[std::to_integer<std::size_t>(byte & std::byte{15})];
  }
  return text;
}

int digit_of(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return -1;
}

NamedValues::Bytes bytes_of(const std::string& hex) {
  if (hex.size() % 2 != 0) base::fail_format(kWhere, "bytes have an odd number of digits");
  NamedValues::Bytes bytes(hex.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const int high = digit_of(hex[2 * i]);
    const int low = digit_of(hex[2 * i + 1]);
    if (high < 0 || low < 0) base::fail_format(kWhere, "bytes are not hexadecimal digits");
    bytes[i] = static_cast<std::byte>(high * 16 + low);
  }
  return bytes;
}

void check_text(std::string_view text, const char* what) {
  if (base::is_utf8(text)) return;
  throw Error(ErrorKind::kUsage, fmt::format("named values: {} '{}' is not UTF-8", what, base::printable(text)));
}

template <class Value>
const char* type_of(const Value& value) {
  constexpr const char* kTypes[] = {"an integer", "a number", "a text", "bytes"};
  return kTypes[value.index()];
}

Error other_type(std::string_view name, const char* found, const char* expected) {
  return {ErrorKind::kState, fmt::format("the value '{}' is {}, expected {}", base::printable(name), found, expected)};
}

std::int64_t integer_in(const Json& value) {
  if (const std::int64_t* const negative = value.negative_number()) return *negative;
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!value.is_number_unsigned() || value.whole_number() > kMost) {
    base::fail_format(kWhere, "an integer is not one of 64 bits");
  }
  return static_cast<std::int64_t>(value.whole_number());
}

}  // namespace

void NamedValues::set(std::string_view name, Value value) {
  if (name.empty()) throw Error(ErrorKind::kUsage, "a named value has an empty name");
  check_text(name, "the name");
  values_.insert_or_assign(std::string(name), std::move(value));
}

void NamedValues::set_integer(std::string_view name, std::int64_t value) { set(name, value); }

void NamedValues::set_number(std::string_view name, double value) {
  if (!std::isfinite(value)) {
    throw Error(ErrorKind::kUsage,
                fmt::format("the value '{}' is {}; give a finite number, or a text", base::printable(name), value));
  }
  set(name, value);
}

void NamedValues::set_text(std::string_view name, std::string_view value) {
  check_text(value, "the text");
  set(name, std::string(value));
}

void NamedValues::set_bytes(std::string_view name, std::span<const std::byte> value) {
  set(name, Bytes(value.begin(), value.end()));
}

const NamedValues::Value& NamedValues::get(std::string_view name) const {
  if (const auto found = values_.find(name); found != values_.end()) return found->second;
  base::NearestName nearest(name);
  for (const auto& one : values_) nearest.consider(one.first);
  const std::string hint = !nearest.found().empty()
                               ? fmt::format("the nearest name is '{}'", base::printable(nearest.found()))
                           : values_.empty() ? std::string("there are no values")
                                             : "there are " + base::quoted_names(names());
  throw Error(ErrorKind::kNotFound, fmt::format("there is no value '{}'; {}", base::printable(name), hint));
}

std::int64_t NamedValues::integer(std::string_view name) const {
  const Value& value = get(name);
  if (const auto* const integer = std::get_if<std::int64_t>(&value)) return *integer;
  throw other_type(name, type_of(value), "an integer");
}

double NamedValues::number(std::string_view name) const {
  const Value& value = get(name);
  if (const auto* const number = std::get_if<double>(&value)) return *number;
  if (const auto* const integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  throw other_type(name, type_of(value), "a number");
}

const std::string& NamedValues::text(std::string_view name) const {
  const Value& value = get(name);
  if (const auto* const text = std::get_if<std::string>(&value)) return *text;
  throw other_type(name, type_of(value), "a text");
}

const NamedValues::Bytes& NamedValues::bytes(std::string_view name) const {
  const Value& value = get(name);
  if (const auto* const bytes = std::get_if<Bytes>(&value)) return *bytes;
  throw other_type(name, type_of(value), "bytes");
}

bool NamedValues::contains(std::string_view name) const { return values_.contains(name); }

std::vector<std::string> NamedValues::names() const {
  std::vector<std::string> names;
  for (const auto& one : values_) names.push_back(one.first);
  return names;
}

std::string encode_values(const NamedValues& values) {
  Json all = Json::object();
  for (const auto& [name, value] : values.values_) {
    Json one = Json::object();
    if (const auto* const integer = std::get_if<std::int64_t>(&value)) one["integer"] = *integer;
    if (const auto* const number = std::get_if<double>(&value)) one["number"] = *number;
    if (const auto* const text = std::get_if<std::string>(&value)) one["text"] = *text;
    if (const auto* const bytes = std::get_if<NamedValues::Bytes>(&value)) one["bytes"] = hex_of(*bytes);
    all[name] = std::move(one);
  }
  Json document = Json::object();
  document[kVersionKey] = kVersion;
  document[kChecksumKey] = checksum_of(all);
  document[kValuesKey] = std::move(all);
  return document.dump({.sorted = true, .ascii = true});
}

NamedValues parse_values(std::string_view text) {
  const Json document = Json::parse(text, kWhere);
  const Json* const version = document.find(kVersionKey);
  if (version == nullptr || !version->is_number_unsigned()) base::fail_format(kWhere, "these are other data");
  if (version->whole_number() > kVersion) {
    base::fail_format(
        kWhere, fmt::format("they are of version {}, and this Cairn knows {}", version->whole_number(), kVersion));
  }
  const Json* const checksum = document.find(kChecksumKey);
  const Json* const all = document.find(kValuesKey);
  if (checksum == nullptr || !checksum->is_string() || all == nullptr || !all->is_object()) {
    base::fail_format(kWhere, "the values or their checksum are missing");
  }
  if (checksum_of(*all) != checksum->text()) {
    throw Error(ErrorKind::kIntegrity, "named values: their checksum is wrong, so they are not those that were saved");
  }
  NamedValues values;
  for (const Json::Member& one : all->items()) {
    const Json* const integer = one.value.find("integer");
    const Json* const number = one.value.find("number");
    const Json* const words = one.value.find("text");
    const Json* const bytes = one.value.find("bytes");
    if (integer != nullptr) {
      values.set_integer(one.key, integer_in(*integer));
    } else if (number != nullptr &&
               (number->is_number_float() || number->is_number_unsigned() || number->negative_number() != nullptr)) {
      values.set_number(one.key, number->real_number());
    } else if (words != nullptr && words->is_string()) {
      values.set_text(one.key, words->text());
    } else if (bytes != nullptr && bytes->is_string()) {
      values.set_bytes(one.key, bytes_of(bytes->text()));
    } else {
      base::fail_format(kWhere, fmt::format("the value '{}' is of an unknown type", base::printable(one.key)));
    }
  }
  return values;
}

void put_run_values(Extras& extras, const NamedValues& values) {
  extras.metadata[std::string(kKey)] = encode_values(values);
}

void put_rank_values(Extras& extras, const NamedValues& values) {
  const std::string text = encode_values(values);
  const auto bytes = base::as_bytes(text);
  extras.rank_blob.assign(bytes.begin(), bytes.end());
}

NamedValues run_values(const Checkpointer::LoadedExtras& extras) {
  const auto found = extras.metadata.find(std::string(kKey));
  if (found == extras.metadata.end()) {
    throw Error(ErrorKind::kNotFound, "the checkpoint has no named values of the run (put_run_values)");
  }
  return parse_values(found->second);
}

NamedValues rank_values(const Checkpointer::LoadedExtras& extras, std::uint64_t ranks) {
  if (extras.rank_blobs == 0) {
    throw Error(ErrorKind::kNotFound, "the checkpoint has no named values of ranks (put_rank_values)");
  }
  if (extras.rank_blobs != ranks) {
    throw Error(
        ErrorKind::kState,
        fmt::format("the named values are those of {}, and {} load them: values of another number of ranks belong to "
                    "no rank here; begin anew, or take them with values_of_blob(load_rank_blob(step, rank))",
                    base::counted(extras.rank_blobs, "rank"), base::counted(ranks, "rank")));
  }
  return values_of_blob(extras.rank_blob);
}

NamedValues values_of_blob(std::span<const std::byte> blob) {
  const std::string text = text_of(blob);
  if (!text.starts_with('{')) base::fail_format(kWhere, "the blob of the rank has other data");
  return parse_values(text);
}

}  // namespace cairn
