// Cairn's files for PaddlePaddle's trainers: the conventions of PaddleNLP and of PaddleFormers,
// and the indexes that their loaders require. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/hf_index.hpp"

namespace cairn::interop {

/// One of Paddle's two trainers.
struct PaddlePackage {
  std::string_view word;          ///< value of `convert --to` and Options::files.form
  std::string_view name;          ///< in messages
  std::string_view files;         ///< in messages
  std::string_view model_format;  ///< `__metadata__` "format" of model files
  bool bf16_as_u16 = false;
  bool linears_out_in = false;     ///< in model files; masters and moments are [in, out] in both packages
  bool names_by_type = false;      ///< layer names begin with model_type ("llama."), not "model."
  std::string_view trainer_state;  ///< name of the package's file with the step
};

/// The package with that word; null for any other word.
const PaddlePackage* paddle_package(std::string_view word);

/// Facts about a unified checkpoint, besides the tensors, that must survive from one checkpoint to the next.
/// A conversion, or a save in one of Paddle's forms, keeps the facts in the manifest's metadata, under kPaddleValue.
struct PaddleState {
  std::string stage = "O0";            ///< ckpt_quant_stage of Paddle's checkpoint
  std::uint64_t resume_times = 0;      ///< quant_ckpt_resume_times: number of times that this state was decoded from
                                       ///< codes
  std::optional<bool> linears_out_in;  ///< the model's linear weights are [out, in]; nothing: no model
  bool masters_as_model = false;       ///< skip_save_model_weight: section model has the F32 master weights

  friend bool operator==(const PaddleState&, const PaddleState&) = default;
};
inline constexpr const char* kPaddleValue = "paddle";
std::string encode_paddle_state(const PaddleState& state);
/// The state in a string; nothing if the string is invalid.
std::optional<PaddleState> parse_paddle_state(const std::string& text);

/// The part of an index that lists tensors.
struct PaddleIndex {
  std::vector<format::IndexEntry> tensors;
  std::vector<std::string> files;
  std::uint64_t total_bytes = 0;
};
/// The JSON of an index without the end, whose values may be known only later.
std::string begin_paddle_index(const PaddleIndex& index);
/// The end of an index's JSON. `extra`: top-level key -> JSON value.
std::string end_paddle_index(const std::map<std::string, std::string>& extra);

/// scheduler.pdparams: paddle.save of {"last_epoch": int, "last_lr": float}.
std::string encode_scheduler(std::uint64_t last_epoch, double last_lr);

/// The package's file with the step, from which the package's trainer knows how much data to skip: JSON, or a pickle of
/// the package's class TrainerState. Other fields are not written, and so have defaults.
std::string encode_trainer_state(const PaddlePackage& package, std::uint64_t step);

}  // namespace cairn::interop
