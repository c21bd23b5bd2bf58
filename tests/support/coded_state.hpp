// A directory with moments of every codec and shape among plain weights, and the expected content of its view.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "coded_files.hpp"
#include "quant/cast.hpp"
#include "random.hpp"

namespace cairn::test {

/// The whole tensors of a view by section and name.
using Truth = std::map<std::pair<std::string, std::string>, base::Bytes>;

inline base::Bytes random_floats(std::mt19937_64& random, std::size_t count, DType dtype) {
  std::vector<float> values(count);
  std::normal_distribution<float> normal;
  for (float& value : values) value = normal(random);
  base::Bytes out(count * bits_of(dtype) / 8);
  quant::cast_values(DType::kF32, std::as_bytes(std::span(values)), dtype, out);
  return out;
}

/// Writes moments of every codec and shape among plain tensors; returns the expected content of a view.
inline Truth write_state(const std::filesystem::path& directory, quant::PaddleDivision division) {
  std::filesystem::create_directories(directory);
  Truth truth;
  FileTensors optimizer;
  std::map<std::string, std::string> notes;
  std::uint64_t seed = test_seed();
  const auto add = [&](const std::string& codec, std::vector<std::uint64_t> shape) {
    const auto moments =
        CodedMoments::random(codec, "p" + std::to_string(notes.size()) + "." + codec, std::move(shape), ++seed);
    moments.add_to(optimizer, notes);
    auto [first, second] = moments.decoded(division);
    truth[{"optimizer", moments.first}] = std::move(first);
    truth[{"optimizer", moments.second}] = std::move(second);
  };
  for (const char* codec : {"q8", "q4"}) {
    add(codec, {24, 256});
    add(codec, {31, 101});  // flattened, with a short last block
    add(codec, {3, 5, 384});
    add(codec, {2, 9000});
  }
  add("paddle-o1", {50, 33});
  add("paddle-o1", {70});
  add("paddle-o2", {96, 41});
  auto random = make_random(3);
  optimizer["plain.exp_avg"] = {DType::kF32, {7, 9}, random_floats(random, 63, DType::kF32)};
  truth[{"optimizer", "plain.exp_avg"}] = optimizer["plain.exp_avg"].bytes;
  write_safetensors(directory / "optimizer.safetensors", optimizer, notes);
  FileTensors model;
  model["w"] = {DType::kBF16, {40, 30}, random_floats(random, 1200, DType::kBF16)};
  model["norm"] = {DType::kF32, {30}, random_floats(random, 30, DType::kF32)};
  for (const auto& [name, tensor] : model) {
    truth[{"model", name}] = tensor.bytes;
    base::Bytes wide(tensor.bytes.size() * 32 / bits_of(tensor.dtype));
    quant::cast_values(tensor.dtype, tensor.bytes, DType::kF32, wide);
    truth[{"master_weights", name}] = std::move(wide);
  }
  write_safetensors(directory / "model.safetensors", model, {});
  return truth;
}

}  // namespace cairn::test
