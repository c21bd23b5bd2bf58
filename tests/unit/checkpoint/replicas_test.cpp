// Replicas that differ are found, named and refused before a checkpoint mixes them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <mutex>
#include <set>

#include "checkpoint/call.hpp"
#include "checkpoint/replicas.hpp"
#include "plan/samples.hpp"
#include "random.hpp"
#include "shard/box_math.hpp"
#include "simulated_save.hpp"
#include "with_gaps.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Replicas, StretchesOfMemoryWithGapsAreTheBytesOfTheBox) {
  auto random = make_random(1);
  for (int i = 0; i < 300; ++i) {
    Shard shard;
    shard.dtype = i % 2 == 0 ? DType::kF32 : DType::kU8;
    for (std::uint64_t d = uniform(random, 0, 4); d > 0; --d) shard.shape.push_back(uniform(random, 1, 6));
    shard.boxes = {shard::whole(shard.shape)};
    WithGaps memory(shard, random);
    std::vector<std::byte> dense(memory.bytes().size());
    for (std::byte& byte : dense) byte = static_cast<std::byte>(uniform(random, 0, 255));
    memory.put(dense);
    const Placement& placement = memory.placements()[0];
    const std::uint64_t at = placement.offset * bits_of(shard.dtype) / 8;
    plan::MemoryBox box{0, shard.boxes[0], std::span(memory.memory()).subspan(at), Memory::kHost, placement.strides};
    if (placement.strides.empty()) box.bytes = box.bytes.first(dense.size());
    ASSERT_EQ(plan::own_bytes(box), dense.size());
    const std::uint64_t begin = uniform(random, 0, dense.size());
    const plan::ByteRange range{begin, uniform(random, begin, dense.size())};
    std::vector<std::byte> found;
    plan::for_each_stretch(box, range, [&](std::uint64_t offset, std::uint64_t bytes) {
      const auto part = box.bytes.subspan(offset, bytes);
      found.insert(found.end(), part.begin(), part.end());
    });
    const auto expected = std::span(dense).subspan(range.begin, range.bytes());
    EXPECT_TRUE(std::ranges::equal(found, expected)) << "shape " << shard.shape.size() << "-d, case " << i;
  }
}

/// An F32 tensor; each rank holds a box of it.
struct Held {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::function<Box(int rank)> box = {};  ///< empty: every rank holds the whole tensor
  std::string section = "model";
};

using Spoil = std::function<void(int rank, std::size_t tensor, std::vector<float>& values)>;

/// One rank's values: element i of a box is i plus 7 times the box's first row, unless `spoil` changes it.
class FloatState {
 public:
  FloatState(const std::vector<Held>& tensors, int rank, const Spoil& spoil) {
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const Held& held = tensors[t];
      const Box box = held.box ? held.box(rank) : shard::whole(held.shape);
      values_.emplace_back(shard::elements_of(box));
      std::vector<float>& values = values_.back();
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(i + (box.offset.empty() ? 0 : box.offset[0] * 7));
      }
      if (spoil) spoil(rank, t, values);
      Source source;
      source.section = held.section;
      source.name = held.name;
      source.shape = held.shape;
      source.boxes = {box};
      sources_.push_back(std::move(source));
    }
    for (std::size_t t = 0; t < tensors.size(); ++t) sources_[t].data = values_[t].data();
  }

  [[nodiscard]] const std::vector<Source>& sources() const { return sources_; }

 private:
  std::vector<std::vector<float>> values_;
  std::vector<Source> sources_;
};

/// Outcome of a save, the same on all ranks.
struct Outcome {
  std::string error;
  std::vector<std::string> warnings;
  bool is_visible = false;
};

/// Random moments are coded badly, which only rank 0 says.
bool is_about_codes(const std::string& warning) { return warning.find("coded worse than") != std::string::npos; }

