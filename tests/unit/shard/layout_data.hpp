// Reads tests/data/layouts: boxes that ranks of real frameworks held, and configurations of their small models.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "cairn/box.hpp"
#include "cairn/error.hpp"
#include "shard/box_math.hpp"
#include "shard/shard_map.hpp"

namespace cairn::shard {

inline std::string data_path(const std::string& name) {
  const char* root = std::getenv("CAIRN_TEST_DATA");
  if (root == nullptr) throw std::runtime_error("CAIRN_TEST_DATA is not set");
  return std::string(root) + "/" + name;
}

inline std::string read_text(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

inline nlohmann::ordered_json read_json(const std::string& name) {
  return nlohmann::ordered_json::parse(read_text(data_path("layouts/" + name)));
}

/// The config.json of a small Qwen2-like model in the samples.
inline std::string sample_config(const nlohmann::ordered_json& c) {
  nlohmann::json out = {{"model_type", "qwen2"},           {"torch_dtype", "bfloat16"},
                        {"hidden_size", c["hidden"]},      {"num_attention_heads", c["heads"]},
                        {"num_key_value_heads", c["kv"]},  {"head_dim", c["hd"]},
                        {"intermediate_size", c["inter"]}, {"num_hidden_layers", c["layers"]},
                        {"vocab_size", c["vocab"]}};
  return out.dump();
}

inline Box box(const nlohmann::ordered_json& pair) {
  return {pair[0].get<std::vector<std::uint64_t>>(), pair[1].get<std::vector<std::uint64_t>>()};
}

/// The boxes of one rank, by section and name: "model:lm_head.weight".
inline std::map<std::string, std::vector<Box>> held_by_name(const ShardMap& map,
                                                            const std::vector<std::string>& sections, int rank) {
  std::map<std::string, std::vector<Box>> out;
  for (const HeldTensor& held : map.held_by(rank)) {
    out[sections[held.tensor] + ":" + map.tensors()[held.tensor].name] = held.boxes;
  }
  return out;
}

struct State {
  std::vector<std::string> sections;
  std::vector<Tensor> tensors;

  void add(const std::string& section, const std::string& name, std::vector<std::uint64_t> shape,
           DType dtype = DType::kF32) {
    sections.push_back(section);
    tensors.push_back({name, dtype, std::move(shape)});
  }
  [[nodiscard]] ShardMap bind(const Layout& layout, const Model& model) const {
    return {layout, model, sections, tensors};
  }
};

inline State state_of(const Model& model) {
  State out;
  for (const SectionTensors& section : training_state(model)) {
    for (const Tensor& tensor : section.tensors) out.add(section.section, tensor.name, tensor.shape, tensor.dtype);
  }
  return out;
}

/// The message of the cairn::Error that `call` throws; fails the test if there is no error, or its kind is wrong.
template <class Call>
std::string error_of(ErrorKind kind, Call&& call) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.kind()), static_cast<int>(kind)) << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return "";
}

}  // namespace cairn::shard

namespace cairn {

/// Prints a box for GoogleTest.
inline void PrintTo(const Box& box, std::ostream* out) { *out << shard::to_string(box); }

}  // namespace cairn
