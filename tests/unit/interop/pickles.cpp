#include "pickles.hpp"

#include <stdexcept>

namespace cairn::interop::test::pickle {
namespace {

std::string number(std::uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
  return out;
}

std::string global(const std::string& module, const std::string& name) { return text(module) + text(name) + "\x93"; }

std::string call(const std::string& callable, const std::vector<std::string>& arguments) {
  return callable + tuple(arguments) + "R";
}

std::string bytes_of(const std::string& bytes) { return "B" + number(bytes.size(), 4) + bytes; }

std::string joined(const std::vector<std::string>& values) {
  std::string out;
  for (const std::string& value : values) out += value;
  return out;
}

const std::string kNone = "N";
const std::string kFalse = "\x89";
const std::string kTrue = "\x88";

}  // namespace

std::string text(const std::string& value) { return "X" + number(value.size(), 4) + value; }

std::string integer(std::uint32_t value) {
  if (value > 0x7FFFFFFF) throw std::runtime_error("too large");
  return "J" + number(value, 4);
}

std::string list(const std::vector<std::string>& values) { return "](" + joined(values) + "e"; }

std::string tuple(const std::vector<std::string>& values) { return "(" + joined(values) + "t"; }

std::string dict(const Entries& entries) {
  std::string out = "}(";
  for (const auto& [key, value] : entries) out += text(key) + value;
  return out + "u";
}

std::string object(const std::string& module, const std::string& name, const std::string& state) {
  return global(module, name) + ")\x81" + state + "b";
}

std::string array(const std::string& type, const std::vector<std::uint64_t>& shape, const std::string& bytes) {
  const bool is_big = type.starts_with('>');
  const std::string order = text(is_big ? ">" : "<");
  const std::string minus_one = "J\xff\xff\xff\xff";
  const std::string dtype = call(global("numpy", "dtype"), {text(is_big ? type.substr(1) : type), kFalse, kTrue}) +
                            tuple({integer(3), order, kNone, kNone, kNone, minus_one, minus_one, integer(0)}) + "b";
  std::vector<std::string> sizes;
  for (const std::uint64_t size : shape) sizes.push_back(integer(static_cast<std::uint32_t>(size)));
  const std::string made = call(global("numpy.core.multiarray", "_reconstruct"),
                                {global("numpy", "ndarray"), tuple({integer(0)}), bytes_of("b")});
  return made + tuple({integer(1), tuple(sizes), dtype, kFalse, bytes_of(bytes)}) + "b";
}

std::string counting(const std::string& type, const std::vector<std::uint64_t>& shape, unsigned first, unsigned step) {
  std::uint64_t size = static_cast<std::uint64_t>(type.back() - '0');
  for (const std::uint64_t length : shape) size *= length;
  std::string bytes;
  for (std::uint64_t i = 0; i < size; ++i) bytes += static_cast<char>((first + i * step) & 0xFF);
  return array(type, shape, bytes);
}

std::string tensor(const std::string& name, const std::string& array) {
  return call(global("builtins", "tuple"), {tuple({text(name), array})});
}

std::string file(const std::string& value) { return "\x80\x04" + value + "."; }

}  // namespace cairn::interop::test::pickle
