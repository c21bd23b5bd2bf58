// State and the dtypes of C++ types, of which nearly all is checked at compile time; sizes of memory against boxes.
#include <gtest/gtest.h>

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "cairn/state.hpp"
#include "expect_error.hpp"
#include "planning/describe.hpp"

// After Cairn's header, which declares their types.
#if __has_include(<cuda_fp16.h>)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif
#if __has_include(<cuda_fp8.h>)
#include <cuda_fp8.h>
#endif

namespace cairn::test {

/// A class that describes itself in std::numeric_limits, as libraries of half-precision numbers do.
struct BFloat16 {
  std::uint16_t bits;
};
struct OwnFp8 {
  std::uint8_t bits;
};
struct NoNumber {
  float value;
};

}  // namespace cairn::test

template <>
class std::numeric_limits<cairn::test::BFloat16> : public std::numeric_limits<float> {
 public:
  static constexpr int digits = 8;
};

template <>
struct cairn::DTypeOf<cairn::test::OwnFp8> {
  static constexpr DType value = DType::kF8E5M2;
};

namespace cairn::test {
namespace {

static_assert(dtype_of<bool>() == DType::kBool);
static_assert(dtype_of<std::int8_t>() == DType::kI8 && dtype_of<std::uint8_t>() == DType::kU8);
static_assert(dtype_of<std::int16_t>() == DType::kI16 && dtype_of<std::uint16_t>() == DType::kU16);
static_assert(dtype_of<std::int32_t>() == DType::kI32 && dtype_of<std::uint32_t>() == DType::kU32);
static_assert(dtype_of<std::int64_t>() == DType::kI64 && dtype_of<std::uint64_t>() == DType::kU64);
static_assert(dtype_of<long long>() == DType::kI64 && dtype_of<unsigned long>() == DType::kU64);
static_assert(dtype_of<float>() == DType::kF32 && dtype_of<const double>() == DType::kF64);
static_assert(dtype_of<std::complex<float>>() == DType::kC64);
static_assert(dtype_of<BFloat16>() == DType::kBF16);
static_assert(dtype_of<OwnFp8>() == DType::kF8E5M2);
static_assert(!HasDType<char> && !HasDType<char8_t> && !HasDType<wchar_t> && !HasDType<std::byte>);
static_assert(!HasDType<long double> && !HasDType<std::complex<double>> && !HasDType<NoNumber> && !HasDType<float*>);
#if __has_include(<cuda_fp16.h>)
static_assert(dtype_of<__half>() == DType::kF16 && sizeof(__half) == 2);
static_assert(dtype_of<__nv_bfloat16>() == DType::kBF16 && sizeof(__nv_bfloat16) == 2);
#endif
#if __has_include(<cuda_fp8.h>)
static_assert(dtype_of<__nv_fp8_e4m3>() == DType::kF8E4M3 && dtype_of<__nv_fp8_e5m2>() == DType::kF8E5M2);
#endif

static_assert(TensorMemory<std::vector<float>&> && TensorMemory<const std::array<int, 3>&>);
static_assert(TensorMemory<std::span<const double>> && TensorMemory<float (&)[3]>);
static_assert(!TensorMemory<std::vector<float>>, "a temporary would be gone when it is read");
static_assert(!TensorMemory<std::vector<bool>&> && !TensorMemory<std::vector<char>&>);

TEST(State, TakesDtypeAndSizeFromTheMemory) {
  std::vector<float> floats(6);
  std::array<std::uint8_t, 3> bytes{};
  State state;
  EXPECT_TRUE(state.empty());
  state.add("model", "rows", {10, 3}, {{4, 0}, {2, 3}}, floats);
  state.add("model", "whole", {3}, bytes).optional = true;
  state.add("model", "scalar", {}, std::span(floats).first(1));
  state.add({"model", "untyped", DType::kBF16, {12}, {{{0}, {12}}}}, floats.data());
  ASSERT_EQ(state.size(), 4U);
  const std::vector<Target>& targets = state.targets();
  EXPECT_EQ(targets[0].dtype, DType::kF32);
  EXPECT_EQ(targets[0].boxes, (std::vector<Box>{{{4, 0}, {2, 3}}}));
  EXPECT_EQ(targets[0].data_bytes, 24U);
  EXPECT_EQ(targets[1].dtype, DType::kU8);
  EXPECT_EQ(targets[1].boxes, (std::vector<Box>{{{0}, {3}}}));
  EXPECT_EQ(targets[1].data, bytes.data());
  EXPECT_TRUE(targets[1].optional);
  EXPECT_EQ(targets[2].boxes, (std::vector<Box>{{{}, {}}}));
  EXPECT_EQ(targets[3].data_bytes, std::nullopt);
  const std::vector<Source> sources = state.sources();
  ASSERT_EQ(sources.size(), 4U);
  EXPECT_EQ(sources[0].data, floats.data());
  EXPECT_EQ(sources[0].data_bytes, 24U);
  EXPECT_EQ(sources[3].dtype, DType::kBF16);
  state.clear();
  EXPECT_EQ(state.sources().size(), 0U);
}

TEST(State, ConstMemoryIsSavedAndNotLoadedInto) {
  const std::vector<float> constant(3);
  std::vector<float> other(3);
  State state;
  state.add("model", "other", {3}, other);
  state.add("model", "constant", {3}, constant);
  EXPECT_EQ(state.sources().at(1).data, constant.data());
  expect_error(ErrorKind::kUsage, [&] { static_cast<void>(state.targets()); },
               {"tensor 'constant' (section model): its memory is const"});
  state.clear();
  EXPECT_TRUE(state.targets().empty());
}

TEST(State, MemoryOfAnotherSizeThanItsBoxesIsRefused) {
  std::vector<float> memory(100);
  const auto refused = [&](const State& state, const std::string& why) {
    for (const bool is_load : {false, true}) {
      expect_error(ErrorKind::kUsage,
                   [&] {
                     if (is_load) {
                       planning::check_shards(state.targets());
                     } else {
                       planning::check_shards(state.sources());
                     }
                   },
                   {"tensor 'w' (section model): ", why});
    }
  };
  const auto described = [&](const Box& box, std::size_t elements) {
    State state;
    state.add("model", "w", {10, 5}, box, std::span(memory).first(elements));
    return state;
  };
  const Box box{{2, 0}, {4, 5}};
  EXPECT_NO_THROW(planning::check_shards(described(box, 20).sources()));
  refused(described(box, 19), "its memory has 76 bytes, but its 1 box of F32 takes 80");
  refused(described(box, 21), "its memory has 84 bytes, but its 1 box of F32 takes 80");
  EXPECT_NO_THROW(planning::check_shards(described({{2, 0}, {0, 5}}, 0).sources()));
  refused(described({{2, 0}, {0, 5}}, 1), "its memory has 4 bytes, but its 1 box of F32 takes 0");

  State parts;
  Target& two = parts.add("model", "w", {10, 5}, std::span(memory).first(15));
  two.boxes = {{{0, 0}, {2, 5}}, {{4, 0}, {1, 5}}};
  EXPECT_NO_THROW(planning::check_shards(parts.sources()));
  two.boxes.pop_back();
  refused(parts, "its memory has 60 bytes, but its 1 box of F32 takes 40");

  State with_gaps;  // 4 rows of 5 in rows of 7, from element 8: the last is element 8 + 3 * 7 + 4
  Target& placed = with_gaps.add("model", "w", {10, 5}, box, std::span(memory).first(34));
  placed.placements = {{8, {7, 1}}};
  EXPECT_NO_THROW(planning::check_shards(with_gaps.targets()));
  placed.data_bytes = 40 * sizeof(float);
  EXPECT_NO_THROW(planning::check_shards(with_gaps.targets())) << "more may lie behind the last row";
  placed.data_bytes = 33 * sizeof(float);
  refused(with_gaps, "its memory has 132 bytes, but its 1 box of F32 takes 136 where it is placed");
  placed.data_bytes.reset();
  EXPECT_NO_THROW(planning::check_shards(with_gaps.targets()));
}

TEST(State, ABoxOfOtherDimensionsSaysWhatToGive) {
  std::vector<float> memory(20);
  State state;
  state.add("model", "w", {10, 2}, {{0}, {10}}, memory);
  expect_error(ErrorKind::kUsage, [&] { planning::check_shards(state.sources()); },
               {"a box has offset [0] and shape [10], but the tensor's shape is [10, 2]: give a number for each of its "
                "2 dimensions in both"});
  state.clear();
  state.add("model", "w", {10, 2}, {{1, 0}, {10, 2}}, memory);
  expect_error(ErrorKind::kUsage, [&] { planning::check_shards(state.sources()); },
               {"box [1:11, 0:2] (offset [1, 0], shape [10, 2]) does not fit shape [10, 2]"});
}

}  // namespace
}  // namespace cairn::test