Outcome outcome_of(const std::vector<Held>& tensors, int ranks, const Options& options, const Spoil& spoil,
                   std::uint64_t step = 1) {
  const TempDir root;
  const fs::path directory = root.path() / "checkpoint-1";
  std::mutex mutex;
  std::set<std::pair<std::string, std::vector<std::string>>> outcomes;
  comm::run_simulated(ranks, [&](comm::Communicator& communicator) {
    const FloatState state(tensors, communicator.rank(), spoil);
    io::WindowStore store;
    checkpoint::Saver saver(communicator, options, store);
    std::pair<std::string, std::vector<std::string>> outcome;
    try {
      outcome.second = saver.save(directory, step, state.sources(), {}).warnings;
      std::erase_if(outcome.second, is_about_codes);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kState);
      outcome.first = error.what();
    }
    {
      const std::lock_guard lock(mutex);
      outcomes.insert(outcome);
    }
    if (outcome.first.empty()) return;
    const FloatState whole(tensors, communicator.rank(), {});
    std::vector<std::string> later = saver.save(root.path() / "checkpoint-2", 2, whole.sources(), {}).warnings;
    std::erase_if(later, is_about_codes);
    EXPECT_THAT(later, IsEmpty()) << "afterwards";
  });
  EXPECT_EQ(outcomes.size(), 1U) << "alike on all ranks";
  return {outcomes.begin()->first, outcomes.begin()->second, fs::exists(directory)};
}

Options with(ReplicaCheck check, ReplicasDiffer action = ReplicasDiffer::kRefuseMixture) {
  Options options;
  options.engine.name = "posix";
  options.checks.replicas = check;
  options.checks.replicas_differ = action;
  return options;
}

/// Large enough that each of `ranks` replicas writes a part.
Held large(int ranks, const std::string& name = "large") {
  return {name, {static_cast<std::uint64_t>(ranks) * 64, 1024}};
}
const Held kSmall{"small", {6, 100}};

/// Changes all values of tensor `number` on the last of `ranks` ranks.
Spoil spoil_last(int ranks, std::size_t number = 0) {
  return [=](int rank, std::size_t tensor, std::vector<float>& values) {
    if (rank != ranks - 1 || tensor != number) return;
    for (float& value : values) value += 0.5F;
  };
}

TEST(Replicas, EqualOnesAreSavedWithoutAWord) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const ReplicaCheck check : {ReplicaCheck::kOff, ReplicaCheck::kSample, ReplicaCheck::kAll}) {
      const Outcome outcome =
          outcome_of({large(ranks), kSmall, {"scalar", {}}, {"none", {0, 3}}}, ranks, with(check), {});
      EXPECT_EQ(outcome.error, "");
      EXPECT_THAT(outcome.warnings, IsEmpty());
      EXPECT_TRUE(outcome.is_visible);
    }
  }
}

TEST(Replicas, AMixtureIsRefusedAndNothingIsVisible) {
  for (const int ranks : {2, 3, 4}) {
    for (const ReplicaCheck check : {ReplicaCheck::kSample, ReplicaCheck::kAll}) {
      const Outcome outcome = outcome_of({large(ranks), kSmall}, ranks, with(check), spoil_last(ranks));
      EXPECT_THAT(outcome.error, AllOf(HasSubstr("tensor 'large' (section model)"), HasSubstr("mixture"),
                                       HasSubstr("first at element [")));
      EXPECT_FALSE(outcome.is_visible);
    }
  }
  EXPECT_THAT(outcome_of({large(4)}, 4, with(ReplicaCheck::kSample), spoil_last(4)).error,
              HasSubstr("on rank 3 from those on ranks 0, 1 and 1 more"));
  EXPECT_EQ(outcome_of({large(2)}, 2, with(ReplicaCheck::kOff), spoil_last(2)).error, "");
}

TEST(Replicas, TheFirstElementIsNamed) {
  const auto spoil_one = [](int rank, std::size_t tensor, std::vector<float>& values) {
    if (rank == 1 && tensor == 0) values.at(17 * 1024 + 900) = -1;
  };
  EXPECT_THAT(outcome_of({large(2)}, 2, with(ReplicaCheck::kAll), spoil_one).error,
              HasSubstr("first at element [17, 900];"));
  const Outcome small =
      outcome_of({{"s", {3, 4, 5}}}, 3, with(ReplicaCheck::kSample), [](int rank, std::size_t, auto& values) {
        if (rank == 1) values.at(2 * 20 + 3 * 5 + 1) = -1;
      });
  EXPECT_THAT(small.warnings, ElementsAre(AllOf(HasSubstr("first at element [2, 3, 1]"),
                                                HasSubstr("on rank 1 from those on ranks 0 and 2"))));
  const Held half{"half", {40, 10}, [](int rank) { return Box{{rank < 2 ? 0U : 20U, 0}, {20, 10}}; }};
  const Outcome of_box = outcome_of({half}, 4, with(ReplicaCheck::kSample), [](int rank, std::size_t, auto& values) {
    if (rank == 3) values.at(31) = -1;
  });
  EXPECT_THAT(of_box.error, HasSubstr("on rank 3 from those on rank 2, first at element [23, 1]"))
      << "small boxes, but the tensor is stored from two ranks";
}

