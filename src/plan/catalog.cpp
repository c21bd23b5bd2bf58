#include "plan/catalog.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/checked.hpp"
#include "base/digits.hpp"
#include "base/internal_error.hpp"
#include "base/sort_texts.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "format/safetensors.hpp"

namespace cairn::plan {
namespace {

/// The digits from `at` on, without leading zeros; moves `at` past them.
std::string_view take_number(std::string_view text, std::size_t& at) {
  while (at < text.size() && text[at] == '0') ++at;
  const std::size_t begin = at;
  while (at < text.size() && base::is_digit(text[at])) ++at;
  return text.substr(begin, at - begin);
}

std::strong_ordering compare_bytes(std::string_view a, std::string_view b) { return a.compare(b) <=> 0; }

constexpr std::array<std::string_view, 4> kKnownSections = {"model", "optimizer", "master_weights", "adapter"};

constexpr std::size_t kFewDigits = 9;

/// Appends bytes that compare as names do in natural order, apart from leading zeros. Each number is written after the
/// count of its digits. The count begins with a digit, so it compares with other characters as the number does.
void append_natural(std::string& out, std::string_view name) {
  for (std::size_t at = 0; at < name.size();) {
    if (!base::is_digit(name[at])) {
      const std::size_t begin = at;
      while (at < name.size() && !base::is_digit(name[at])) ++at;
      out += name.substr(begin, at - begin);
      continue;
    }
    const std::string_view digits = take_number(name, at);
    if (digits.size() < kFewDigits) {
      out += static_cast<char>('0' + digits.size());
    } else {
      out += '9';
      for (int shift = 56; shift >= 0; shift -= 8) out += static_cast<char>(digits.size() >> shift & 0xff);
    }
    out += digits;
  }
}

/// Position of each section of `keys` among all sections of `keys`.
std::map<std::string_view, std::uint32_t> places_of_sections(std::span<const CatalogKey> keys) {
  std::map<std::string_view, std::uint32_t> places;
  std::string_view last;
  for (const CatalogKey& key : keys) {
    if (key.section != last || places.empty()) places.emplace(last = key.section, 0);
  }
  std::vector<std::string_view> sections;
  for (const auto& [section, place] : places) sections.push_back(section);
  std::ranges::sort(sections, [](std::string_view a, std::string_view b) { return section_order(a, b) < 0; });
  for (std::uint32_t i = 0; i < sections.size(); ++i) places[sections[i]] = i;
  return places;
}

constexpr std::uint64_t kRestart = 64;
constexpr std::uint64_t kIsRestart = 1;
constexpr std::uint64_t kSameType = 2;
constexpr std::uint64_t kHasCoding = 4;
constexpr std::uint64_t kHasPlace = 8;
constexpr std::uint64_t kIsBehind = 16;
constexpr std::uint64_t kHasBoxes = 32;

Error broken() { return base::internal_error("a packed catalog is broken"); }

void put_number(base::Bytes& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<std::byte>(value | 0x80));
  out.push_back(static_cast<std::byte>(value));
}

void put_text(base::Bytes& out, std::string_view text) {
  put_number(out, text.size());
  const auto bytes = base::as_bytes(text);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

std::uint64_t get_number(std::span<const std::byte> text, std::size_t& at) {
  if (at < text.size() && std::to_integer<unsigned>(text[at]) < 0x80) return std::to_integer<std::uint64_t>(text[at++]);
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && at < text.size(); shift += 7) {
    const auto byte = std::to_integer<std::uint64_t>(text[at++]);
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  throw broken();
}

std::string_view get_text(std::span<const std::byte> text, std::size_t& at) {
  const std::uint64_t size = get_number(text, at);
  if (size > text.size() - at) throw broken();
  const std::string_view out(reinterpret_cast<const char*>(text.data()) + at, size);
  at += size;
  return out;
}

}  // namespace

std::strong_ordering natural_order(std::string_view a, std::string_view b) {
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (base::is_digit(a[i]) && base::is_digit(b[j])) {
      const std::string_view x = take_number(a, i);
      const std::string_view y = take_number(b, j);
      if (x.size() != y.size()) return x.size() <=> y.size();
      if (const auto order = compare_bytes(x, y); order != 0) return order;
      continue;
    }
    if (a[i] != b[j]) return static_cast<unsigned char>(a[i]) <=> static_cast<unsigned char>(b[j]);
    ++i;
    ++j;
  }
  if (i < a.size()) return std::strong_ordering::greater;
  if (j < b.size()) return std::strong_ordering::less;
  return compare_bytes(a, b);  // equal except for leading zeros
}

std::strong_ordering section_order(std::string_view a, std::string_view b) {
  const auto place = [](std::string_view s) { return std::find(kKnownSections.begin(), kKnownSections.end(), s); };
  if (const auto order = place(a) - place(b); order != 0) return order <=> 0;
  return compare_bytes(a, b);
}

