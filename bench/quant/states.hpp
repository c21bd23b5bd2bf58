// The optimizer states on which codecs are compared: synthetic states and states from real training runs.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "quant/codec.hpp"

namespace cairn::quant_table {

/// Both moments of a parameter.
struct Tensor {
  std::string name;
  quant::Shape shape;
  std::vector<float> m;
  std::vector<float> v;
};

struct State {
  std::string name;
  std::vector<Tensor> tensors;
};

/// One tensor [512, 512]: log(v) Gaussian with sigma `sigma` around log(center), m / sqrt(v) Gaussian with sigma 1.
/// Made-up states have the same values in every run.
State log_normal(double sigma, double center = 1);

/// Convolutions [128, 64, 3, 3] in whose inputs 2, 12 and 50 % of the channels died 100 to 3000 steps ago: since then
/// their m decays by 0.9 and their v by 0.95 a step, down to where F32 rounds v to itself.
State dead_units();

/// The pairs `optim.<parameter>.exp_avg`, `.exp_avg_sq` of a safetensors file that have at least 2 dimensions and 1024
/// elements. Throws Error(kNotFound) if the file cannot be opened, Error(kFormat) if it has no such pair.
State read_state(const std::filesystem::path& path);

}  // namespace cairn::quant_table
