// The stack machine of pickles: the opcodes of protocols 0 to 5, as in Python's module pickletools.
//
// This reader is stricter than Python, which accepts input that no pickler writes and that has misled other readers.
// Here a memo entry can be set only once, PROTO can only come first, and only an object can get a state, and only once.
// As in Python, values may be left on the stack at the end.
#include <algorithm>
#include <array>
#include <bit>
#include <map>

#include "base/digits.hpp"
#include "base/text.hpp"
#include "pickle/pickle.hpp"
#include "pickle/pickle_input.hpp"
#include "pickle/pickle_store.hpp"
#include "pickle/pickle_text.hpp"

namespace cairn::pickle {
namespace {

class Machine {
 public:
  Machine(const base::ByteSource& source, std::string_view path, const PickleOptions& options)
      : input_(source, path, options.begin), options_(options), store_(std::make_unique<PickleStore>()) {
    store_->path = path;
  }

  Pickle run() {
    begin_ = input_.offset();
    for (is_done_ = false; !is_done_;) {
      at_ = input_.offset();
      const std::uint8_t opcode = input_.byte();
      const Operation operation = operations()[opcode];
      if (operation == nullptr) fail("there is no opcode " + shown(opcode) + ": it is damaged, or not a pickle");
      (this->*operation)();
    }
    store_->end = input_.offset();
    if (input_.left() > 0 && !options_.may_go_on) {
      fail("the pickle ends here, and " + base::counted(input_.left(), "byte follows", "bytes follow") + " it");
    }
    finish_pickle(*store_, options_.depth);
    return Pickle(std::move(store_));
  }

 private:
  using Operation = void (Machine::*)();
  using Operations = std::array<Operation, 256>;

  static const Operations& operations();
  static Operations make_operations();

  [[noreturn]] void fail(const std::string& what) const { input_.fail(at_, what); }

  static std::string shown(std::uint8_t opcode) {
    constexpr std::string_view kHex = "0123456789abcdef";
    const std::string code = std::string("0x") + kHex[opcode >> 4] + kHex[opcode & 15];
    return opcode > 0x20 && opcode < 0x7f ? code + " '" + static_cast<char>(opcode) + "'" : code;
  }

  // Memory

  /// Counts memory before it is allocated.
  void charge(std::uint64_t bytes) {
    used_bytes_ += bytes;
    const std::uint64_t passing = stack_.size() * sizeof(PickleIndex) + marks_.size() * sizeof(std::size_t);
    if (used_bytes_ + passing > options_.memory_bytes || store_->nodes.size() >= kNoPickleValue - 1) {
      fail("its values take more than " + base::format_size(options_.memory_bytes) + " of memory");
    }
  }

  PickleIndex make(PickleNode node) {
    charge(sizeof node);
    node.offset = at_;
    store_->nodes.push_back(node);
    return static_cast<PickleIndex>(store_->nodes.size() - 1);
  }

  void push(PickleIndex value) {
    charge(0);
    stack_.push_back(value);
  }

  void push_value(PickleKind kind, std::uint64_t place = 0) { push(make({.kind = kind, .place = place})); }

  std::uint64_t keep(std::string_view text) {
    charge(text.size());
    store_->text += text;
    return store_->text.size() - text.size();
  }

  // The stack. Values below the last mark are out of reach until an operation removes the mark.

  [[nodiscard]] std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  PickleIndex top() const {
    if (stack_.size() <= floor()) fail("it takes a value from an empty stack");
    return stack_.back();
  }

  PickleIndex pop() {
    const PickleIndex out = top();
    stack_.pop_back();
    return out;
  }