bool in_catalog_order(std::string_view section_a, std::string_view name_a, std::string_view section_b,
                      std::string_view name_b) {
  if (section_a != section_b) return section_order(section_a, section_b) < 0;
  return natural_order(name_a, name_b) < 0;
}

std::vector<std::uint32_t> catalog_order(std::span<const CatalogKey> keys) {
  const auto places = places_of_sections(keys);
  std::size_t bytes = 0;
  for (const CatalogKey& key : keys) bytes += key.name.size() + key.name.size() / 4 + sizeof(std::uint32_t);
  std::string texts;
  texts.reserve(bytes);  // an estimate
  std::vector<std::size_t> ends;
  ends.reserve(keys.size());
  auto place = places.end();
  for (const CatalogKey& key : keys) {
    if (place == places.end() || place->first != key.section) place = places.find(key.section);
    for (int shift = 24; shift >= 0; shift -= 8) texts += static_cast<char>(place->second >> shift & 0xff);
    append_natural(texts, key.name);
    ends.push_back(texts.size());
  }
  std::vector<std::string_view> views;
  views.reserve(keys.size());
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    views.push_back(std::string_view(texts).substr(begin, end - begin));
    begin = end;
  }
  std::vector<std::uint32_t> order = base::order_of_texts(views);
  // Names that differ only in leading zeros are ordered by their bytes.
  for (std::size_t first = 0, last = 0; first < order.size(); first = last) {
    while (last < order.size() && views[order[last]] == views[order[first]]) ++last;
    std::stable_sort(order.begin() + static_cast<std::ptrdiff_t>(first),
                     order.begin() + static_cast<std::ptrdiff_t>(last),
                     [&](std::uint32_t a, std::uint32_t b) { return keys[a].name < keys[b].name; });
  }
  return order;
}

Catalog make_catalog(std::vector<CatalogTensor> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const CatalogTensor& a, const CatalogTensor& b) {
    return in_catalog_order(a.section, a.name, b.section, b.name);
  });
  const auto twice = std::adjacent_find(
      tensors.begin(), tensors.end(),
      [](const CatalogTensor& a, const CatalogTensor& b) { return a.section == b.section && a.name == b.name; });
  if (twice != tensors.end()) {
    throw Error(ErrorKind::kState,
                fmt::format("tensor '{}' is listed twice in section {}; names must be unique in a section",
                            base::printable(twice->name), base::printable(twice->section)));
  }
  return {std::move(tensors)};
}

void CatalogPacker::add(const CatalogTensor& tensor) {
  add({tensor.section, tensor.name, tensor.dtype, tensor.shape}, tensor.coding, /*has_place=*/false);
}

void CatalogPacker::add(const format::PlacedTensor& tensor) { add(tensor, {}, /*has_place=*/true); }

void CatalogPacker::add(const format::PlacedTensor& tensor, std::string_view coding, bool has_place) {
  const bool restart = entries_ % kRestart == 0 || tensor.section != section_;
  const bool same = !restart && tensor.dtype == dtype_ && std::ranges::equal(tensor.shape, shape_);
  if (restart) {
    put_number(offsets_, text_.size() - last_restart_);
    put_number(offsets_, entries_);
    last_restart_ = text_.size();
    ++restarts_;
  }
  std::uint64_t flags = (restart ? kIsRestart : 0) | (same ? kSameType : 0) | (coding.empty() ? 0 : kHasCoding);
  if (has_place) {
    const bool behind = !restart && end_ != 0 && tensor.file == file_ && tensor.offset_bytes == end_;
    flags |= tensor.in_parts ? kHasBoxes : behind ? kIsBehind : kHasPlace;
  }
  put_number(text_, flags);
  if (restart) {
    put_text(text_, tensor.section);
    put_text(text_, tensor.name);
    section_ = tensor.section;
  } else {
    const auto differs = std::mismatch(tensor.name.begin(), tensor.name.end(), name_.begin(), name_.end());
    const auto stays = static_cast<std::size_t>(differs.first - tensor.name.begin());
    put_number(text_, stays);
    put_text(text_, tensor.name.substr(stays));
  }
  if (!same) {
    put_number(text_, static_cast<std::uint64_t>(tensor.dtype));
    put_number(text_, tensor.shape.size());
    for (const std::uint64_t size : tensor.shape) put_number(text_, size);
    if (has_place) size_bytes_ = format::try_tensor_bytes(tensor.dtype, tensor.shape).bytes;
    dtype_ = tensor.dtype;
    shape_.assign(tensor.shape.begin(), tensor.shape.end());
  }
  if (!coding.empty()) put_text(text_, coding);
  if (has_place) put_place(tensor, flags);
  name_ = tensor.name;
  ++entries_;
}

