#include "model.hpp"

#include <algorithm>
#include <cmath>

namespace trainer {
namespace {

constexpr double kOne = 1099511627776.0;  // 2^40: allows sums of up to 2^23, in steps of about 1e-12
constexpr double kLargest = 1000;         // larger values are clipped, as usual in training

}  // namespace

Fixed to_fixed(double value) { return static_cast<Fixed>(std::clamp(value, -kLargest, kLargest) * kOne); }
double from_fixed(Fixed value) { return static_cast<double>(value) / kOne; }

Model::Model(std::size_t width) {
  constexpr std::size_t kHidden = 2;
  std::size_t flat = 0;
  const auto add = [&](const std::string& name, std::vector<std::uint64_t> shape, std::size_t elements) {
    parameters.push_back({name, std::move(shape), flat, elements});
    flat += elements;
    return flat - elements;
  };
  for (std::size_t l = 0; l <= kHidden; ++l) {
    const std::size_t rows = l < kHidden ? width : 1;
    const std::size_t columns = l == 0 ? kInputs : width;
    const std::string name = "layers." + std::to_string(l);
    const std::size_t weight = add(name + ".weight", {rows, columns}, rows * columns);
    layers_.push_back({rows, columns, weight, add(name + ".bias", {rows}, rows)});
  }
  weights.resize(flat);
}

float Model::initial_weight(std::uint64_t seed, std::size_t i) const {
  const auto layer = std::find_if(layers_.begin(), layers_.end(), [&](const Layer& l) { return i < l.bias + l.rows; });
  if (i >= layer->bias) return 0;
  return uniform(hash(seed + 2, i)) / std::sqrt(static_cast<float>(layer->columns));
}

float Model::forward(const Sample& sample) {
  std::vector<float> values(sample.input.begin(), sample.input.end());
  for (Layer& layer : layers_) {
    layer.input = std::move(values);
    values.assign(layer.rows, 0);
    for (std::size_t r = 0; r < layer.rows; ++r) {
      float sum = to_float(weights[layer.bias + r]);
      const BFloat16* row = &weights[layer.weight + r * layer.columns];
      for (std::size_t c = 0; c < layer.columns; ++c) sum += to_float(row[c]) * layer.input[c];
      values[r] = &layer == &layers_.back() ? sum : std::tanh(sum);
    }
  }
  return values[0];
}

double Model::loss(const Sample& sample) {
  const double error = forward(sample) - sample.target;
  return error * error;
}

double Model::learn(const Sample& sample, std::span<Fixed> gradient) {
  const float error = forward(sample) - sample.target;
  std::vector<float> slope = {2 * error};  // derivative of the loss with respect to the layer's output before tanh
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
    std::vector<float> below(layer->columns, 0);
    for (std::size_t r = 0; r < layer->rows; ++r) {
      gradient[layer->bias + r] += to_fixed(slope[r]);
      const std::size_t row = layer->weight + r * layer->columns;
      for (std::size_t c = 0; c < layer->columns; ++c) {
        gradient[row + c] += to_fixed(slope[r] * layer->input[c]);
        below[c] += slope[r] * to_float(weights[row + c]);
      }
    }
    for (std::size_t c = 0; c < layer->columns; ++c) below[c] *= 1 - layer->input[c] * layer->input[c];
    slope = std::move(below);
  }
  return static_cast<double>(error) * static_cast<double>(error);
}

}  // namespace trainer
