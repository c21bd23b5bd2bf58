#include "optimizer.hpp"

#include <cmath>

namespace trainer {

ShardedAdam::ShardedAdam(MPI_Comm communicator, const Model& model, std::uint64_t seed) : communicator_(communicator) {
  int rank = 0, ranks = 1;
  MPI_Comm_rank(communicator_, &rank);
  MPI_Comm_size(communicator_, &ranks);
  const auto start_of = [&](int r) {
    return static_cast<int>(model.weights.size() * static_cast<std::size_t>(r) / static_cast<std::size_t>(ranks));
  };
  for (int r = 0; r < ranks; ++r) {
    starts_.push_back(start_of(r));
    counts_.push_back(start_of(r + 1) - start_of(r));
  }
  first = static_cast<std::size_t>(start_of(rank));
  const auto mine = static_cast<std::size_t>(counts_[static_cast<std::size_t>(rank)]);
  for (std::size_t i = 0; i < mine; ++i) master.push_back(model.initial_weight(seed, first + i));
  exp_avg.resize(mine);
  exp_avg_sq.resize(mine);
}

void ShardedAdam::update(Model& model, std::span<const Fixed> gradient, std::uint64_t batch, std::uint64_t step) {
  std::vector<Fixed> sums(master.size());
  MPI_Reduce_scatter(gradient.data(), sums.data(), counts_.data(), MPI_INT64_T, MPI_SUM, communicator_);
  constexpr float kLearningRate = 0.01F, kBeta1 = 0.9F, kBeta2 = 0.99F, kEpsilon = 1e-8F;
  const auto correction1 = static_cast<float>(1 - std::pow(kBeta1, static_cast<double>(step)));
  const auto correction2 = static_cast<float>(1 - std::pow(kBeta2, static_cast<double>(step)));
  for (std::size_t i = 0; i < master.size(); ++i) {
    const auto g = static_cast<float>(from_fixed(sums[i]) / static_cast<double>(batch));
    exp_avg[i] = kBeta1 * exp_avg[i] + (1 - kBeta1) * g;
    exp_avg_sq[i] = kBeta2 * exp_avg_sq[i] + (1 - kBeta2) * g * g;
    master[i] -= kLearningRate * (exp_avg[i] / correction1) / (std::sqrt(exp_avg_sq[i] / correction2) + kEpsilon);
  }
  publish(model);
}

void ShardedAdam::publish(Model& model) const {
  std::vector<BFloat16> mine;
  for (const float weight : master) mine.push_back(to_bfloat16(weight));
  MPI_Allgatherv(mine.data(), static_cast<int>(mine.size()), MPI_UINT16_T, model.weights.data(), counts_.data(),
                 starts_.data(), MPI_UINT16_T, communicator_);
}

std::uint64_t ShardedAdam::digest(const Model& model) const {
  std::uint64_t digest = 0xCBF29CE484222325;
  const auto add = [&](std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) digest = (digest ^ static_cast<std::uint64_t>(byte)) * 0x100000001B3;
  };
  add(std::as_bytes(std::span(model.weights)));
  std::vector<float> all(model.weights.size());
  for (const std::vector<float>* mine : {&master, &exp_avg, &exp_avg_sq}) {
    MPI_Gatherv(mine->data(), static_cast<int>(mine->size()), MPI_FLOAT, all.data(), counts_.data(), starts_.data(),
                MPI_FLOAT, 0, communicator_);
    add(std::as_bytes(std::span(all)));
  }
  return digest;
}

}  // namespace trainer