  /// Removes the last mark, and returns the values that were pushed since.
  std::vector<PickleIndex> pop_to_mark() {
    if (marks_.empty()) fail("it looks for a mark where none is");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    const std::vector<PickleIndex> out(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return out;
  }

  PickleNode& node(PickleIndex index) { return store_->nodes[index]; }
  PickleKind kind(PickleIndex index) const { return store_->nodes[index].kind; }
  PickleObject& object(PickleIndex index) { return store_->objects[node(index).place]; }

  // Numbers

  void push_none() { push_value(PickleKind::kNone); }
  template <bool value>
  void push_bool() {
    push_value(PickleKind::kBool, value ? 1 : 0);
  }
  template <std::uint64_t bytes>
  void push_short_integer() {
    push_value(PickleKind::kInteger, input_.number(bytes));
  }
  void push_four_byte_integer() {
    const auto value = static_cast<std::int32_t>(static_cast<std::uint32_t>(input_.number(4)));
    push_value(PickleKind::kInteger, static_cast<std::uint64_t>(static_cast<std::int64_t>(value)));
  }

  /// An integer of up to 512 bytes, little-endian, in two's complement.
  template <std::uint64_t length_bytes>
  void push_long() {
    const std::uint64_t bytes = input_.number(length_bytes);
    if (bytes > kLongestIntegerBytes) fail("an integer of " + std::to_string(bytes) + " bytes is too long");
    push_integer(PickleInteger::from_bytes(input_.take(bytes)));
  }

  void push_integer(const PickleInteger& value) {
    if (const auto small = value.small()) {
      push_value(PickleKind::kInteger, static_cast<std::uint64_t>(*small));
    } else {
      push_text(PickleKind::kLongInteger, value.hexadecimal());
    }
  }

  void push_decimal(std::string_view digits) {
    const auto value = PickleInteger::from_decimal(digits);
    if (!value) fail("'" + base::printable(digits, 40) + "' is not an integer, or too long");
    push_integer(*value);
  }
  void push_integer_line() {
    const std::string_view line = input_.line();
    if (line == "00" || line == "01") return push_value(PickleKind::kBool, line == "01" ? 1 : 0);
    push_decimal(line);
  }
  void push_long_line() {
    std::string_view line = input_.line();
    if (line.ends_with('L')) line.remove_suffix(1);
    push_decimal(line);
  }

  void push_real(double value) { push_value(PickleKind::kFloat, std::bit_cast<std::uint64_t>(value)); }
  void push_float() { push_real(input_.real()); }
  void push_float_line() {
    const std::string_view line = input_.line();
    const auto value = base::number_in<double>(line);
    if (!value) fail("'" + base::printable(line, 40) + "' is not a float");
    push_real(*value);
  }

  // Text and byte strings

  /// Pushes a string that is in memory.
  void push_text(PickleKind kind, std::string_view text, bool is_old_string = false) {
    const std::uint64_t place = keep(text);
    push(make({.kind = kind, .is_inline = true, .is_old_string = is_old_string, .place = place, .size = text.size()}));
  }

  /// Pushes a byte or text string that the source has unchanged; reads it if it is short.
  template <PickleKind kind, std::uint64_t length_bytes, bool is_old_string = false>
  void push_range() {
    const std::uint64_t bytes = input_.number(length_bytes);
    PickleNode out{.kind = kind,
                   .header_bytes = static_cast<std::uint8_t>(1 + length_bytes),
                   .is_inline = bytes <= options_.inline_bytes,
                   .is_old_string = is_old_string,
                   .size = bytes};
    if (out.is_inline) {
      const std::string_view text = input_.take(bytes);
      if (kind == PickleKind::kText && !base::is_utf8(text)) fail("a text is not UTF-8");
      out.place = keep(text);
    } else {
      input_.skip(bytes);
    }
    push(make(out));
  }

  void push_text_line() {
    std::string text;
    if (!unescape_unicode(input_.line(), text)) fail("a text has an escape that is none, or is not Unicode");
    push_text(PickleKind::kText, text);
  }
  void push_quoted_line() {
    std::string text;
    if (!unescape_quoted(input_.line(), text)) fail("a text is not quoted as Python quotes it");
    push_text(PickleKind::kBytes, text, true);
  }

  // Containers

  void push_list(PickleKind kind, std::vector<PickleIndex> elements) {
    charge(sizeof elements + elements.size() * sizeof(PickleIndex));
    store_->lists.push_back(std::move(elements));
    push_value(kind, store_->lists.size() - 1);
  }
  template <PickleKind kind>
  void push_empty() {
    push_list(kind, {});
  }
  template <PickleKind kind>
  void push_from_mark() {
    push_list(kind, pop_to_mark());
  }
  void push_dict_from_mark() {
    std::vector<PickleIndex> entries = pop_to_mark();
    check_entries(entries);
    push_list(PickleKind::kDict, std::move(entries));
  }

  void push_tuple(std::span<const PickleIndex> elements) {
    charge(elements.size_bytes());
    auto& tuples = store_->tuples;
    const std::uint64_t place = tuples.size();
    tuples.insert(tuples.end(), elements.begin(), elements.end());
    push(make({.kind = PickleKind::kTuple, .place = place, .size = elements.size()}));
  }
  template <std::size_t count>
  void push_short_tuple() {
    std::array<PickleIndex, count> elements{};
    for (std::size_t i = count; i-- > 0;) elements[i] = pop();
    push_tuple(elements);
  }
  void push_tuple_from_mark() { push_tuple(pop_to_mark()); }

  void append(std::span<const PickleIndex> elements) {
    extend_top(PickleKind::kList, &PickleObject::appended, elements, "it appends to ");
  }
  void append_one() {
    const PickleIndex element = pop();
    append({&element, 1});
  }
  void append_from_mark() { append(pop_to_mark()); }
  void add_from_mark() { extend_top(PickleKind::kSet, &PickleObject::appended, pop_to_mark(), "it adds to "); }

  void set(std::span<const PickleIndex> entries) {
    check_entries(entries);
    extend_top(PickleKind::kDict, &PickleObject::entries, entries, "it sets entries of ");
  }
  void set_one() {
    const PickleIndex value = pop();
    const PickleIndex entry[] = {pop(), value};
    set(entry);
  }
  void set_from_mark() { set(pop_to_mark()); }

  void check_entries(std::span<const PickleIndex> entries) {
    if (entries.size() % 2 != 0) fail("a key has no value");
    for (std::size_t i = 0; i < entries.size(); i += 2) {
      const PickleKind key = kind(entries[i]);
      const bool can_change = key == PickleKind::kList || key == PickleKind::kDict;
      if (can_change) fail(std::string(name_of(key)) + " as a key");
    }
  }

  /// Adds values to the value at the top of the stack: a container of that kind, or an object.
  void extend_top(PickleKind container, std::vector<PickleIndex> PickleObject::*of_object,
                  std::span<const PickleIndex> from, const char* action) {
    const PickleIndex to = top();
    charge(from.size_bytes());
    const bool is_object = kind(to) == PickleKind::kObject;
    if (!is_object && kind(to) != container) fail(action + std::string(name_of(kind(to))));
    std::vector<PickleIndex>& all = is_object ? object(to).*of_object : store_->lists[node(to).place];
    all.insert(all.end(), from.begin(), from.end());
  }

  // Names and calls

  void push_global(std::string_view module, std::string_view name) {
    if (module.empty() || name.empty()) fail("the name of a class or function is empty");
    // Modules with two names: protocols 0 to 2 use the names in Python 2, and numpy 2 has renamed some modules.
    std::string full(module);
    if (module == "__builtin__") full = "builtins";
    if (module == "copy_reg") full = "copyreg";
    if (module.starts_with("numpy._core.")) full = "numpy.core." + std::string(module.substr(12));
    full += '.';
    full += name;
    push_text(PickleKind::kGlobal, full);
  }
  void push_global_lines() {
    const std::string module(input_.line());
    const std::string name(input_.line());
    check_name(module);
    check_name(name);
    push_global(module, name);
  }
  void push_global_of_stack() {
    const std::string name = pop_name();
    push_global(pop_name(), name);
  }
  std::string pop_name() {
    const PickleIndex from = pop();
    const PickleNode& text = node(from);
    if (text.kind != PickleKind::kText) {
      fail(std::string("the name of a class or function is ") + name_of(text.kind));
    }
    if (!text.is_inline || text.size > kLongestName) fail("the name of a class or function is too long");
    return std::string(store_->text_of(text));
  }
  void check_name(std::string_view name) {
    if (name.size() > kLongestName) fail("the name of a class or function is too long");
    if (!base::is_utf8(name)) fail("the name of a class or function is not UTF-8");
  }

  void push_object(PickleIndex callable, PickleIndex arguments, PickleIndex keywords = kNoPickleValue) {
    const PickleKind what = kind(callable);
    const bool can_be_called =
        what == PickleKind::kGlobal || what == PickleKind::kObject || what == PickleKind::kPersistent;
    if (!can_be_called) fail(std::string("it calls ") + name_of(what));
    if (kind(arguments) != PickleKind::kTuple) {
      fail(std::string("the arguments of a call are ") + name_of(kind(arguments)));
    }
    charge(sizeof(PickleObject));
    store_->objects.emplace_back();
    store_->objects.back().callable = callable;
    store_->objects.back().arguments = arguments;
    store_->objects.back().keywords = keywords;
    push_value(PickleKind::kObject, store_->objects.size() - 1);
  }
  void push_call() {
    const PickleIndex arguments = pop();
    push_object(pop(), arguments);
  }
  void push_call_with_keywords() {
    const PickleIndex keywords = pop();
    const PickleIndex arguments = pop();
    if (kind(keywords) != PickleKind::kDict) fail(std::string("keyword arguments are ") + name_of(kind(keywords)));
    push_object(pop(), arguments, keywords);
  }
  /// INST: the class by name, and its arguments since the mark.
  void push_instance() {
    const auto arguments = pop_to_mark();
    push_global_lines();
    const PickleIndex callable = pop();
    push_tuple(arguments);
    const PickleIndex tuple = pop();
    push_object(callable, tuple);
  }
  /// OBJ: the class and its arguments since the mark.
  void push_object_from_mark() {
    const auto parts = pop_to_mark();
    if (parts.empty()) fail("it takes a value from an empty stack");
    push_tuple(std::span(parts).subspan(1));
    const PickleIndex tuple = pop();
    push_object(parts.front(), tuple);
  }
  void give_state() {
    const PickleIndex state = pop();
    const PickleIndex to = top();
    if (kind(to) != PickleKind::kObject) fail(std::string("it gives a state to ") + name_of(kind(to)));
    if (object(to).state != kNoPickleValue) fail("an object gets a state a second time");
    object(to).state = state;
  }

  void push_persistent() { push_value(PickleKind::kPersistent, pop()); }
  void push_persistent_line() {
    const std::string id(input_.line());
    if (!base::is_utf8(id)) fail("a persistent id is not UTF-8");
    push_text(PickleKind::kText, id);
    push_persistent();
  }
  void refuse_extension() { fail("it names a class by a number of copyreg's registry, which a file does not have"); }
  void refuse_buffer() { fail("it has data outside of the pickle (out-of-band buffers)"); }

  // The memo

  void put(std::uint64_t number) {
    const PickleIndex value = top();
    if (number == memo_.size() && sparse_memo_.empty()) {
      charge(sizeof value);
      memo_.push_back(value);
      return;
    }
    charge(kSparseMemoBytes);
    if (number < memo_.size() || !sparse_memo_.try_emplace(number, value).second) {
      fail("memo entry " + std::to_string(number) + " is set a second time");
    }
  }
  void get(std::uint64_t number) {
    if (number < memo_.size()) return push(memo_[number]);
    const auto found = sparse_memo_.find(number);
    if (found == sparse_memo_.end()) fail("there is no memo entry " + std::to_string(number));
    push(found->second);
  }
  void memoize() { put(memo_.size() + sparse_memo_.size()); }
  template <std::uint64_t bytes>
  void put_short() {
    put(input_.number(bytes));
  }
  template <std::uint64_t bytes>
  void get_short() {
    get(input_.number(bytes));
  }
  void put_line() { put(memo_line()); }
  void get_line() { get(memo_line()); }
  std::uint64_t memo_line() {
    const std::string_view line = input_.line();
    const auto number = base::number_in<std::uint64_t>(line);
    if (!number) fail("'" + base::printable(line, 40) + "' is not the number of a memo entry");
    return *number;
  }

  // The machine itself

  void set_mark() {
    charge(sizeof(std::size_t));
    marks_.push_back(stack_.size());
    used_bytes_ -= sizeof(std::size_t);
  }
  void drop_top() {
    if (!marks_.empty() && marks_.back() == stack_.size()) {
      marks_.pop_back();
    } else {
      pop();
    }
  }
  void drop_to_mark() { pop_to_mark(); }
  void duplicate_top() { push(top()); }
  void read_protocol() {
    const std::uint8_t protocol = input_.byte();
    if (at_ != begin_) fail("the protocol is named in the middle of a pickle");
    if (protocol > kLatestProtocol) fail("protocol " + std::to_string(protocol) + " is not known");
  }
  /// A frame is a hint to buffered readers, and is only checked here.
  void read_frame() {
    const std::uint64_t bytes = input_.number(8);
    input_.need(bytes);
    frame_end_ = std::max(frame_end_, input_.offset() + bytes);
  }
  void stop() {
    store_->root = pop();
    if (frame_end_ > input_.offset()) fail("the pickle ends within a frame");
    is_done_ = true;
  }

  static constexpr std::uint64_t kLongestIntegerBytes = 512;
  static constexpr std::uint64_t kLongestName = 1000;
  static constexpr std::uint64_t kSparseMemoBytes = 64;
  static constexpr std::uint8_t kLatestProtocol = 5;

  PickleInput input_;
  PickleOptions options_;
  std::unique_ptr<PickleStore> store_;
  std::vector<PickleIndex> stack_;
  std::vector<std::size_t> marks_;                    ///< size of the stack at each mark
  std::vector<PickleIndex> memo_;                     ///< entries 0, 1, 2 and so on, as picklers number them
  std::map<std::uint64_t, PickleIndex> sparse_memo_;  ///< not hashed: strangers choose the numbers
  std::uint64_t frame_end_ = 0;                       ///< end of the frame that reaches furthest
  std::uint64_t used_bytes_ = 0;
  std::uint64_t begin_ = 0;
  std::uint64_t at_ = 0;  ///< offset of the current opcode
  bool is_done_ = false;
};

const Machine::Operations& Machine::operations() {
  static const Operations table = make_operations();
  return table;
}

Machine::Operations Machine::make_operations() {
  Operations out{};
  using enum PickleKind;
  // Protocol 0, and POP_MARK ('1') of protocol 1
  out['('] = &Machine::set_mark;
  out['.'] = &Machine::stop;
  out['0'] = &Machine::drop_top;
  out['1'] = &Machine::drop_to_mark;
  out['2'] = &Machine::duplicate_top;
  out['F'] = &Machine::push_float_line;
  out['I'] = &Machine::push_integer_line;
  out['L'] = &Machine::push_long_line;
  out['N'] = &Machine::push_none;
  out['P'] = &Machine::push_persistent_line;
  out['R'] = &Machine::push_call;
  out['S'] = &Machine::push_quoted_line;
  out['V'] = &Machine::push_text_line;
  out['a'] = &Machine::append_one;
  out['b'] = &Machine::give_state;
  out['c'] = &Machine::push_global_lines;
  out['d'] = &Machine::push_dict_from_mark;
  out['g'] = &Machine::get_line;
  out['i'] = &Machine::push_instance;
  out['l'] = &Machine::push_from_mark<kList>;
  out['p'] = &Machine::put_line;
  out['s'] = &Machine::set_one;
  out['t'] = &Machine::push_tuple_from_mark;
  // Protocol 1
  out[')'] = &Machine::push_short_tuple<0>;
  out[']'] = &Machine::push_empty<kList>;
  out['}'] = &Machine::push_empty<kDict>;
  out['G'] = &Machine::push_float;
  out['J'] = &Machine::push_four_byte_integer;
  out['K'] = &Machine::push_short_integer<1>;
  out['M'] = &Machine::push_short_integer<2>;
  out['Q'] = &Machine::push_persistent;
  out['T'] = &Machine::push_range<kBytes, 4, true>;
  out['U'] = &Machine::push_range<kBytes, 1, true>;
  out['X'] = &Machine::push_range<kText, 4>;
  out['e'] = &Machine::append_from_mark;
  out['h'] = &Machine::get_short<1>;
  out['j'] = &Machine::get_short<4>;
  out['o'] = &Machine::push_object_from_mark;
  out['q'] = &Machine::put_short<1>;
  out['r'] = &Machine::put_short<4>;
  out['u'] = &Machine::set_from_mark;
  // Protocol 2
  out[0x80] = &Machine::read_protocol;
  out[0x81] = &Machine::push_call;  // NEWOBJ
  out[0x82] = &Machine::refuse_extension;
  out[0x83] = &Machine::refuse_extension;
  out[0x84] = &Machine::refuse_extension;
  out[0x85] = &Machine::push_short_tuple<1>;
  out[0x86] = &Machine::push_short_tuple<2>;
  out[0x87] = &Machine::push_short_tuple<3>;
  out[0x88] = &Machine::push_bool<true>;
  out[0x89] = &Machine::push_bool<false>;
  out[0x8a] = &Machine::push_long<1>;
  out[0x8b] = &Machine::push_long<4>;
  // Protocol 3
  out['B'] = &Machine::push_range<kBytes, 4>;
  out['C'] = &Machine::push_range<kBytes, 1>;
  // Protocol 4
  out[0x8c] = &Machine::push_range<kText, 1>;
  out[0x8d] = &Machine::push_range<kText, 8>;
  out[0x8e] = &Machine::push_range<kBytes, 8>;
  out[0x8f] = &Machine::push_empty<kSet>;
  out[0x90] = &Machine::add_from_mark;
  out[0x91] = &Machine::push_from_mark<kSet>;
  out[0x92] = &Machine::push_call_with_keywords;
  out[0x93] = &Machine::push_global_of_stack;
  out[0x94] = &Machine::memoize;
  out[0x95] = &Machine::read_frame;
  // Protocol 5
  out[0x96] = &Machine::push_range<kBytes, 8>;
  out[0x97] = &Machine::refuse_buffer;
  out[0x98] = &Machine::refuse_buffer;
  return out;
}

}  // namespace

Pickle read_pickle(const base::ByteSource& source, std::string_view path, const PickleOptions& options) {
  return Machine(source, path, options).run();
}

}  // namespace cairn::pickle