void CatalogPacker::put_place(const format::PlacedTensor& tensor, std::uint64_t flags) {
  if ((flags & kHasPlace) != 0) {
    put_number(text_, tensor.file);
    put_number(text_, tensor.offset_bytes);
  } else if ((flags & kHasBoxes) != 0) {
    put_number(text_, tensor.boxes.size());
    for (const format::StoredBox& stored : tensor.boxes) {
      put_number(text_, stored.file);
      put_number(text_, stored.offset_bytes);
      put_number(text_, stored.row_elems);
      for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
        put_number(text_, stored.box.offset.at(d));
        put_number(text_, stored.box.shape.at(d));
      }
    }
  }
  file_ = tensor.file;
  end_ = tensor.in_parts ? 0 : tensor.offset_bytes + size_bytes_;
}

base::Bytes CatalogPacker::take() {
  base::Bytes out;
  if (entries_ == 0) return out;
  put_number(out, entries_);
  put_number(out, restarts_);
  out.insert(out.end(), offsets_.begin(), offsets_.end());
  out.insert(out.end(), text_.begin(), text_.end());
  *this = {};
  return out;
}

PackedCatalog::PackedCatalog(std::span<const base::Bytes> runs) {
  std::size_t bytes = 0;
  for (const base::Bytes& run : runs) bytes += run.size();
  text_.reserve(bytes);
  for (const base::Bytes& run : runs) append(run);
  for (std::size_t i = 1; i < restarts_.size(); ++i) {
    const CatalogKey a = key_at(restarts_[i - 1]);
    const CatalogKey b = key_at(restarts_[i]);
    if (!in_catalog_order(a.section, a.name, b.section, b.name)) throw broken();
  }
}

PackedCatalog::PackedCatalog(const Catalog& catalog) {
  CatalogPacker packer;
  for (const CatalogTensor& tensor : catalog.tensors) packer.add(tensor);
  append(packer.take());
}

void PackedCatalog::append(std::span<const std::byte> run) {
  if (run.empty()) return;
  std::size_t at = 0;
  const std::uint64_t entries = get_number(run, at);
  const std::uint64_t restarts = get_number(run, at);
  std::size_t place = text_.size();
  for (std::uint64_t i = 0; i < restarts; ++i) {
    place += get_number(run, at);
    const std::uint64_t entry = get_number(run, at);
    restarts_.push_back({base::narrow<std::uint32_t>(size_ + entry, "number of tensors"), place});
  }
  if (restarts == 0 || place - text_.size() >= run.size() - at) throw broken();
  const auto entries_text = run.subspan(at);
  text_.insert(text_.end(), entries_text.begin(), entries_text.end());
  size_ = base::narrow<std::uint32_t>(size_ + entries, "number of tensors");
}

base::Bytes PackedCatalog::run() const {
  base::Bytes out;
  if (size_ == 0) return out;
  put_number(out, size_);
  put_number(out, restarts_.size());
  std::size_t last = 0;
  for (const Restart& restart : restarts_) {
    put_number(out, restart.at - last);
    put_number(out, restart.number);
    last = restart.at;
  }
  out.insert(out.end(), text_.begin(), text_.end());
  return out;
}

CatalogKey PackedCatalog::key_at(const Restart& restart) const {
  std::size_t at = restart.at;
  if ((get_number(text_, at) & kIsRestart) == 0) throw broken();
  CatalogKey key;
  key.section = get_text(text_, at);
  key.name = get_text(text_, at);
  return key;
}

const PackedCatalog::Restart& PackedCatalog::restart_before(std::uint32_t number) const {
  const auto after = std::upper_bound(restarts_.begin(), restarts_.end(), number,
                                      [](std::uint32_t n, const Restart& restart) { return n < restart.number; });
  if (after == restarts_.begin()) throw broken();
  return *std::prev(after);
}

std::optional<std::uint32_t> PackedCatalog::find(std::string_view section, std::string_view name) const {
  const auto after = std::partition_point(restarts_.begin(), restarts_.end(), [&](const Restart& restart) {
    const CatalogKey key = key_at(restart);
    return !in_catalog_order(section, name, key.section, key.name);
  });
  if (after == restarts_.begin()) return std::nullopt;
  const std::uint32_t end = after == restarts_.end() ? size_ : after->number;
  Cursor cursor(*this, std::prev(after)->number);
  while (cursor.next() && cursor.number() < end) {
    if (cursor.name() == name && cursor.section() == section) return cursor.number();
  }
  return std::nullopt;
}

CatalogTensor PackedCatalog::at(std::uint32_t number) const {
  Cursor cursor(*this, number);
  if (!cursor.next()) throw broken();
  return cursor.tensor();
}

