#include "pickle/pickle.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

#include "base/sort_texts.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "pickle/pickle_store.hpp"

namespace cairn::pickle {
namespace {

constexpr std::size_t kWarnings = 10;

/// Whether a call of that name makes an object of the class that is the call's first argument.
bool makes_its_argument(std::string_view name) {
  return name == "copyreg._reconstructor" || name == "copyreg.__newobj__" || name == "copyreg.__newobj_ex__";
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

/// Puts equal keys into one class, by sorting rather than hashing, since strangers choose the keys. Each key is
/// examined once, however often it is used.
class KeyClasses {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;  ///< class of a key that is not compared

  explicit KeyClasses(const PickleStore& store) : class_of_(store.nodes.size(), kNone) {
    std::vector<PickleIndex> texts;
    std::vector<PickleIndex> integers;
    for (const PickleNode& node : store.nodes) {
      const auto entries = store.entries_of(node);
      for (std::size_t i = 0; i < entries.size(); i += 2) {
        const PickleNode& key = store.nodes[entries[i]];
        if (class_of_[entries[i]] != kNone) continue;
        const bool is_text = key.is_inline && (key.kind == PickleKind::kText || key.is_old_string);
        if (!is_text && key.kind != PickleKind::kInteger) continue;
        class_of_[entries[i]] = 0;
        (is_text ? texts : integers).push_back(entries[i]);
      }
    }
    std::vector<std::string_view> words;
    words.reserve(texts.size());
    for (const PickleIndex text : texts) words.push_back(store.text_of(store.nodes[text]));
    const std::vector<std::uint32_t> order = base::order_of_texts(words);
    number(
        order.size(), [&](std::size_t i) { return texts[order[i]]; },
        [&](std::size_t i) { return words[order[i]] == words[order[i - 1]]; });
    const auto value_of = [&](PickleIndex integer) { return store.nodes[integer].place; };
    std::ranges::sort(integers, {}, value_of);
    number(
        integers.size(), [&](std::size_t i) { return integers[i]; },
        [&](std::size_t i) { return value_of(integers[i]) == value_of(integers[i - 1]); });
  }

  [[nodiscard]] std::uint32_t of(PickleIndex key) const { return class_of_[key]; }
  [[nodiscard]] std::size_t count() const { return count_; }

 private:
  /// Numbers the classes of sorted keys. A key for which `is_as_before` is true has the previous key's class.
  template <class KeyAt, class IsAsBefore>
  void number(std::size_t keys, const KeyAt& key_at, const IsAsBefore& is_as_before) {
    for (std::size_t i = 0; i < keys; ++i) {
      if (i == 0 || !is_as_before(i)) ++count_;
      class_of_[key_at(i)] = static_cast<std::uint32_t>(count_ - 1);
    }
  }

  std::vector<std::uint32_t> class_of_;  ///< by node
  std::size_t count_ = 0;
};

/// Keeps the last value of each key, at the place of the key's first value.
class EntryMerger {
 public:
  explicit EntryMerger(PickleStore& store) : store_(store), classes_(store), last_(classes_.count()) {}

  void merge(std::vector<PickleIndex>& entries) {
    ++merged_;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < entries.size(); i += 2) {
      if (const std::uint32_t number = classes_.of(entries[i]); number != KeyClasses::kNone) {
        Place& place = last_[number];
        if (place.of == merged_) {
          warn(store_.nodes[entries[i]]);
          entries[place.entry + 1] = entries[i + 1];
          continue;
        }
        place = {merged_, kept};
      }
      entries[kept] = entries[i];
      entries[kept + 1] = entries[i + 1];
      kept += 2;
    }
    entries.resize(kept);
  }

 private:
  struct Place {
    std::size_t of = 0;  ///< number of the merge
    std::size_t entry = 0;
  };

  void warn(const PickleNode& key) {
    if (store_.warnings.size() == kWarnings) return;
    const std::string name = key.kind == PickleKind::kInteger ? std::to_string(std::bit_cast<std::int64_t>(key.place))
                                                              : "'" + base::printable(store_.text_of(key)) + "'";
    store_.warnings.push_back(base::one_line(store_.path) + ": byte " + std::to_string(key.offset) + ": the key " +
                              name + " is set a second time; the last value counts");
  }

  PickleStore& store_;
  KeyClasses classes_;
  std::vector<Place> last_;  ///< by class
  std::size_t merged_ = 0;
};

/// Computes the heights of all values under the root without recursion, since a long file may nest values deeply.
class HeightWalk {
 public:
  HeightWalk(PickleStore& store, std::uint32_t limit) : store_(store), limit_(limit), heights_(store.nodes.size(), 0) {}

