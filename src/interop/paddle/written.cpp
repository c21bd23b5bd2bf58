#include "interop/paddle/written.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "base/json.hpp"
#include "cairn/error.hpp"

namespace cairn::interop {
namespace {

constexpr std::array<PaddlePackage, 2> kPackages = {
    PaddlePackage{"paddlenlp", "PaddleNLP", "PaddleNLP's files", "np", true, false, true, "trainer_state.json"},
    PaddlePackage{"paddleformers", "PaddleFormers", "PaddleFormers' files", "pt", false, true, false,
                  "trainer_state.bin"},
};

std::string little_endian(std::uint64_t value, std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>(i < 8 ? value >> (8 * i) & 0xFF : 0);
  return text;
}

// Pickles of protocol 4, each in one frame.

std::string framed(const std::string& body) { return "\x80\x04\x95" + little_endian(body.size(), 8) + body; }

/// Requires: `text` is shorter than 256 bytes.
std::string pickled(std::string_view text) { return "\x8C" + little_endian(text.size(), 1) + std::string(text); }

std::string pickled(std::uint64_t value) {
  if (value > 0x7FFFFFFF) return "\x8A\x09" + little_endian(value, 9);
  if (value > 0xFFFF) return "J" + little_endian(value, 4);
  if (value > 0xFF) return "M" + little_endian(value, 2);
  return "K" + little_endian(value, 1);
}

}  // namespace

const PaddlePackage* paddle_package(std::string_view word) {
  const auto* found = std::ranges::find(kPackages, word, &PaddlePackage::word);
  return found == kPackages.end() ? nullptr : found;
}

std::string encode_paddle_state(const PaddleState& state) {
  base::Json json = base::Json::object();
  json["ckpt_quant_stage"] = state.stage;
  json["quant_ckpt_resume_times"] = state.resume_times;
  if (state.linears_out_in) json["linears_out_in"] = *state.linears_out_in;
  if (state.masters_as_model) json["skip_save_model_weight"] = true;
  return json.dump();
}

std::optional<PaddleState> parse_paddle_state(const std::string& text) {
  try {
    const base::Json json = base::Json::parse(text, kPaddleValue);
    PaddleState state;
    if (const auto* stage = json.find("ckpt_quant_stage")) state.stage = stage->text();
    if (const auto* times = json.find("quant_ckpt_resume_times")) state.resume_times = times->whole_number();
    if (const auto* order = json.find("linears_out_in")) state.linears_out_in = order->boolean();
    if (const auto* skip = json.find("skip_save_model_weight")) state.masters_as_model = skip->boolean();
    return state;
  } catch (const Error&) {
    return std::nullopt;  // a user's value with the same name
  }
}

std::string begin_paddle_index(const PaddleIndex& index) {
  const base::JsonFormat ascii{.ascii = true};
  std::string text = "{\n    \"metadata\": {\n        \"total_size\": " + std::to_string(index.total_bytes) +
                     "\n    },\n    \"weight_map\": {";
  std::vector<std::string> files;  // quoted once: an index has many tensors per file
  for (const std::string& file : index.files) files.push_back(base::json_quoted(file, ascii));
  const char* separator = "\n        ";
  for (const format::IndexEntry& tensor : index.tensors) {
    text += separator;
    text += base::json_quoted(tensor.name, ascii);
    text += ": ";
    text += files.at(tensor.file);
    separator = ",\n        ";
  }
  return text + "\n    }";
}

std::string end_paddle_index(const std::map<std::string, std::string>& extra) {
  std::string text;
  for (const auto& [key, value] : extra) text += ",\n    " + base::json_quoted(key, {.ascii = true}) + ": " + value;
  return text + "\n}";
}

std::string encode_scheduler(std::uint64_t last_epoch, double last_lr) {
  std::string rate = little_endian(std::bit_cast<std::uint64_t>(last_lr), 8);
  std::ranges::reverse(rate);
  return framed("}\x94(" + pickled("last_epoch") + "\x94" + pickled(last_epoch) + pickled("last_lr") + "\x94G" + rate +
                "u.");
}

std::string encode_trainer_state(const PaddlePackage& package, std::uint64_t step) {
  if (package.trainer_state.ends_with(".json")) return "{\n  \"global_step\": " + std::to_string(step) + "\n}\n";
  return framed(pickled("paddleformers.trainer.trainer_callback") + pickled("TrainerState") + "\x93)\x81}" +
                pickled("global_step") + pickled(step) + "sb.");
}

}  // namespace cairn::interop