format::StoredTensor PackedCatalog::stored_at(std::uint32_t number) const {
  Cursor cursor(*this, number);
  if (!cursor.next()) throw broken();
  return cursor.stored();
}

std::vector<std::optional<std::uint32_t>> PackedCatalog::find_all(std::span<const CatalogKey> keys) const {
  std::vector<std::optional<std::uint32_t>> found(keys.size());
  if (keys.size() < size_ / kRestart) {
    for (std::size_t i = 0; i < keys.size(); ++i) found[i] = find(keys[i].section, keys[i].name);
    return found;
  }
  const std::vector<std::uint32_t> order = catalog_order(keys);
  Cursor cursor(*this, 0);
  bool is_here = cursor.next();
  for (const std::uint32_t i : order) {
    const CatalogKey& key = keys[i];
    while (is_here && in_catalog_order(cursor.section(), cursor.name(), key.section, key.name)) is_here = cursor.next();
    if (is_here && cursor.name() == key.name && cursor.section() == key.section) found[i] = cursor.number();
  }
  return found;
}

Catalog PackedCatalog::unpacked() const {
  Catalog catalog;
  catalog.tensors.reserve(size_);
  for (Cursor cursor(*this, 0); cursor.next();) catalog.tensors.push_back(cursor.tensor());
  return catalog;
}

PackedCatalog::Cursor::Cursor(const PackedCatalog& catalog, std::uint32_t number) : catalog_(catalog) {
  if (number >= catalog.size_) {
    next_ = catalog.size_;
    return;
  }
  const Restart& restart = catalog.restart_before(number);
  at_ = restart.at;
  next_ = restart.number;
  while (next_ < number) next();
}

bool PackedCatalog::Cursor::next() {
  if (next_ == catalog_.size_) return false;
  const std::uint64_t flags = get_number(catalog_.text_, at_);
  const std::uint64_t size_before = size_bytes_;
  read_name((flags & kIsRestart) != 0);
  same_type_ = (flags & kSameType) != 0;
  if (!same_type_) read_type();
  coding_ = (flags & kHasCoding) != 0 ? get_text(catalog_.text_, at_) : std::string_view();
  if (flags >= kHasPlace) read_place(flags, size_before);
  ++next_;
  return true;
}

void PackedCatalog::Cursor::read_name(bool is_restart) {
  if (is_restart) {
    section_ = get_text(catalog_.text_, at_);
    name_ = get_text(catalog_.text_, at_);
    return;
  }
  const std::uint64_t stays = get_number(catalog_.text_, at_);
  if (stays > name_.size()) throw broken();
  const std::string_view rest = get_text(catalog_.text_, at_);
  name_.resize(stays);
  name_ += rest;
}

void PackedCatalog::Cursor::read_type() {
  const std::uint64_t dtype = get_number(catalog_.text_, at_);
  const std::uint64_t dimensions = get_number(catalog_.text_, at_);
  if (dtype >= kDTypeCount || dimensions > catalog_.text_.size() - at_) throw broken();
  dtype_ = static_cast<DType>(dtype);
  shape_.resize(dimensions);
  for (std::uint64_t& size : shape_) size = get_number(catalog_.text_, at_);
  size_bytes_ = format::try_tensor_bytes(dtype_, shape_).bytes;
}

void PackedCatalog::Cursor::read_place(std::uint64_t flags, std::uint64_t size_before) {
  in_parts_ = (flags & kHasBoxes) != 0;
  boxes_.clear();
  if (in_parts_) {
    read_boxes();
  } else if ((flags & kIsBehind) != 0) {
    offset_bytes_ += size_before;
  } else {
    file_ = base::narrow<std::uint32_t>(get_number(catalog_.text_, at_), "file number");
    offset_bytes_ = get_number(catalog_.text_, at_);
  }
}

void PackedCatalog::Cursor::read_boxes() {
  const std::uint64_t boxes = get_number(catalog_.text_, at_);
  if (boxes > catalog_.text_.size() - at_) throw broken();
  boxes_.resize(boxes);
  for (format::StoredBox& stored : boxes_) {
    stored.file = base::narrow<std::uint32_t>(get_number(catalog_.text_, at_), "file number");
    stored.offset_bytes = get_number(catalog_.text_, at_);
    stored.row_elems = get_number(catalog_.text_, at_);
    for (std::size_t d = 0; d < shape_.size(); ++d) {
      stored.box.offset.push_back(get_number(catalog_.text_, at_));
      stored.box.shape.push_back(get_number(catalog_.text_, at_));
    }
  }
}

CatalogTensor PackedCatalog::Cursor::tensor() const {
  return {std::string(section_), name_, dtype_, {shape_.begin(), shape_.end()}, std::string(coding_)};
}

}  // namespace cairn::plan
