// A state of Adam moments of many shapes, divided among ranks, with realistic content; for tests of quantised saves.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "cut_out.hpp"
#include "quant/codec.hpp"
#include "shard/box_math.hpp"
#include "sharded_state.hpp"

namespace cairn::test {

/// A state with rows of whole and of partial blocks, one to three dimensions, and tensors that codecs leave alone.
inline std::vector<StateTensor> moment_state() {
  const std::map<std::string, std::vector<std::uint64_t>> shapes = {
      {"aligned", {64, 384}},     {"cube", {5, 7, 256}}, {"odd", {107, 40}}, {"long", {33, 1000}},
      {"odd_cube", {6, 10, 129}}, {"norm", {300}},       {"small", {4, 4}},  {"group", {96, 50}},
      {"square", {128, 128}},     {"row", {1, 4096}},
  };
  std::vector<StateTensor> tensors;
  for (const auto& [name, shape] : shapes) {
    tensors.push_back({"model", name, DType::kBF16, shape});
    tensors.push_back({"master_weights", name, DType::kF32, shape});
    tensors.push_back({"optimizer", name + "/moment1_0", DType::kF32, shape});
    tensors.push_back({"optimizer", name + "/moment2_0", DType::kF32, shape});
    tensors.push_back({"optimizer", name + "/beta1_pow_acc_0", DType::kF32, {1}});
  }
  return tensors;
}

/// Content of a whole F32 tensor, moments or weights; the first and second moments of one name belong together.
inline const std::vector<float>& moment_values(const StateTensor& tensor, int version) {
  static std::mutex mutex;  // simulated ranks are threads
  static std::map<std::pair<std::string, int>, std::vector<float>> made;
  const std::lock_guard lock(mutex);
  const auto [at, is_new] = made.try_emplace({tensor.name, version});
  if (!is_new) return at->second;
  const std::string name = tensor.name.substr(0, tensor.name.find('/')) + std::to_string(version);
  std::seed_seq seed(name.begin(), name.end());
  std::mt19937_64 random(seed);
  std::normal_distribution<double> gauss;
  std::vector<float>& values = at->second;
  values.resize(shard::elements_of(tensor.shape));
  for (float& value : values) {
    const double v = std::exp(2 * gauss(random) - 25);
    const double m = gauss(random) * std::sqrt(v);
    value = static_cast<float>(tensor.name.ends_with("moment2_0") ? v : m);
  }
  return values;
}

inline std::vector<std::byte> moment_bytes(const StateTensor& tensor, int version) {
  if (tensor.dtype == DType::kBF16) return whole_content(tensor, tensor.name.size(), version);
  const std::vector<float>& values = moment_values(tensor, version);
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// The bytes of `boxes`, cut out of a whole tensor.
inline std::vector<std::byte> cut_out(const std::vector<std::byte>& whole, const StateTensor& tensor,
                                      const std::vector<Box>& boxes) {
  return cut_out(whole, tensor.shape, bits_of(tensor.dtype) / 8, boxes);
}

/// The result of loading each whole tensor in version 1; with `codec`, of moments that were saved as codes.
inline std::vector<std::vector<std::byte>> loaded_content(const std::vector<StateTensor>& tensors,
                                                          const quant::Codec* codec) {
  std::vector<std::vector<std::byte>> content;
  for (const StateTensor& tensor : tensors) content.push_back(moment_bytes(tensor, 1));
  for (std::size_t i = 0; codec != nullptr && i + 1 < tensors.size(); ++i) {
    if (!tensors[i].name.ends_with("/moment1_0") || !codec->left_alone(tensors[i].shape).empty()) continue;
    const quant::Source source{tensors[i].name, tensors[i].shape};
    std::vector<float> moments[] = {moment_values(tensors[i], 1), moment_values(tensors[i + 1], 1)};
    const auto codes = quant::encode_whole(*codec, source, {moments[0], moments[1]});
    quant::decode_whole(*codec, source, codes, {}, {moments[0], moments[1]});
    for (std::size_t k = 0; k < 2; ++k) std::memcpy(content[i + k].data(), moments[k].data(), content[i + k].size());
  }
  return content;
}

/// One rank's part of the state, with its own memory.
class MomentRank {
 public:
  MomentRank(Cut cut, int rank, int ranks, std::vector<StateTensor> tensors = moment_state())
      : tensors_(std::move(tensors)) {
    std::size_t parameter = 0;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (i != 0 && parameter_of(i) != parameter_of(i - 1)) ++parameter;
      boxes_.push_back(cut_boxes(tensors_[i], parameter, cut, rank, ranks));  // the same for all moments of a name
      memory_.emplace_back(shard::elements_of(boxes_.back()) * bits_of(tensors_[i].dtype) / 8);
    }
  }

  void fill(int version) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      memory_[i] = cut_out(moment_bytes(tensors_[i], version), tensors_[i], boxes_[i]);
    }
  }

  std::vector<Source> sources() {
    std::vector<Source> sources(tensors_.size());
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const StateTensor& tensor = tensors_[i];
      static_cast<Shard&>(sources[i]) = {tensor.section, tensor.name, tensor.dtype, tensor.shape, boxes_[i]};
      sources[i].data = memory_[i].data();
    }
    return sources;
  }

  std::vector<Target> targets() {
    std::vector<Target> targets(tensors_.size());
    const std::vector<Source> same = sources();
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      static_cast<Shard&>(targets[i]) = same[i];
      targets[i].data = memory_[i].data();
    }
    return targets;
  }

  [[nodiscard]] const std::vector<StateTensor>& tensors() const { return tensors_; }
  [[nodiscard]] const std::vector<Box>& boxes(std::size_t i) const { return boxes_[i]; }
  std::vector<std::byte>& memory(std::size_t i) { return memory_[i]; }

  /// Fails unless all of this rank's memory matches the whole tensors; returns the number of bytes compared.
  std::uint64_t expect(const std::vector<std::vector<std::byte>>& content) const {
    std::uint64_t compared = 0;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      EXPECT_TRUE(memory_[i] == cut_out(content.at(i), tensors_[i], boxes_[i]))
          << tensors_[i].section << ' ' << tensors_[i].name;
      compared += memory_[i].size();
    }
    return compared;
  }

 private:
  [[nodiscard]] std::string parameter_of(std::size_t i) const {
    return tensors_[i].name.substr(0, tensors_[i].name.find('/'));
  }

  std::vector<StateTensor> tensors_;
  std::vector<std::vector<Box>> boxes_;
  std::vector<std::vector<std::byte>> memory_;
};

}  // namespace cairn::test