TEST(Replicas, WhatOneRankProvidesIsAWarning) {
  const Outcome outcome = outcome_of({large(2), kSmall}, 2, with(ReplicaCheck::kSample), spoil_last(2, 1));
  EXPECT_THAT(outcome.warnings, ElementsAre(AllOf(HasSubstr("tensor 'small'"), HasSubstr("one rank's"))));
  EXPECT_TRUE(outcome.is_visible);
  const Options strict = with(ReplicaCheck::kSample, ReplicasDiffer::kRefuse);
  EXPECT_THAT(outcome_of({large(2), kSmall}, 2, strict, spoil_last(2, 1)).error, HasSubstr("tensor 'small'"));
  const Options lenient = with(ReplicaCheck::kSample, ReplicasDiffer::kWarn);
  EXPECT_THAT(outcome_of({large(2), kSmall}, 2, lenient, spoil_last(2)).warnings,
              ElementsAre(AllOf(HasSubstr("tensor 'large'"), HasSubstr("is a mixture"))));
}

TEST(Replicas, OneIsNamedForAll) {
  const auto spoil_all = [](int rank, std::size_t, std::vector<float>& values) {
    values.at(0) += static_cast<float>(rank);
  };
  const Options strict = with(ReplicaCheck::kAll, ReplicasDiffer::kRefuse);
  EXPECT_THAT(outcome_of({large(3, "b"), kSmall, {"a", {3}}}, 3, strict, spoil_all).error,
              AllOf(HasSubstr("tensor 'a'"), HasSubstr("so do those of 2 more tensors")));
  EXPECT_THAT(outcome_of({large(3, "b"), kSmall, {"a", {3}}}, 3, with(ReplicaCheck::kAll), spoil_all).error,
              AllOf(HasSubstr("tensor 'b'"), testing::Not(HasSubstr("more tensor"))))
      << "the others are no mixtures";
}

TEST(Replicas, NansAreComparedAsBytes) {
  const auto put = [](std::uint32_t of_first, std::uint32_t of_others) {
    return [=](int rank, std::size_t, std::vector<float>& values) {
      std::memcpy(&values.at(5), rank == 0 ? &of_first : &of_others, sizeof(float));
    };
  };
  const Options strict = with(ReplicaCheck::kSample, ReplicasDiffer::kRefuse);
  EXPECT_EQ(outcome_of({kSmall}, 2, strict, put(0x7fc00000, 0x7fc00000)).error, "");
  EXPECT_THAT(outcome_of({kSmall}, 2, strict, put(0x7fc00000, 0x7fc00001)).error, HasSubstr("element [0, 5]"));
}

/// Only some steps find a difference of 2 KiB in a tensor of 1 MiB,
/// and other steps find a difference in another place.
TEST(Replicas, OtherPlacesAreLookedAtInEveryStep) {
  const auto found_in = [](std::size_t place) {
    std::set<std::uint64_t> steps;
    Options options = with(ReplicaCheck::kSample);
    comm::run_simulated(2, [&](comm::Communicator& communicator) {
      const FloatState state({{"t", {512, 512}}}, communicator.rank(),
                             [&](int rank, std::size_t, std::vector<float>& values) {
                               if (rank == 1)
                                 std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(place), 512, -1.0F);
                             });
      const auto& source = state.sources()[0];
      const plan::MemoryBox box{0, source.boxes[0], {static_cast<std::byte*>(const_cast<void*>(source.data)), 1 << 20}};
      const checkpoint::HeldReplica held{&box, &source, 0, 99, true};
      for (std::uint64_t step = 0; step < 200; ++step) {
        try {
          checkpoint::compare_replicas(communicator, {{&held, 1}, step, options.checks, {}, nullptr});
        } catch (const Error&) {
          if (communicator.rank() == 0) steps.insert(step);
        }
      }
    });
    return steps;
  };
  const auto first = found_in(0);
  const auto second = found_in(100 * 512);
  EXPECT_GT(first.size(), 2U);
  EXPECT_LT(first.size(), 150U);
  EXPECT_NE(first, second);
}

