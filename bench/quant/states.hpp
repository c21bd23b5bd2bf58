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

/// One tensor: log(v) Gaussian with sigma `sigma` around log(center), m / sqrt(v) Gaussian with sigma 1.
/// Made-up states have the same values in every run.
State log_normal(double sigma, double center = 1, const quant::Shape& shape = {512, 512});

/// Three convolutions [128, 64, 3, 3], in whose inputs 2, 12 and 50 % of the channels died 100 to 3000 steps ago. Since
/// then, each step has reduced m to 0.9 of its value and v to 0.95, until F32 rounds the product to the value itself.
State dead_units();

/// The F32 pairs `optim.<parameter>.exp_avg` and `.exp_avg_sq` of a safetensors file that q8 codes: 2 to 7 dimensions,
/// 1024 elements or more. Throws Error(kNotFound) if the file cannot be opened, Error(kFormat) if it has no such pair.
State read_state(const std::filesystem::path& path);

}  // namespace cairn::quant_table
