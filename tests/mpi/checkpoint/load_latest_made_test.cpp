// load_latest with targets made for each step that it tries: sizes of particles and tables differ between steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "expect_error.hpp"
#include "same_text.hpp"
#include "shared_temp_dir.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;

/// This rank's rows of a tensor with `rows` rows.
Box rows_of(std::uint64_t rows, std::uint64_t columns, const World& world) {
  const auto rank = static_cast<std::uint64_t>(world.rank);
  const auto ranks = static_cast<std::uint64_t>(world.ranks);
  const std::uint64_t begin = rows * rank / ranks;
  return {{begin, 0}, {rows * (rank + 1) / ranks - begin, columns}};
}

std::uint64_t particles_in(std::uint64_t step) { return 5 + step * step; }
std::uint64_t words_in(std::uint64_t step) { return 10 * step; }

/// Value of flat element `i` of a tensor at a step.
double value_of(std::uint64_t step, std::uint64_t i) { return static_cast<double>(step * 1000 + i); }

class MadeTargets : public testing::Test {
 protected:
  MadeTargets() {
    options_.engine.name = "posix";
    options_.files.block_bytes = 256;
    options_.limits.memory_budget_bytes = 64 << 10;
    Checkpointer checkpointer = make();
    for (const std::uint64_t step : {1, 2, 3}) save(checkpointer, step);
  }
  [[nodiscard]] Checkpointer make() const { return {MPI_COMM_WORLD, root_.path(), options_}; }

  void save(Checkpointer& checkpointer, std::uint64_t step) const {
    std::map<std::string, std::vector<double>> memory;
    std::vector<Source> sources;
    const auto add = [&](const char* section, const char* name, std::uint64_t rows, std::uint64_t columns) {
      const Box box = rows_of(rows, columns, world_);
      std::vector<double>& values = memory[name];
      for (std::uint64_t i = 0; i < box.shape[0] * columns; ++i) {
        values.push_back(value_of(step, box.offset[0] * columns + i));
      }
      sources.push_back({{section, name, DType::kF64, {rows, columns}, {box}}, values.data()});
    };
    add("model", "particles", particles_in(step), 3);
    add("table", "words", words_in(step), 2);
    checkpointer.save(step, sources);
  }

  /// Targets for all tensors, in memory of the right size.
  std::vector<Target> targets_of(std::uint64_t step, std::span<const TensorInfo> tensors) {
    tried_.push_back(step);
    memory_.clear();
    std::vector<Target> targets;
    for (const TensorInfo& tensor : tensors) {
      const Box box = rows_of(tensor.shape[0], tensor.shape[1], world_);
      std::vector<double>& values = memory_[tensor.name];
      values.assign(box.shape[0] * box.shape[1], -1);
      targets.push_back({{tensor.section, tensor.name, tensor.dtype, tensor.shape, {box}}, values.data()});
    }
    return targets;
  }
  TargetsOf maker() {
    return [this](std::uint64_t step, std::span<const TensorInfo> tensors) { return targets_of(step, tensors); };
  }
  void expect_loaded(std::uint64_t step, const std::string& name, std::uint64_t rows, std::uint64_t columns) {
    const std::vector<double>& values = memory_.at(name);
    const Box box = rows_of(rows, columns, world_);
    ASSERT_EQ(values.size(), box.shape[0] * columns) << name;
    for (std::uint64_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], value_of(step, box.offset[0] * columns + i)) << name << ", element " << i;
    }
  }
  /// Loads with a new Checkpointer each time; `tried` are the steps for which targets were made.
  void expect_step(std::uint64_t step, const std::vector<std::uint64_t>& tried) {
    tried_.clear();
    Checkpointer checkpointer = make();
    const Report report = checkpointer.load_latest(maker());
    EXPECT_EQ(report.step, step);
    EXPECT_EQ(report.skipped.size(), 3 - step);
    EXPECT_EQ(tried_, tried);
    expect_loaded(step, "particles", particles_in(step), 3);
    expect_loaded(step, "words", words_in(step), 2);
  }

  /// Collective: changes a byte of a file of the step, counted from the end for a negative `at`.
  void flip(std::uint64_t step, const char* file, std::int64_t at) const {
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_.rank == 0) {
      std::fstream stream(root_ / ("checkpoint-" + std::to_string(step)) / file,
                          std::ios::binary | std::ios::in | std::ios::out);
      const auto seek = [&](auto to) { to(at, at < 0 ? std::ios::end : std::ios::beg); };
      seek([&](auto offset, auto from) { stream.seekg(offset, from); });
      const int byte = stream.get();
      seek([&](auto offset, auto from) { stream.seekp(offset, from); });
      stream.put(static_cast<char>(byte ^ 1));
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }

  const World world_;
  SharedTempDir root_;
  Options options_;
  std::map<std::string, std::vector<double>> memory_;
  std::vector<std::uint64_t> tried_;
};