  void run() {
    open(store_.root);
    while (!path_.empty()) {
      Step& step = path_.back();
      const PickleNode& node = store_.nodes[step.index];
      if (step.next < store_.children_of(node)) {
        const PickleIndex child = store_.child_of(node, step.next++);
        if (heights_[child] == 0) {
          open(child);  // `step` is invalid from here on
        } else if (heights_[child] == kOpen) {
          store_.has_cycles = true;
        } else {
          step.height = std::max(step.height, heights_[child] + 1);
        }
        continue;
      }
      close();
    }
  }

 private:
  static constexpr std::uint32_t kOpen = UINT32_MAX;

  struct Step {
    PickleIndex index;
    std::uint32_t height;
    std::size_t next;
  };

  void open(PickleIndex index) {
    if (path_.size() == limit_) too_deep(index);
    heights_[index] = kOpen;
    path_.push_back({index, 1, 0});
  }

  void close() {
    const Step step = path_.back();
    path_.pop_back();
    if (step.height > limit_) too_deep(step.index);
    heights_[step.index] = step.height;
    if (!path_.empty()) path_.back().height = std::max(path_.back().height, step.height + 1);
  }

  [[noreturn]] void too_deep(PickleIndex index) const {
    store_.fail(store_.nodes[index].offset, "values lie in each other more than " + std::to_string(limit_) + " deep");
  }

