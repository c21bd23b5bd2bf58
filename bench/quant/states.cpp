// Made-up states use the Box-Muller method, so that they do not depend on the standard library's distributions.
#include "states.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numbers>
#include <optional>
#include <random>

#include "base/bytes.hpp"
#include "cairn/error.hpp"
#include "format/safetensors.hpp"
#include "quant/boxes.hpp"
#include "quant/own_codec.hpp"

namespace cairn::quant_table {
namespace {

class Gaussian {
 public:
  explicit Gaussian(std::uint64_t seed) : random_(seed) {}

  /// Uniform between 0 and 1.
  double unit() { return (static_cast<double>(random_() >> 11) + 0.5) * 0x1p-53; }

  double operator()() {
    const double radius = std::sqrt(-2 * std::log(unit()));
    return radius * std::cos(2 * std::numbers::pi * unit());
  }

 private:
  std::mt19937_64 random_;
};

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorKind::kNotFound, fmt::format("cannot open '{}'", path.string()));
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

State log_normal(double sigma, double center, const quant::Shape& shape) {
  Gaussian gauss(static_cast<std::uint64_t>(sigma * 1000));
  Tensor tensor = {"w", shape, {}, {}};
  for (std::uint64_t i = 0; i < quant::elements_of(shape); ++i) {
    const double v = center * std::exp(sigma * gauss());
    tensor.v.push_back(static_cast<float>(v));
    tensor.m.push_back(static_cast<float>(gauss() * std::sqrt(v)));
  }
  return {fmt::format("σ = {}", sigma) + (center == 1 ? "" : fmt::format(", v ~ {:.0e}", center)), {tensor}};
}

State dead_units() {
  constexpr std::uint64_t kOut = 128;
  constexpr std::uint64_t kIn = 64;
  constexpr std::uint64_t kKernel = 9;
  State state = {"dead units", {}};
  for (const int dead_percent : {2, 12, 50}) {
    Gaussian gauss(static_cast<std::uint64_t>(dead_percent));
    std::vector<int> age(kIn);  // steps since the channel died
    for (std::uint64_t i = 0; i < kIn; ++i) {
      const bool is_dead = i < (kIn * static_cast<std::uint64_t>(dead_percent) + 99) / 100;
      age[i * 37 % kIn] = is_dead ? 100 + static_cast<int>(2900 * gauss.unit()) : 0;
    }
    Tensor tensor = {fmt::format("{} % dead", dead_percent), {kOut, kIn, 3, 3}, {}, {}};
    for (std::uint64_t i = 0; i < kOut * kIn * kKernel; ++i) {
      const double living_v = 1e-12 * std::exp(1.5 * gauss());
      const double living_m = gauss() * std::sqrt(living_v);
      // The smallest v is ten times the smallest float, the smallest m four times; multiplied by 0.95 and 0.9, these
      // values round to themselves.
      const int steps = age[i / kKernel % kIn];
      const double v = std::max(living_v * std::pow(0.95, steps), 10 * 0x1p-149);
      const double m = std::max(std::abs(living_m) * std::pow(0.9, steps), 4 * 0x1p-149);
      tensor.v.push_back(static_cast<float>(v));
      tensor.m.push_back(static_cast<float>(std::copysign(m, living_m)));
    }
    state.tensors.push_back(std::move(tensor));
  }
  return state;
}

State read_state(const std::filesystem::path& path) {
  const std::string file = read_file(path);
  const std::string_view all(file);
  const auto length = format::header_length(base::as_bytes(all.substr(0, 64)), file.size(), path.string());
  const auto header = format::parse_header(all.substr(format::kPrefixBytes, length), file.size(), path.string());
  const auto values_of = [&](std::string_view name) -> std::optional<std::vector<float>> {
    for (const auto& entry : header.tensors) {
      if (entry.name != name || entry.dtype != DType::kF32) continue;
      std::vector<float> values((entry.end - entry.begin) / sizeof(float));
      std::memcpy(values.data(), file.data() + header.data_start + entry.begin, values.size() * sizeof(float));
      return values;
    }
    return std::nullopt;
  };
  constexpr std::string_view kSecond = ".exp_avg_sq";
  State state = {path.stem().string(), {}};
  for (const auto& entry : header.tensors) {
    if (!entry.name.starts_with("optim.") || !entry.name.ends_with(kSecond)) continue;
    const std::vector<std::uint64_t> shape(entry.shape.begin(), entry.shape.end());
    if (!quant::own_q8().left_alone(shape).empty()) continue;
    const std::string parameter(entry.name.substr(0, entry.name.size() - kSecond.size()));
    const auto v = values_of(entry.name);
    const auto m = values_of(parameter + ".exp_avg");
    if (v && m && v->size() == m->size()) state.tensors.push_back({parameter, shape, *m, *v});
  }
  if (state.tensors.empty()) {
    throw Error(ErrorKind::kFormat, fmt::format("'{}' holds no pair optim.<name>.exp_avg and .exp_avg_sq in F32 of 2 "
                                                "dimensions and 1024 elements",
                                                path.string()));
  }
  return state;
}

}  // namespace cairn::quant_table
