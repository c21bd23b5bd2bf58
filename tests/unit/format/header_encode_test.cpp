// encode_header against files that the official safetensors package wrote (tests/data/golden/make_golden.py).
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <random>

#include "helpers.hpp"
#include "nlohmann/json.hpp"

namespace cairn::format::testing {
namespace {

using Kind = SafetensorsErrorKind;
using nlohmann::json;

const std::map<std::string, std::string> kNoMetadata;

std::vector<Tensor> tensors_of(const json& list) {
  std::vector<Tensor> out;
  for (const json& entry : list) {
    const auto dtype = dtype_from_name(entry["dtype"].get<std::string>());
    if (!dtype) throw std::runtime_error("unknown dtype in golden list");
    out.push_back({entry["name"], *dtype, entry["shape"]});
  }
  return out;
}

TEST(EncodeHeader, IsByteEqualToTheReference) {
  const json golden = json::parse(read_file(test_data("golden/safetensors/cases.json")));
  int cases = 0;
  std::size_t tensors_checked = 0;
  for (const json& entry : golden["cases"]) {
    SCOPED_TRACE(entry["file"]);
    const std::string file = read_file(test_data("golden/safetensors/" + entry["file"].get<std::string>()));
    const auto tensors = tensors_of(entry["tensors"]);
    const auto header = encode_header(tensors, entry["metadata"].get<std::map<std::string, std::string>>(), 8);
    EXPECT_EQ(header.bytes, file.substr(0, header.bytes.size()));
    EXPECT_EQ(header.bytes.size() + header.data_bytes, file.size());
    ASSERT_EQ(header.order.size(), tensors.size());
    const auto parsed = read_safetensors(file, "golden");
    ASSERT_EQ(parsed.tensors.size(), tensors.size());
    for (const TensorEntry& tensor : parsed.tensors) {
      const auto same = [&](const Tensor& stored) { return stored.name == tensor.name; };
      const auto at = static_cast<std::size_t>(std::ranges::find_if(tensors, same) - tensors.begin());
      ASSERT_LT(at, tensors.size());
      EXPECT_EQ(header.data_offset[at], tensor.begin);
      EXPECT_TRUE(std::ranges::equal(tensors[at].shape, tensor.shape));
      EXPECT_EQ(tensors[at].dtype, tensor.dtype);
      ++tensors_checked;
    }
    ++cases;
  }
  EXPECT_EQ(cases, 10);
  EXPECT_EQ(tensors_checked, 358u);
}

TEST(EncodeHeader, OrdersAllDtypesDescending) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < kDTypeCount; ++i) tensors.push_back({fmt::format("t{}", i), static_cast<DType>(i), {8}});
  const auto header = encode_header(tensors, kNoMetadata, 8);
  ASSERT_EQ(header.order.size(), 22u);
  for (std::size_t i = 0; i < header.order.size(); ++i) EXPECT_EQ(header.order[i], 21 - i);
}

TEST(EncodeHeader, PadsToTheAlignmentAndTheParserReadsIt) {
  const std::vector<Tensor> tensors = {{"w", DType::kF16, {3}}, {"f4", DType::kF4, {2, 3}}};
  for (const std::uint64_t align : {8ULL, 64ULL, 4096ULL, 1ULL << 20}) {
    const auto header = encode_header(tensors, {{"format", "pt"}}, align);
    EXPECT_EQ(header.bytes.size() % align, 0u);
    const auto parsed = read_safetensors(header.bytes + std::string(header.data_bytes, 'd'), "f");
    EXPECT_EQ(parsed.data_start, header.bytes.size());
    EXPECT_EQ(parsed.tensors.size(), 2u);
    EXPECT_EQ(parsed.metadata.size(), 1u);
  }
}