TEST_F(MadeTargets, HaveTheSizesOfTheStep) { expect_step(3, {3}); }

TEST_F(MadeTargets, AreMadeAgainForTheStepBeforeADamagedOne) {
  flip(3, "table.safetensors", -1);
  expect_step(2, {3, 2});
  // With a damaged header the step's tensors are unknown: no targets can be made.
  flip(2, "model.safetensors", 20);
  expect_step(1, {3, 1});
  flip(3, "cairn.blocks", 30);
  expect_step(1, {1});
  flip(1, "cairn.json", 2);
  Checkpointer checkpointer = make();
  const std::string text = message_of_error(ErrorKind::kIntegrity, [&] { checkpointer.load_latest(maker()); });
  EXPECT_THAT(text, testing::HasSubstr("none of the checkpoints"));
  expect_same_everywhere(text);
}

TEST_F(MadeTargets, WhatTheCallerThrowsIsNoDamage) {
  Checkpointer checkpointer = make();
  const bool is_last = world_.rank == world_.ranks - 1;
  const auto refused = [&](ErrorKind kind, const TargetsOf& maker, std::initializer_list<std::string_view> parts) {
    const std::string text = message_of_error(kind, [&] { checkpointer.load_latest(maker); });
    expect_one_line(text, parts);
    EXPECT_THAT(text, testing::Not(testing::HasSubstr("none of the checkpoints")));
    expect_same_everywhere(text);
  };
  for (const ErrorKind kind : {ErrorKind::kIntegrity, ErrorKind::kFormat, ErrorKind::kUsage}) {
    refused(kind,
            [&](std::uint64_t step, std::span<const TensorInfo> tensors) {
              if (is_last) throw Error(kind, "too few particles");
              return targets_of(step, tensors);
            },
            {"too few particles"});
  }
  refused(ErrorKind::kInternal,
          [&](std::uint64_t step, std::span<const TensorInfo> tensors) {
            if (is_last) throw std::runtime_error("a foreign exception");
            return targets_of(step, tensors);
          },
          {"a foreign exception"});
  refused(ErrorKind::kUsage, {}, {"empty function"});
  refused(ErrorKind::kState,
          [&](std::uint64_t step, std::span<const TensorInfo> tensors) {
            auto targets = targets_of(step, tensors);
            if (is_last) targets[0].dtype = DType::kI64;
            return targets;
          },
          {"particles", "expected I64"});
  EXPECT_EQ(checkpointer.load_latest(maker()).step, 3U);
}

TEST_F(MadeTargets, AreMadeOfWhatIsSelected) {
  Checkpointer checkpointer = make();
  LoadOptions options;
  options.select.sections = {"ta*"};
  const Report report = checkpointer.load_latest(maker(), options);
  EXPECT_EQ(report.step, 3U);
  EXPECT_EQ(memory_.size(), 1U);
  expect_loaded(3, "words", words_in(3), 2);
}

}  // namespace
}  // namespace cairn::test
