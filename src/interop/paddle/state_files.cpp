#include "interop/paddle/state_files.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/digits.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "pickle/pickle.hpp"
#include "pickle/pickle_json.hpp"
#include "pickle/python_objects.hpp"

namespace cairn::interop {
namespace {

constexpr std::uint64_t kMostBytes = 256 << 10;       // limit of a value's JSON: holds eight ranks' random states
constexpr std::uint64_t kMostFileBytes = 1024 << 10;  // limit of the files for one value
constexpr std::uint64_t kMostMemoryBytes = 64 << 20;  // limit of a pickle's values in memory
constexpr const char* kScheduler = "scheduler.pdparams";
constexpr const char* kScaler = "scaler.pdparams";
constexpr const char* kTrainerJson = "trainer_state.json";
constexpr const char* kTrainerPickle = "trainer_state.bin";
constexpr const char* kRandomOfOne = "rng_state.pth";
constexpr std::string_view kRandom = "rng_state";
constexpr std::string_view kRandomSuffix = ".pth";

/// 3 for "rng_state_3.pth".
std::optional<std::uint64_t> number_in(std::string_view file) {
  if (!file.starts_with(kRandom) || !file.ends_with(kRandomSuffix)) return std::nullopt;
  file.remove_prefix(kRandom.size());
  if (file.size() < kRandomSuffix.size() + 2 || file.front() != '_') return std::nullopt;
  const std::string_view digits = file.substr(1, file.size() - 1 - kRandomSuffix.size());
  if (digits.size() >= 10 || !base::is_all_digits(digits)) return std::nullopt;
  return std::stoull(std::string(digits));
}

class Teller {
 public:
  Teller(Reading& reading, About& about) : reading_(reading), about_(about) {}

  void tell() {
    tell_of("scheduler", kScheduler);
    tell_of("scaler", kScaler);
    tell_of_trainer();
    tell_of_random();
  }

 private:
  [[nodiscard]] bool has(const std::string& file) const { return reading_.directory().others.contains(file); }

  void leave(const std::string& file, std::string_view why) {
    about_.left.push_back(fmt::format("{}: {}", shown(file), why));
  }

  void leave_large(const std::string& file) {
    leave(file,
          fmt::format("it is more than the {} that all ranks are given of a value", base::format_size(kMostBytes)));
  }

  void put(const std::string& key, const std::string& text, const std::vector<std::string>& files) {
    if (text.size() > kMostBytes) return leave_large(files.front());
    about_.values[key] = text;
    about_.sources.insert(about_.sources.end(), files.begin(), files.end());
  }

  struct Value {
    std::string json;
    bool is_list = false;
  };

  /// The value in a pickle. A fault in the pickle becomes a line in `left`.
  std::optional<Value> value_in(const std::string& file) {
    try {
      const base::ByteSource source = reading_.open(file);
      if (!source.read) return std::nullopt;
      if (source.size_bytes > kMostFileBytes) {
        leave_large(file);
        return std::nullopt;
      }
      pickle::PickleOptions options;
      options.memory_bytes = kMostMemoryBytes;
      const pickle::Pickle pickle = pickle::read_pickle(source, reading_.raw_path_of(file), options);
      if (const auto json = pickle::json_of(state_in(pickle.root()), kMostBytes))
        return Value{json->dump(), json->is_array()};
      leave_large(file);
      return std::nullopt;
    } catch (const Error& error) {
      about_.left.emplace_back(error.what());
      return std::nullopt;
    }
  }

  /// The attributes of a PaddleFormers TrainerState object, whose step is noted; `root` itself for any other value.
  pickle::PickleValue state_in(pickle::PickleValue root) {
    if (!root.is(pickle::PickleKind::kObject) || !root.name().ends_with(".TrainerState")) return root;
    const auto state = root.state();
    if (!state) return root;
    const auto entries = pickle::dict_of(*state);
    if (!entries) return root;
    const auto step = state->find("global_step");
    const auto number = step ? pickle::integer_of(*step) : std::nullopt;
    if (!about_.step && number && *number >= 0) about_.step = static_cast<std::uint64_t>(*number);
    return *state;
  }

  void tell_of(const std::string& key, const std::string& file) {
    if (!has(file)) return;
    if (const auto value = value_in(file)) put(key, value->json, {file});
  }

  void tell_of_trainer() {
    const auto text = reading_.directory().json.find(kTrainerJson);
    if (text == reading_.directory().json.end()) {
      return has(kTrainerJson) ? leave_large(kTrainerJson) : tell_of("trainer_state", kTrainerPickle);
    }
    if (text->second.size() > kMostFileBytes) return leave_large(kTrainerJson);
    try {
      (void)base::Json::parse(text->second, reading_.raw_path_of(kTrainerJson),
                              {.dialect = base::JsonDialect::kPython});
      put("trainer_state", base::compact_json(text->second), {kTrainerJson});
    } catch (const Error&) {  // reported by tell_of_trainer() of state_beside.hpp
    }
  }

  /// A single process writes "rng_state.pth"; for several, PaddleNLP writes "rng_state_4.pth" with a list of all four
  /// states, and PaddleFormers writes separate files, "rng_state_0.pth" and so on.
  void tell_of_random() {
    std::map<std::uint64_t, std::string> of_numbers;
    std::uint64_t bytes = 0;
    for (const auto& [file, size] : reading_.directory().others) {
      const auto number = number_in(file);
      if (!number) continue;
      of_numbers.emplace(*number, file);
      bytes += std::min(size, kMostFileBytes + 1);
    }
    if (of_numbers.empty()) return tell_of(std::string(kRandom), kRandomOfOne);
    const std::string& first = of_numbers.begin()->second;
    if (bytes > kMostFileBytes) return leave_large(first);
    if (of_numbers.size() > 1 && of_numbers.rbegin()->first + 1 != of_numbers.size()) {
      return leave(first, "the random states of other ranks are missing");
    }
    std::string list;
    std::vector<std::string> files;
    for (const auto& [number, file] : of_numbers) {
      const auto value = value_in(file);
      if (!value) return;
      files.push_back(file);
      if (value->is_list && of_numbers.size() == 1) return put(std::string(kRandom), value->json, files);
      list += (list.empty() ? "" : ",") + value->json;
    }
    put(std::string(kRandom), "[" + list + "]", files);
  }

  Reading& reading_;
  About& about_;
};

}  // namespace

void tell_of_state(Reading& reading, About& about) { Teller(reading, about).tell(); }

bool is_paddle_state_file(std::string_view name) {
  constexpr std::array<std::string_view, 5> kNames = {kScheduler, kScaler, kTrainerJson, kTrainerPickle, kRandomOfOne};
  return std::ranges::find(kNames, name) != kNames.end() || number_in(name);
}

}  // namespace cairn::interop
