#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "cairn/error.hpp"
#include "fuzz_checks.hpp"
#include "fuzz_entry.hpp"
#include "interop/directory.hpp"
#include "pickle/pickle.hpp"
#include "pickle/pickle_json.hpp"
#include "pickle/python_objects.hpp"
#include "recognised_checks.hpp"

namespace cairn::fuzz {
namespace {

using namespace cairn::format;

constexpr pickle::PickleOptions kSmall{.may_go_on = true, .inline_bytes = 64, .memory_bytes = 1 << 20, .depth = 50};

/// Accessors and the list of known calls may refuse an unexpected value.
void may_refuse(const std::function<void()>& look) {
  const auto refusal = refusal_of(look, {ErrorKind::kFormat});
  require(!refusal || refusal->starts_with("path: byte "), "a message must begin with the place");
}

class Looker {
 public:
  Looker(const pickle::Pickle& pickle, std::span<const std::byte> input) : pickle_(pickle), input_(input) {}

  void look() {
    visit(pickle_.root(), 1);
    may_refuse([&] {
      const auto json = pickle::json_of(pickle_.root(), 4000);
      if (json) require(base::Json::parse(json->dump(), "json") == *json, "what is written as JSON must be JSON");
    });
  }

 private:
  /// Visits values recursively, as a reader may do with a pickle that has no cycles.
  void visit(pickle::PickleValue value, std::uint32_t depth) {
    require(pickle_.has_cycles() || depth <= kSmall.depth, "an accepted pickle must not be deeper than the limit");
    if (is_seen_.size() <= value.id()) is_seen_.resize(value.id() + 1);
    if (is_seen_[value.id()]) return;
    is_seen_[value.id()] = true;
    may_refuse([&] { read(value); });
    may_refuse([&] { interpret(value); });
    for (std::size_t i = 0; i < value.children(); ++i) visit(value.child(i), depth + 1);
  }

  void check_bytes(const pickle::PickledBytes& bytes) {
    if (bytes.form == pickle::PickledBytes::Form::kMemory) {
      require(bytes.memory && bytes.memory->size() == bytes.size_bytes, "bytes without a place must be in memory");
      return;
    }
    require(bytes.offset <= input_.size() && bytes.size_bytes <= input_.size() - bytes.offset,
            "bytes must lie in the file");
    if (bytes.form != pickle::PickledBytes::Form::kPlain || !bytes.memory) return;
    require(std::ranges::equal(*bytes.memory, input_.subspan(bytes.offset, bytes.size_bytes)),
            "bytes in memory must be those of the file");
  }

  void read(pickle::PickleValue value) {
    (void)value.where();
    switch (value.kind()) {
      case pickle::PickleKind::kInteger:
      case pickle::PickleKind::kLongInteger:
        require(value.long_integer().find("0x") != std::string::npos, "an integer must have digits");
        (void)value.unsigned_integer();
        break;
      case pickle::PickleKind::kText:
        check_bytes(value.bytes());
        (void)value.text();
        break;
      case pickle::PickleKind::kBytes: check_bytes(value.bytes()); break;
      case pickle::PickleKind::kDict:
        for (std::size_t i = 0; i < value.entries(); ++i) {
          const pickle::PickleValue key = value.entry(i).first;
          if (!key.is_text()) continue;
          require(value.find(key.text())->id() == value.entry(i).second.id(), "a key must have one value");
        }
        break;
      case pickle::PickleKind::kGlobal:
      case pickle::PickleKind::kObject: require(!value.name().empty(), "a class must have a name"); break;
      default: break;
    }
  }

  void interpret(pickle::PickleValue value) {
    (void)pickle::plain(value);
    may_refuse([&] { (void)pickle::dict_of(value); });
    may_refuse([&] { (void)pickle::number_of(value); });
    may_refuse([&] { (void)pickle::integer_of(value); });
    if (const auto bytes = pickle::bytes_of(value)) check_bytes(*bytes);
    const auto array = pickle::array_of(value);
    if (!array) return;
    check_bytes(array->data);
    std::uint64_t given = 0;
    pickle::give_bytes(array->data, pickle::source_of(input_), "path", array->data_bytes,
                       [&](std::span<const std::byte> piece) { given += piece.size(); });
    require(given == array->data_bytes, "an array must have the bytes of its shape");
  }

  const pickle::Pickle& pickle_;
  std::span<const std::byte> input_;
  std::vector<bool> is_seen_;
};

bool accepts(std::span<const std::byte> input, const pickle::PickleOptions& options) {
  bool is_accepted = false;
  may_refuse([&] {
    (void)pickle::read_pickle(pickle::source_of(input), "path", options);
    is_accepted = true;
  });
  return is_accepted;
}

/// A checkpoint directory of PaddlePaddle in which all files of a kind have the same content.
interop::Directory directory_of(std::span<const std::byte> weights, std::span<const std::byte> others,
                                const std::vector<std::string>& files) {
  const auto content_of = [=](const std::string& file) { return file.ends_with(".pdparams") ? weights : others; };
  interop::Directory directory;
  directory.path = "path";
  directory.json["config.json"] = R"({"model_type": "llama", "vocab_size": 4, "num_key_value_heads": 1})";
  for (const std::string& file : files) directory.others[file] = content_of(file).size();
  directory.access.open = [=](const std::string& file) { return pickle::source_of(content_of(file)); };
  return directory;
}

/// Describes directories whose files of weights hold the pickle, input[0, end), and whose other files hold the rest.
void describe_as_checkpoint(std::span<const std::byte> input, std::uint64_t end) {
  const std::vector<std::vector<std::string>> directories = {
      {"model_state.pdparams", "optimizer.pdopt", "trainer_state.bin", "rng_state.pth"},
      {"model_state.tp00.pdparams", "model_state.tp01.pdparams", "optimizer.tp00_shard00.pdopt",
       "optimizer.tp00_shard01.pdopt", "optimizer.tp01_shard00.pdopt", "optimizer.tp01_shard01.pdopt"},
      {"lora_model_state.pdparams", "optimizer.tp00.pdopt", "optimizer.tp01.pdopt"}};
  for (const auto& files : directories) {
    const interop::Directory directory = directory_of(input.first(end), input.subspan(end), files);
    const auto refusal = refusal_of([&] { check_boxes(interop::recognise(directory)); }, {ErrorKind::kFormat});
    require(!refusal || refusal->starts_with("path"), "a message must begin with the place");
  }
}

}  // namespace

void feed_all_parsers(std::span<const std::byte> input) {
  may_refuse([&] {
    const pickle::Pickle pickle = pickle::read_pickle(pickle::source_of(input), "path", kSmall);
    require(pickle.end() <= input.size(), "a pickle must end in its file");
    Looker(pickle, input).look();
    describe_as_checkpoint(input, pickle.end());
    pickle::PickleOptions whole = kSmall;
    whole.may_go_on = false;
    require(accepts(input.first(pickle.end()), whole), "a pickle must not need what follows it");
    require(!accepts(input.first(pickle.end() - 1), whole), "a pickle without its end must be refused");
    require(accepts(input, whole) == (pickle.end() == input.size()), "what follows a pickle must be refused");
  });
}

}  // namespace cairn::fuzz