  PickleStore& store_;
  std::uint32_t limit_;
  std::vector<std::uint32_t> heights_;  ///< 0: not seen
  std::vector<Step> path_;
};

}  // namespace

const char* name_of(PickleKind kind) {
  switch (kind) {
    case PickleKind::kNone: return "None";
    case PickleKind::kBool: return "a bool";
    case PickleKind::kInteger: return "an integer";
    case PickleKind::kLongInteger: return "an integer of more than 64 bits";
    case PickleKind::kFloat: return "a float";
    case PickleKind::kText: return "a text";
    case PickleKind::kBytes: return "bytes";
    case PickleKind::kList: return "a list";
    case PickleKind::kTuple: return "a tuple";
    case PickleKind::kDict: return "a dict";
    case PickleKind::kSet: return "a set";
    case PickleKind::kGlobal: return "the name of a class or function";
    case PickleKind::kObject: return "an object";
    case PickleKind::kPersistent: return "a persistent id";
  }
  return "?";
}

base::ByteSource source_of(std::span<const std::byte> bytes) {
  return {bytes.size(), [bytes](std::span<std::byte> to, std::uint64_t at_bytes) {
            std::ranges::copy(bytes.subspan(at_bytes, to.size()), to.begin());
          }};
}

// PickleStore

std::span<const PickleIndex> PickleStore::elements_of(const PickleNode& node) const {
  switch (node.kind) {
    case PickleKind::kTuple: return std::span(tuples).subspan(node.place, node.size);
    case PickleKind::kList:
    case PickleKind::kSet: return lists[node.place];
    case PickleKind::kObject: return objects[node.place].appended;
    default: return {};
  }
}

std::span<const PickleIndex> PickleStore::entries_of(const PickleNode& node) const {
  if (node.kind == PickleKind::kDict) return lists[node.place];
  if (node.kind == PickleKind::kObject) return objects[node.place].entries;
  return {};
}

std::size_t PickleStore::children_of(const PickleNode& node) const {
  const std::size_t parts = node.kind == PickleKind::kObject ? 4 : node.kind == PickleKind::kPersistent ? 1 : 0;
  return parts + elements_of(node).size() + entries_of(node).size();
}

PickleIndex PickleStore::child_of(const PickleNode& node, std::size_t i) const {
  if (node.kind == PickleKind::kPersistent) return static_cast<PickleIndex>(node.place);
  if (node.kind == PickleKind::kObject) {
    const PickleObject& object = objects[node.place];
    // A missing part is replaced by the arguments.
    const PickleIndex parts[] = {object.callable, object.arguments, object.keywords, object.state};
    if (i < 4) return parts[i] == kNoPickleValue ? object.arguments : parts[i];
    i -= 4;
  }
  const auto elements = elements_of(node);
  return i < elements.size() ? elements[i] : entries_of(node)[i - elements.size()];
}

void PickleStore::fail(std::uint64_t offset, const std::string& what) const {
  base::fail_format(path, "byte " + std::to_string(offset) + ": " + what);
}

void finish_pickle(PickleStore& store, std::uint32_t depth) {
  EntryMerger merger(store);
  for (const PickleNode& node : store.nodes) {
    if (node.kind == PickleKind::kDict) merger.merge(store.lists[node.place]);
    if (node.kind == PickleKind::kObject) merger.merge(store.objects[node.place].entries);
  }
  HeightWalk(store, depth).run();
}

// Pickle

Pickle::Pickle(std::unique_ptr<const PickleStore> store) : store_(std::move(store)) {}
Pickle::~Pickle() = default;
Pickle::Pickle(Pickle&&) noexcept = default;
Pickle& Pickle::operator=(Pickle&&) noexcept = default;

PickleValue Pickle::root() const { return {store_.get(), store_->root}; }
std::uint64_t Pickle::end() const { return store_->end; }
bool Pickle::has_cycles() const { return store_->has_cycles; }
const std::vector<std::string>& Pickle::warnings() const { return store_->warnings; }

// PickleValue

PickleKind PickleValue::kind() const { return store_->nodes[index_].kind; }

std::string PickleValue::where() const {
  return base::one_line(store_->path) + ": byte " + std::to_string(store_->nodes[index_].offset);
}

void PickleValue::fail(const std::string& what) const { store_->fail(store_->nodes[index_].offset, what); }

void PickleValue::expect(PickleKind wanted) const {
  if (kind() != wanted) fail(std::string("expected ") + name_of(wanted) + ", found " + name_of(kind()));
}

bool PickleValue::boolean() const {
  expect(PickleKind::kBool);
  return store_->nodes[index_].place != 0;
}

std::int64_t PickleValue::integer() const {
  expect(PickleKind::kInteger);
  return std::bit_cast<std::int64_t>(store_->nodes[index_].place);
}

std::uint64_t PickleValue::unsigned_integer() const {
  std::uint64_t value = 0;
  if (is(PickleKind::kLongInteger)) {
    const std::string digits = long_integer();
    const char* end = digits.data() + digits.size();
    if (digits.starts_with("0x") && std::from_chars(digits.data() + 2, end, value, 16).ec == std::errc{}) return value;
    fail("expected an integer from 0 to 2^64 - 1, found " + base::printable(digits, 40));
  }
  if (integer() < 0) fail("expected an integer from 0 to 2^64 - 1, found " + std::to_string(integer()));
  return static_cast<std::uint64_t>(integer());
}

std::string PickleValue::long_integer() const {
  if (is(PickleKind::kLongInteger)) return std::string(store_->text_of(store_->nodes[index_]));
  const std::int64_t value = integer();
  const std::uint64_t magnitude = value < 0 ? -static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  char digits[16];
  const auto end = std::to_chars(digits, digits + sizeof digits, magnitude, 16).ptr;
  return (value < 0 ? "-0x" : "0x") + std::string(digits, end);
}

double PickleValue::real() const {
  if (is(PickleKind::kInteger)) return static_cast<double>(integer());
  expect(PickleKind::kFloat);
  return std::bit_cast<double>(store_->nodes[index_].place);
}

bool PickleValue::is_text() const {
  const PickleNode& node = store_->nodes[index_];
  if (!node.is_inline) return false;
  return node.kind == PickleKind::kText || (node.is_old_string && is_ascii(store_->text_of(node)));
}

std::string_view PickleValue::text() const {
  const PickleNode& node = store_->nodes[index_];
  if (!is_text()) {
    if (node.kind == PickleKind::kText) fail("a text of " + std::to_string(node.size) + " bytes is not read");
    expect(PickleKind::kText);
  }
  return store_->text_of(node);
}

PickledBytes PickleValue::bytes() const {
  const PickleNode& node = store_->nodes[index_];
  if (node.kind != PickleKind::kText) expect(PickleKind::kBytes);
  PickledBytes out;
  out.size_bytes = node.size;
  if (node.header_bytes == 0) {
    out.form = PickledBytes::Form::kMemory;
  } else {
    out.offset = node.offset + node.header_bytes;
  }
  if (node.is_inline) {
    const auto bytes = base::as_bytes(store_->text_of(node));
    out.memory.emplace(bytes.begin(), bytes.end());
  }
  return out;
}

std::size_t PickleValue::size() const {
  if (!is(PickleKind::kTuple) && !is(PickleKind::kSet) && !is(PickleKind::kObject)) expect(PickleKind::kList);
  return store_->elements_of(store_->nodes[index_]).size();
}

PickleValue PickleValue::at(std::size_t i) const {
  if (i >= size()) fail("there is no element " + std::to_string(i) + " in " + std::to_string(size()));
  return {store_, store_->elements_of(store_->nodes[index_])[i]};
}

std::size_t PickleValue::entries() const {
  if (!is(PickleKind::kObject)) expect(PickleKind::kDict);
  return store_->entries_of(store_->nodes[index_]).size() / 2;
}

std::pair<PickleValue, PickleValue> PickleValue::entry(std::size_t i) const {
  if (i >= entries()) fail("there is no entry " + std::to_string(i) + " in " + std::to_string(entries()));
  const auto all = store_->entries_of(store_->nodes[index_]);
  return {PickleValue(store_, all[2 * i]), PickleValue(store_, all[2 * i + 1])};
}

std::optional<PickleValue> PickleValue::find(std::string_view key) const {
  for (std::size_t i = 0; i < entries(); ++i) {
    const auto [name, value] = entry(i);
    if (name.is_text() && name.text() == key) return value;
  }
  return std::nullopt;
}

std::string_view PickleValue::name() const {
  PickleValue at = *this;
  if (!at.is(PickleKind::kObject)) at.expect(PickleKind::kGlobal);
  // An object's callable may itself be an object; no program writes chains of more than eight.
  for (int calls = 0; at.is(PickleKind::kObject); ++calls) {
    if (calls == 8) return "?";
    const PickleValue callable = at.callable();
    const bool has_class = callable.is(PickleKind::kGlobal) && makes_its_argument(callable.name()) &&
                           at.arguments().size() > 0 && at.arguments().at(0).is(PickleKind::kGlobal);
    at = has_class ? at.arguments().at(0) : callable;
  }
  if (!at.is(PickleKind::kGlobal)) return "?";
  return store_->text_of(store_->nodes[at.index_]);
}

PickleValue PickleValue::callable() const {
  expect(PickleKind::kObject);
  return {store_, store_->objects[store_->nodes[index_].place].callable};
}

PickleValue PickleValue::arguments() const {
  expect(PickleKind::kObject);
  return {store_, store_->objects[store_->nodes[index_].place].arguments};
}

std::optional<PickleValue> PickleValue::keywords() const {
  expect(PickleKind::kObject);
  const PickleIndex index = store_->objects[store_->nodes[index_].place].keywords;
  return index == kNoPickleValue ? std::nullopt : std::optional(PickleValue(store_, index));
}

std::optional<PickleValue> PickleValue::state() const {
  expect(PickleKind::kObject);
  const PickleIndex index = store_->objects[store_->nodes[index_].place].state;
  return index == kNoPickleValue ? std::nullopt : std::optional(PickleValue(store_, index));
}

PickleValue PickleValue::persistent_id() const {
  expect(PickleKind::kPersistent);
  return {store_, static_cast<PickleIndex>(store_->nodes[index_].place)};
}

std::size_t PickleValue::children() const { return store_->children_of(store_->nodes[index_]); }

PickleValue PickleValue::child(std::size_t i) const {
  if (i >= children()) fail("there is no part " + std::to_string(i) + " in " + std::to_string(children()));
  return {store_, store_->child_of(store_->nodes[index_], i)};
}

}  // namespace cairn::pickle