/// The same step is saved again and again, as by a program that keeps only its newest state.
TEST(Replicas, OtherPlacesAreLookedAtInEverySaveOfOneStep) {
  const TempDir root;
  std::array<std::vector<bool>, 2> found;  // by rank and save
  comm::run_simulated(2, [&](comm::Communicator& communicator) {
    const FloatState state({{"t", {512, 512}}}, communicator.rank(),
                           [](int rank, std::size_t, std::vector<float>& values) {
                             if (rank == 1) std::fill_n(values.begin(), 512, -1.0F);
                           });
    io::WindowStore store;
    checkpoint::Saver saver(communicator, with(ReplicaCheck::kSample, ReplicasDiffer::kWarn), store);
    for (int save = 0; save < 60; ++save) {
      checkpoint::Call call(communicator);
      auto planned = saver.planner.plan(root.path() / "c", state.sources(), {}, checkpoint::GatherFrom::kSources, call);
      saver.planner.check_replicas(planned, state.sources(), 7, call);
      found.at(static_cast<std::size_t>(communicator.rank())).push_back(!planned.report.warnings.empty());
    }
  });
  EXPECT_THAT(found[0], AllOf(testing::Contains(true), testing::Contains(false)));
  EXPECT_EQ(found[0], found[1]) << "the ranks look at the same places";
}

TEST(Replicas, GapsInMemoryMakeNoDifference) {
  for (const bool is_spoilt : {false, true}) {
    std::string message;
    const TempDir root;
    comm::run_simulated(3, [&](comm::Communicator& communicator) {
      const int rank = communicator.rank();
      const FloatState state({large(3), kSmall}, rank, is_spoilt ? spoil_last(3) : Spoil());
      const Gapped<Source> gapped(state.sources(), rank);
      io::WindowStore store;
      checkpoint::Saver saver(communicator, with(ReplicaCheck::kAll), store);
      try {
        saver.save(root.path() / "c", 1, rank == 1 ? state.sources() : gapped.entries(), {});
      } catch (const Error& error) {
        if (rank == 0) message = error.what();
      }
    });
    if (is_spoilt) {
      EXPECT_THAT(message, HasSubstr("on rank 2 from those on ranks 0 and 1, first at element [0, 0]"));
    } else {
      EXPECT_EQ(message, "");
    }
  }
}

/// Each rank codes only a part of a replica, so moments are compared before coding.
TEST(Replicas, MomentsThatAreCoded) {
  for (const char* codec : {"q8", "q4", "paddle-o1"}) {
    Options options = with(ReplicaCheck::kSample);
    options.quantisation.codecs["optimizer"] = codec;
    const std::vector<Held> tensors = {
        {"w", {512, 512}}, {"w.exp_avg", {512, 512}, {}, "optimizer"}, {"w.exp_avg_sq", {512, 512}, {}, "optimizer"}};
    EXPECT_EQ(outcome_of(tensors, 2, options, {}).error, "") << codec;
    for (const std::size_t moment : {1U, 2U}) {
      EXPECT_THAT(outcome_of(tensors, 2, options, spoil_last(2, moment)).error,
                  AllOf(HasSubstr(moment == 1 ? "tensor 'w.exp_avg'" : "tensor 'w.exp_avg_sq'"),
                        HasSubstr("section optimizer")))
          << codec;
    }
    EXPECT_THAT(outcome_of(tensors, 2, options, spoil_last(2, 0)).error, HasSubstr("tensor 'w' ")) << codec;
  }
}

/// A save with a reused plan compares replicas like the first save.
TEST(Replicas, InEverySave) {
  const TempDir root;
  comm::run_simulated(2, [&](comm::Communicator& communicator) {
    const int rank = communicator.rank();
    io::WindowStore store;
    checkpoint::Saver saver(communicator, with(ReplicaCheck::kSample), store);
    const FloatState good({large(2)}, rank, {});
    const FloatState bad({large(2)}, rank, spoil_last(2));
    saver.save(root.path() / "1", 1, good.sources(), {});
    EXPECT_THROW(saver.save(root.path() / "2", 2, bad.sources(), {}), Error);
    EXPECT_TRUE(saver.save(root.path() / "3", 3, good.sources(), {}).plan_reused);
    EXPECT_THROW(saver.save(root.path() / "4", 4, bad.sources(), {}), Error);
  });
  EXPECT_FALSE(fs::exists(root.path() / "2"));
  EXPECT_TRUE(fs::exists(root.path() / "3"));
}

}  // namespace
}  // namespace cairn::test