TEST(EncodeHeader, RefusesWhatNoReaderCouldRead) {
  const auto encode = [](std::vector<Tensor> tensors, std::map<std::string, std::string> metadata = {}) {
    return [tensors = std::move(tensors), metadata = std::move(metadata)] { encode_header(tensors, metadata, 8); };
  };
  expect_safetensors_error(Kind::kDuplicateKey,
                           encode({{"a\n", DType::kF32, {1}}, {"b", DType::kU8, {1}}, {"a\n", DType::kU8, {1}}}),
                           {"tensor 'a\\x0a' appears twice"});
  expect_safetensors_error(Kind::kInvalidHeaderDeserialization, encode({{"__metadata__", DType::kF32, {1}}}),
                           {"__metadata__"});
  expect_safetensors_error(Kind::kValidationOverflow, encode({{"big", DType::kF32, {1ULL << 63, 4}}}),
                           {"tensor 'big'"});
  expect_safetensors_error(Kind::kValidationOverflow, encode({{"big", DType::kF32, {1ULL << 60}}}), {"tensor 'big'"});
  expect_safetensors_error(Kind::kMisalignedSlice, encode({{"odd", DType::kF4, {3}}}), {"tensor 'odd'"});
  expect_safetensors_error(Kind::kRankTooLarge, encode({{"deep", DType::kU8, std::vector<std::uint64_t>(65, 1)}}),
                           {"tensor 'deep' has 65 dimensions"});
  expect_safetensors_error(Kind::kInvalidHeader, encode({{"\xff", DType::kU8, {1}}}), {"not UTF-8"});
  expect_safetensors_error(Kind::kInvalidHeader, encode({}, {{"k", "\xc0\x80"}}), {"metadata value"});
  std::vector<Tensor> many;
  for (int i = 0; i < 9; ++i) many.push_back({fmt::format("t{}", i), DType::kU8, {(1ULL << 61) - 1}});
  expect_safetensors_error(Kind::kValidationOverflow, encode(many), {"overflows 64 bits at tensor 't8'"});
  for (const std::uint64_t align : {0ULL, 4ULL, 24ULL}) {
    expect_error(ErrorKind::kUsage, [&] { encode_header({}, {}, align); }, {"alignment"});
  }
}

TEST(EncodeHeader, KeepsTheLimitOfTheHeaderAtEveryAlignment) {
  // A file of 100,000,000 bytes is legal; if it is padded to the next multiple of 1 MiB, its header is too large.
  const std::map<std::string, std::string> metadata = {{"k", std::string(99'999'960, 'x')}};
  EXPECT_EQ(encode_header({}, metadata, 8).bytes.size(), 100'000'000u);
  expect_safetensors_error(Kind::kHeaderTooLarge, [&] { encode_header({}, metadata, 1ULL << 20); }, {"limit"});
}

TEST(EncodeHeader, ItsBytesAreKnownBefore) {
  std::string name = "a\"\\\b\f\n\r\t/";
  name += '\x01';
  name += "\x7f\u20ac";
  const Tensor tensor{name, DType::kF8E4M3, {10, 9, 12345}};
  const std::string with = encode_header(std::span(&tensor, 1), {{"k", name}}, 8).bytes;
  const std::string without = encode_header({}, {{"k", name}}, 8).bytes;
  const auto length = [](const std::string& header) {
    return header.substr(0, header.find_last_not_of(' ') + 1).size();
  };
  EXPECT_EQ(length(with) - length(without), entry_bytes(tensor.dtype, tensor.shape, name, 7) - 6);  // offset 0: 1 digit
  EXPECT_EQ(length(without), 8 + std::string_view(R"({"__metadata__":{"k":}})").size() + quoted_bytes(name));
}

TEST(EncodeHeader, RoundTripsRandomTensors) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  const std::string alphabet = "ab.\"\\/\n\x01\x7f";
  std::size_t compared = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<Tensor> tensors;
    for (auto i = random() % 12; i > 0; --i) {
      Tensor tensor{fmt::format("{}:", tensors.size()), static_cast<DType>(random() % kDTypeCount), {8}};
      for (auto c = random() % 6; c > 0; --c) tensor.name += alphabet[random() % alphabet.size()];
      for (auto d = random() % 4; d > 0; --d) tensor.shape.push_back(random() % 4);
      tensors.push_back(tensor);
    }
    const auto header = encode_header(tensors, {{"k\n", "\u20ac"}}, 64);
    const auto parsed = read_safetensors(header.bytes + std::string(header.data_bytes, 'd'), "f");
    ASSERT_EQ(parsed.tensors.size(), tensors.size());
    for (const TensorEntry& entry : parsed.tensors) {
      const auto index = static_cast<std::size_t>(std::stoul(std::string(entry.name)));
      EXPECT_EQ(entry.name, tensors[index].name);
      EXPECT_EQ(entry.begin, header.data_offset[index]);
      EXPECT_TRUE(std::ranges::equal(entry.shape, tensors[index].shape));
      ++compared;
    }
  }
  EXPECT_GT(compared, 500u);
}

TEST(TensorBytes, FollowsTheReference) {
  const auto bytes = [](DType dtype, std::vector<std::uint64_t> shape) { return tensor_bytes(dtype, shape, "t"); };
  EXPECT_EQ(bytes(DType::kF32, {}), 4u);
  EXPECT_EQ(bytes(DType::kF32, {0, 1ULL << 63, 4}), 0u);
  EXPECT_EQ(bytes(DType::kF4, {1, 6}), 3u);
  EXPECT_EQ(bytes(DType::kF6E3M2, {4}), 3u);
  EXPECT_EQ(bytes(DType::kU8, {(1ULL << 61) - 1}), (1ULL << 61) - 1);
  expect_safetensors_error(Kind::kValidationOverflow, [&] { bytes(DType::kU8, {1ULL << 61}); }, {"tensor 't'"});
}

}  // namespace
}  // namespace cairn::format::testing
