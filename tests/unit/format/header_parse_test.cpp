// parse_header and header_length: one broken input per rule, the limits, and speed on inputs that cost a naive reader
// quadratic time.
#include <fmt/core.h>

#include <ctime>
#include <functional>
#include <iostream>
#include <random>

#include "base/text.hpp"
#include "format/plain_header.hpp"
#include "helpers.hpp"

namespace cairn::format::testing {
namespace {

using Kind = SafetensorsErrorKind;

void expect_refused(Kind kind, const std::string& json, std::uint64_t data_bytes, std::string_view part) {
  SCOPED_TRACE(json.substr(0, 200));
  expect_safetensors_error(kind, [&] { parse(json, data_bytes); }, {"dir/x.safetensors: ", part});
}

std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return fmt::format(R"({{"t":{{"dtype":"{}","shape":[{}],"data_offsets":[{}]}}}})", dtype, shape, offsets);
}

std::string repeated(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

/// Processor time, so that no test fails on a busy machine.
double cpu_seconds_of(const std::function<void()>& action) {
  const std::clock_t start = std::clock();
  action();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

TEST(ParseHeader, ReadsTensorsMetadataAndOffsets) {
  const auto header = parse(
      R"( {"b":{"shape":[2],"dtype":"F32","data_offsets":[6,14]},"__metadata__":{"format":"pt","":"\u00e9"},)"
      R"("a":{"dtype":"BF16","unknown":{"x":[1,-2,3.5,null,{"dtype":"?"}]},"shape":[3,1],"data_offsets":[0,6]}} )",
      14);
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[0].dtype, DType::kBF16);
  EXPECT_THAT(header.tensors[0].shape, ::testing::ElementsAre(3, 1));
  EXPECT_EQ(header.tensors[0].end, 6u);
  EXPECT_EQ(header.tensors[1].name, "b");
  EXPECT_EQ(header.tensors[1].begin, 6u);
  EXPECT_EQ(header.metadata, (std::map<std::string, std::string>{{"format", "pt"}, {"", "\u00e9"}}));
  EXPECT_EQ(header.file_bytes, header.data_start + 14);
}

TEST(ParseHeader, AcceptsNoTensorsAndNullMetadata) {
  EXPECT_TRUE(parse("{}", 0).tensors.empty());
  EXPECT_TRUE(parse(R"({"__metadata__":null})", 0).metadata.empty());
  EXPECT_TRUE(parse("\t\n{}\r ", 0).tensors.empty());
}

TEST(ParseHeader, RefusesTextThatTheJsonLibraryWouldTake) {
  expect_refused(Kind::kInvalidHeaderDeserialization, "\xEF\xBB\xBF{}", 0, "byte order mark");
  expect_refused(Kind::kInvalidHeaderDeserialization, std::string("{}\0\0", 4), 0, "NUL");
  expect_refused(Kind::kInvalidHeaderDeserialization, std::string("{\"a\0b\":1}", 9), 0, "NUL");
  expect_refused(Kind::kInvalidHeaderDeserialization, "{} {}", 0, "JSON");
  expect_refused(Kind::kInvalidHeaderDeserialization, "", 0, "JSON");
  expect_refused(Kind::kInvalidHeaderDeserialization, "{\"\x01\":1}", 0, "JSON");
  expect_refused(Kind::kInvalidHeaderDeserialization, R"({"\ud800":1})", 0, "JSON");
  expect_refused(Kind::kInvalidHeaderDeserialization, R"({"\udc00":1})", 0, "JSON");
  expect_refused(Kind::kInvalidHeaderDeserialization, R"({"\ud800\u0041":1})", 0, "JSON");
}

TEST(ParseHeader, RefusesWhatIsNotUtf8BeforeItLooksAtTheJson) {
  for (const char* bad : {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\x80"}) {
    expect_refused(Kind::kInvalidHeader, std::string("not json ") + bad, 0, "byte 9 is not UTF-8");
  }
}

TEST(ParseHeader, RefusesWrongTypes) {
  const auto refused = [](const std::string& json, std::string_view part) {
    expect_refused(Kind::kInvalidHeaderDeserialization, json, 4, part);
  };
  for (const char* top : {"[]", "1", "null", "\"x\"", "true"}) refused(top, "must be a JSON object");
  for (const char* info : {"null", "1", "[]", R"(["F32",[1],[0,4]])", "\"x\"", "true", "-1", "1.5"}) {
    refused(fmt::format(R"({{"t":{}}})", info), "tensor 't': its description must be an object");
  }
  for (const char* dtype : {"null", "5", "[]", R"({"F32":null})", "false"}) {
    refused(fmt::format(R"({{"t":{{"dtype":{}}}}})", dtype), "tensor 't': dtype must be a string");
  }
  for (const char* dim : {"-0", "-1", "1.0", "1e0", "18446744073709551616", "\"1\"", "null", "true", "[1]", "{}"}) {
    refused(one("F32", dim, "0,4"), "tensor 't': shape must hold unsigned 64-bit integers");
    refused(one("F32", "1", std::string("0,") + dim), "tensor 't': data_offsets must hold");
  }
  refused(R"({"t":{"shape":4}})", "shape must be an array");
  refused(R"({"t":{"data_offsets":{}}})", "data_offsets must be an array");
  for (const char* metadata : {"[]", "1", "\"x\"", "true"}) {
    refused(fmt::format(R"({{"__metadata__":{}}})", metadata), "__metadata__ must be an object");
  }
  for (const char* value : {"1", "null", "{}", "[]", "true", "1.5", "-1"}) {
    refused(fmt::format(R"({{"__metadata__":{{"k":{}}}}})", value), "the value of 'k' must be a string");
  }
  for (const char* number : {"01", "+1", "0x1", ".5", "1.", "NaN", "Infinity", "1e999"}) {
    refused(one("F32", number, "0,4"), "not valid JSON");
  }
}

TEST(ParseHeader, RefusesMissingRepeatedAndUnknownFields) {
  const auto refused = [](const std::string& json, std::string_view part) {
    expect_refused(Kind::kInvalidHeaderDeserialization, json, 4, part);
  };
  refused(R"({"t":{"shape":[1],"data_offsets":[0,4]}})", "tensor 't': 'dtype' is missing");
  refused(R"({"t":{"dtype":"F32","data_offsets":[0,4]}})", "tensor 't': 'shape' is missing");
  refused(R"({"t":{"dtype":"F32","shape":[1]}})", "tensor 't': 'data_offsets' is missing");
  refused(R"({"t":{"dtype":"F32","dtype":"F32"}})", "'dtype' appears twice");
  refused(R"({"t":{"shape":[1],"sh\u0061pe":[1]}})", "'shape' appears twice");
  refused(R"({"t":{"data_offsets":[0,4],"data_offsets":[0,4]}})", "'data_offsets' appears twice");
  refused(R"({"__metadata__":null,"__metadata__":{}})", "'__metadata__' appears twice");
  refused(one("F32", "1", "0"), "data_offsets has 1 numbers");
  refused(one("F32", "1", ""), "data_offsets has 0 numbers");
  refused(one("F32", "1", "0,4,4"), "more than two");
  for (const char* dtype : {"f32", "F128", "", "BF16 ", "I4", "__metadata__"})
    refused(one(dtype, "1", "0,4"), "unknown dtype");
  EXPECT_EQ(parse(R"({"t":{"x":1,"x":[],"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4).tensors.size(), 1u);
}

TEST(ParseHeader, RefusesDuplicateNamesAfterUnescaping) {
  const std::string info = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const std::string empty = R"({"dtype":"F32","shape":[0],"data_offsets":[4,4]})";
  expect_refused(Kind::kDuplicateKey, fmt::format(R"({{"t":{},"u":{},"\u0074":{}}})", info, empty, empty), 4,
                 "tensor 't': the name appears twice");
  expect_refused(Kind::kDuplicateKey, R"({"__metadata__":{"k":"1","\u006b":"2"}})", 0, "the key 'k' appears twice");
  // NFC and NFD forms of a letter are different names.
  EXPECT_EQ(parse(fmt::format("{{\"\u00e9\":{},\"e\u0301\":{}}}", info, empty), 4).tensors.size(), 2u);
}

TEST(ParseHeader, LimitsNestingTo127Levels) {
  const auto nested = [](int arrays) {
    return fmt::format(R"({{"t":{{"x":{}{},"dtype":"F32","shape":[1],"data_offsets":[0,4]}}}})", repeated("[", arrays),
                       repeated("]", arrays));
  };
  EXPECT_EQ(parse(nested(125), 4).tensors.size(), 1u);
  expect_refused(Kind::kInvalidHeaderDeserialization, nested(126), 4, "nested more than 127");
  expect_refused(Kind::kInvalidHeaderDeserialization, R"({"t":{"x":)" + repeated("[", 1'000'000), 4,
                 "nested more than 127");
  expect_refused(Kind::kInvalidHeaderDeserialization, R"({"t":)" + repeated(R"({"x":)", 200'000), 4,
                 "nested more than 127");
}

TEST(ParseHeader, LimitsTheRankTo64) {
  EXPECT_EQ(parse(one("U8", repeated("1,", 63) + "1", "0,1"), 1).tensors[0].shape.size(), 64u);
  expect_refused(Kind::kRankTooLarge, one("U8", repeated("1,", 64) + "1", "0,1"), 1,
                 "tensor 't': the shape has more than 64");
}

TEST(ParseHeader, ChecksOffsetsThenOverflowThenBitsThenSize) {
  // Each input breaks a rule, and most inputs also break later rules.
  expect_refused(Kind::kInvalidOffset, one("F4", "18446744073709551615,3", "1,4"), 9,
                 "tensor 't': data_offsets [1, 4]");
  expect_refused(Kind::kInvalidOffset, one("F32", "1", "4,0"), 9, "data_offsets [4, 0]");
  expect_refused(Kind::kValidationOverflow, one("F4", "9223372036854775808,4,0", "0,4"), 9, "elements of shape");
  expect_refused(Kind::kValidationOverflow, one("F4", "4611686018427387905", "0,4"), 9, "size in bits");
  expect_refused(Kind::kMisalignedSlice, one("F4", "1,3", "0,4"), 9, "whole number of bytes");
  expect_refused(Kind::kMisalignedSlice, one("F6_E2M3", "2", "0,4"), 9, "whole number of bytes");
  expect_refused(Kind::kTensorInvalidInfo, one("F32", "2,2", "0,4"), 9, "F32 of shape [2, 2] is 16 bytes");
  expect_refused(Kind::kMetadataIncompleteBuffer, one("F32", "1", "0,4"), 9,
                 "describes 4 bytes of data and the file holds 9");
  expect_refused(Kind::kMetadataIncompleteBuffer, one("F32", "1", "0,4"), 3, "file holds 3");
  EXPECT_EQ(parse(one("F4", "0,9223372036854775808,4", "0,0"), 0).tensors.size(), 1u);
  EXPECT_EQ(parse(one("F6_E3M2", "4", "0,3"), 3).tensors.size(), 1u);
}

TEST(ParseHeader, RefusesHolesOverlapsAndStrayEmptyTensors) {
  const auto two = [](const char* shape, const char* offsets) {
    return fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":[0,4]}},)"
                       R"("b":{{"dtype":"U8","shape":[{}],"data_offsets":[{}]}}}})",
                       shape, offsets);
  };
  EXPECT_EQ(parse(two("4", "4,8"), 8).tensors.size(), 2u);
  EXPECT_EQ(parse(two("0", "0,0"), 4).tensors[0].name, "b");
  EXPECT_EQ(parse(two("0", "4,4"), 4).tensors[1].name, "b");
  for (const char* offsets : {"5,9", "3,7", "0,4"})
    expect_refused(Kind::kInvalidOffset, two("4", offsets), 9, "data_offsets");
  expect_refused(Kind::kInvalidOffset, two("0", "2,2"), 4, "tensor 'b'");
  expect_refused(Kind::kInvalidOffset, two("0", "5,5"), 4, "tensor 'b'");
}

TEST(ParseHeader, EscapesAndCutsNamesInMessages) {
  const std::string json =
      R"({"a\n\u0000)" + std::string(5000, 'x') + R"(":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})";
  expect_safetensors_error(Kind::kInvalidOffset, [&] { parse_header(json, json.size() + 13, "d\ni/f"); },
                           {"d\\x0ai/f: tensor 'a\\x0a\\x00xxx", "...'"});
}

TEST(ParseHeader, ChecksTheFileSizeItself) {
  expect_safetensors_error(Kind::kInvalidHeaderLength, [] { parse_header("{}", 9, "p"); }, {"p: ", "end of the file"});
}

TEST(ParseHeader, IsFastForNinetyTwoThousandTensors) {
  std::string json = "{";
  std::uint64_t at = 0;
  for (int i = 0; i < 92'000; ++i, at += 8) {
    json += fmt::format(
        R"({}"model.layers.{}.mlp.experts.{}.gate_proj.weight":{{"dtype":"BF16","shape":[2,2],"data_offsets":[{},{}]}})",
        i == 0 ? "" : ",", i / 256, i % 256, at, at + 8);
  }
  json += "}";
  std::size_t count = 0;
  const double seconds = cpu_seconds_of([&] { count = parse(json, at).tensors.size(); });
  EXPECT_EQ(count, 92'000u);
  EXPECT_LT(seconds, 3.0);  // 0.2 s in a release build, 1 s with sanitizers
  std::cout << "92000 tensors, " << json.size() << " bytes of header: " << seconds << " s\n";
}

TEST(ParseHeader, IsNotQuadraticInTensorsOnOneRange) {
  std::string json = "{";
  for (int i = 0; i < 100'000; ++i) {
    json += fmt::format(R"({}"t{}":{{"dtype":"F32","shape":[0],"data_offsets":[0,{}]}})", i == 0 ? "" : ",", i,
                        i == 0 ? 0 : 16);
  }
  json += "}";
  EXPECT_LT(cpu_seconds_of([&] { expect_refused(Kind::kTensorInvalidInfo, json, 16, "tensor 't1'"); }), 3.0);
}

// The plain parser accepts headers in the way that programs write them; it must agree with the strict parser
// on everything that it accepts.

std::string shown(const SafetensorsHeader& header) {
  std::string out;
  for (const TensorEntry& entry : header.tensors) {
    out += fmt::format("{}|{}|{}|{}-{}\n", entry.name, name_of(entry.dtype), shape_text(entry.shape), entry.begin,
                       entry.end);
  }
  for (const auto& [key, value] : header.metadata) out += fmt::format("{}={}\n", key, value);
  return out;
}

template <class Parse>
std::string verdict_of(const Parse& parse, std::string_view json) {
  try {
    return shown(parse(json, kPrefixBytes + json.size() + 14, "p"));
  } catch (const SafetensorsError& error) {
    return error.what();
  }
}

constexpr std::string_view kPlain =
    R"({"__metadata__":{"format":"pt","coding":"{\"a\": [1, \"\\n\"]}\t\/"},"b":{"dtype":"F32","shape":[2],)"
    R"("data_offsets":[6,14]},"a.ü":{"shape":[3,1],"data_offsets":[0,6],"dtype":"BF16"}}  )";

TEST(PlainHeader, TakesWhatProgramsWrite) {
  std::string spaced;
  for (const char c : kPlain.substr(kPlain.find("},")))
    spaced += c == ':' || c == ',' ? std::string{' ', c, '\n'} : std::string{c};
  spaced = "{ \"__metadata__\":\t{" + spaced;
  for (const std::string_view json : {std::string_view("{}"), std::string_view("{\"__metadata__\":{}} "), kPlain}) {
    EXPECT_TRUE(read_plain_header(json)) << json;
  }
  EXPECT_TRUE(read_plain_header(spaced)) << spaced;
  EXPECT_EQ(verdict_of(parse_header, kPlain),
            "a.ü|BF16|[3, 1]|0-6\nb|F32|[2]|6-14\ncoding={\"a\": [1, \"\\n\"]}\t/\nformat=pt\n");
}

TEST(PlainHeader, LeavesTheRestToTheStrictParser) {
  const auto one = [](std::string_view info) { return fmt::format(R"({{"t":{{{}}}}})", info); };
  for (const std::string& json : std::vector<std::string>{
           "",
           "{",
           "[]",
           "{} x",
           "{}{}",
           R"({"__metadata__":null})",
           R"({"__metadata__":{"a":"\u0041"}})",
           R"({"__metadata__":{"a":"","a":""}})",
           R"({"__metadata__":{},"__metadata__":{}})",
           R"({"t\u0041":{}})",
           one(R"("dtype":"","shape":[14],"data_offsets":[0,14])"),
           one(R"("dtype":"U8","shape":[14],"data_offsets":[0,14],"x":1)"),
           one(R"("dtype":"U8","shape":[014],"data_offsets":[0,14])"),
           one(R"("dtype":"U8","shape":[14.0],"data_offsets":[0,14])"),
           one(R"("dtype":"U8","shape":[14e0],"data_offsets":[0,14])"),
           one(R"("dtype":"U8","shape":[-1],"data_offsets":[0,14])"),
           one(R"("dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,14])"),
           one(R"("dtype":"U8","shape":[14,],"data_offsets":[0,14])"),
           one(R"("dtype":"U8","shape":[14],"data_offsets":[0,14,14])"),
           one(R"("dtype":"U8","shape":[14],"data_offsets":[0])"),
           one(R"("dtype":"U8","shape":[14])"),
           one(R"("dtype":"U8","dtype":"U8","shape":[14],"data_offsets":[0,14])"),
           one("\"dtype\":\"U8\",\"shape\":[14],\"data_offsets\":[0,14],\"\n\":1"),
           fmt::format(R"({{"t":{{"dtype":"U8","shape":[{}14],"data_offsets":[0,14]}}}})", repeated("1,", 64))}) {
    EXPECT_FALSE(read_plain_header(json)) << json;
    EXPECT_EQ(verdict_of(parse_header, json), verdict_of(parse_header_strictly, json)) << json;
  }
}

TEST(PlainHeader, AgreesWithTheStrictParserOnDamagedText) {
  constexpr std::string_view kPieces = R"({}[]:,"\0123456789-.eE tau)";
  std::mt19937 random(20261123);
  std::size_t taken = 0;
  std::size_t compared = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string json(kPlain);
    for (auto changes = 1 + random() % 3; changes > 0; --changes) {
      const std::size_t at = random() % json.size();
      const std::size_t from = random() % json.size();
      switch (random() % 4) {
        case 0: json[at] = kPieces[random() % kPieces.size()]; break;
        case 1: json.erase(at, 1 + random() % 3); break;
        case 2: json.insert(at, 1, kPieces[random() % kPieces.size()]); break;
        default: json.insert(at, json.substr(from, random() % 40)); break;
      }
    }
    taken += read_plain_header(json).has_value() && base::is_utf8(json) ? 1 : 0;
    ASSERT_EQ(verdict_of(parse_header, json), verdict_of(parse_header_strictly, json)) << json;
    ++compared;
  }
  EXPECT_EQ(compared, 20'000u);
  EXPECT_GT(taken, 1'000u);  // headers in which only names, numbers or blanks changed
}

TEST(HeaderLength, ReadsLittleEndianWithinItsLimits) {
  const auto length = [](std::uint64_t n, std::uint64_t file) {
    return header_length(base::as_bytes(length_prefix(n)), file, "f");
  };
  EXPECT_EQ(length(0, 8), 0u);
  EXPECT_EQ(length(0x1234, 8 + 0x1234), 0x1234u);
  EXPECT_EQ(length(kMaxHeaderBytes, kMaxHeaderBytes + 8), kMaxHeaderBytes);
  expect_safetensors_error(Kind::kHeaderTooLarge, [&] { length(kMaxHeaderBytes + 1, ~0ULL); },
                           {"f: header length 100000001"});
  expect_safetensors_error(Kind::kHeaderTooLarge, [&] { length(~0ULL, 100); }, {"18446744073709551615"});
  expect_safetensors_error(Kind::kInvalidHeaderLength, [&] { length(93, 100); },
                           {"f: the header of 93 bytes", "100 bytes"});
  expect_safetensors_error(Kind::kHeaderTooSmall, [&] { length(0, 7); }, {"f: 7 bytes are too few"});
  expect_safetensors_error(Kind::kHeaderTooSmall, [] { header_length({}, 0, "f"); }, {"f: 0 bytes"});
}

TEST(HeaderLength, NamesWhatIsNotSafetensors) {
  const auto refused = [](std::string_view start, std::string_view part) {
    expect_safetensors_error(Kind::kNotSafetensors,
                             [&] { header_length(base::as_bytes(start), 200, "dir/m.safetensors"); },
                             {"dir/m.safetensors: not a safetensors file but", part});
  };
  refused("version https://git-lfs.github.com/spec/v1\noid sha256:0123", "git-lfs");
  refused("version ", "git lfs pull");
  refused(std::string_view("PK\x03\x04\0\0\x08\x08xxxx", 12), "zip");
  refused(std::string_view("PK\x03\x04\0\0\0\0", 8), "zip");
  refused(std::string_view("GGUF\x03\0\0\0", 8), "GGUF");
  refused("\x80\x02\x8a\x0alxxxxxxx", "a pickle, perhaps a PyTorch .bin/.pt/.pth file");
  refused(std::string_view("\x80\x04\x95\x20\0\0\0\0\0\0\0", 11), "a pickle");
  refused("<!DOCTYPE html>", "HTML");
}

}  // namespace
}  // namespace cairn::format::testing
