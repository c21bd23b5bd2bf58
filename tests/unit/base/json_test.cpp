// JSON values compared with the library behind them: accepted and refused input, and the output.
// The JSON reader: the result of each call, and the error of each failing call.
#include "base/json.hpp"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <limits>

#include "base/json_reader.hpp"
#include "cairn/error.hpp"
#include "expect_error.hpp"
#include "nlohmann/json.hpp"

namespace cairn::base {
namespace {

std::string failure_of(std::string_view text) {
  try {
    Json::parse(text, "a\n.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kFormat);
    return error.what();
  }
  return "nothing";
}

TEST(Json, WritesWhatTheLibraryWrites) {
  constexpr const char* kTexts[] = {
      "null",
      "true",
      "[]",
      "{}",
      "\"\"",
      "0",
      "-1",
      "18446744073709551615",
      "-9223372036854775808",
      "1.0",
      "0.1",
      "-2.5e-300",
      R"({"b":[1,-2,0.5,null,true,{"x":{}}],"a":"\u00e9\ud83d\ude00\"\\\n\u001f\u007f","":[[],[[]]]})"};
  for (const char* text : kTexts) {
    const Json value = Json::parse(text, "p");
    EXPECT_EQ(value.dump(), nlohmann::ordered_json::parse(text).dump());
    EXPECT_EQ(value.dump({.sorted = true}), nlohmann::json::parse(text).dump());
    EXPECT_EQ(python_json(value), nlohmann::json::parse(text).dump(2, ' ', true) + "\n");
    EXPECT_TRUE(value == Json::parse(value.dump(), "p"));
  }
}

TEST(Json, IsMadeOfValuesAndLists) {
  Json value = {{"name", "x"}, {"sizes", {1, 2}}, {"none", nullptr}};
  value["list"].push_back(-7);
  value["list"].push_back(std::vector<std::string>{"a"});
  value["map"] = std::map<std::string, double>{{"half", 0.5}};
  value["one"] = {"only"};
  value["name"] = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(
      value.dump(),
      R"({"name":18446744073709551615,"sizes":[1,2],"none":null,"list":[-7,["a"]],"map":{"half":0.5},"one":["only"]})");
  EXPECT_EQ(value.take("sizes").size(), 2U);
  EXPECT_FALSE(value.contains("sizes"));
  EXPECT_TRUE(value.take("sizes").is_null());
  value.update({{"one", 1}, {"two", 2}});
  EXPECT_EQ(value.at("one").whole_number(), 1U);
  EXPECT_EQ(value.size(), 6U);
  EXPECT_EQ(json_quoted("\xc3\xa9\"", {.ascii = true}), "\"\\u00e9\\\"\"");
}

TEST(Json, ObjectsAreEqualInAnyOrder) {
  EXPECT_TRUE(Json({{"a", 1}, {"b", 2}}) == Json({{"b", 2}, {"a", 1}}));
  EXPECT_FALSE(Json({{"a", 1}, {"b", 2}}) == Json({{"a", 1}, {"b", 3}}));
  EXPECT_FALSE(Json({{"a", 1}}) == Json({{"b", 1}}));
  EXPECT_FALSE(Json(1) == Json("1"));
}

TEST(Json, RefusesWhatReadersWouldReadDifferently) {
  EXPECT_EQ(failure_of(R"({"x":{"z":1,"\u007a":2}})"), "a\\x0a.json: the key 'z' appears twice in one object");
  EXPECT_EQ(failure_of("{\"a\":\xff}"), "a\\x0a.json: byte 5 is not UTF-8");
  EXPECT_EQ(failure_of("\xEF\xBB\xBF{}"), "a\\x0a.json: begins with a byte order mark; JSON must not");
  EXPECT_EQ(failure_of(std::string_view("{}\0", 3)), "a\\x0a.json: not JSON: NUL at byte 2");
  EXPECT_EQ(failure_of("[1e999]"), "a\\x0a.json: not valid JSON: a number is too large");
  EXPECT_EQ(failure_of("[1,"), "a\\x0a.json: not valid JSON at byte 4; the file is damaged or cut off");
  EXPECT_EQ(failure_of(""), "a\\x0a.json: not valid JSON at byte 1; the file is damaged or cut off");
  EXPECT_EQ(failure_of("{} x"), "a\\x0a.json: not valid JSON at byte 4; the file is damaged or cut off");
}

TEST(Json, NestingIsBounded) {
  const auto nested = [](int levels, const char* open, const char* close) {
    std::string text;
    for (int i = 0; i < levels; ++i) text += open;
    for (int i = 0; i < levels; ++i) text += close;
    return text;
  };
  EXPECT_EQ(Json::parse(nested(kMaxJsonDepth, "[", "]"), "p").size(), 1U);
  EXPECT_EQ(failure_of(nested(kMaxJsonDepth + 1, "[", "]")), "a\\x0a.json: JSON is nested more than 127 levels deep");
  EXPECT_EQ(failure_of(nested(1'000'000, "{\"a\":", "}")), "a\\x0a.json: JSON is nested more than 127 levels deep");
}

TEST(Json, MembersThatAreNotWantedAreCheckedAndNotKept) {
  constexpr std::array<std::string_view, 2> kWanted = {"b", "d"};
  const JsonOptions limits{.memory_bytes = 1000, .members = kWanted};
  const auto parsed = [&](const std::string& text) { return Json::parse(text, "x.json", limits).dump(); };
  const std::string large = "[" + std::string(100'000, '[') + "1" + std::string(100'000, ']') + "]";
  std::string zeros = "[0";
  for (int i = 0; i < 10'000; ++i) zeros += ",0";
  zeros += "]";
  EXPECT_EQ(
      parsed(R"({"a": )" + zeros + R"(, "b": {"a": [1], "c": 2}, "c": {"b": 3, "d": [{"b": 4}]}, "d": 5, "e": {}})"),
      R"({"b":{"a":[1],"c":2},"d":5})");
  EXPECT_EQ(parsed(R"({"a": [], "c": {}})"), "{}");
  EXPECT_EQ(parsed(R"([{"a": 1}])"), R"([{"a":1}])");
  const auto refused = [&](const std::string& text, std::string_view part) {
    cairn::test::expect_error(ErrorKind::kFormat, [&] { parsed(text); }, {"x.json: ", part});
  };
  refused(R"({"b": )" + zeros + "}", "its values take more than 1000 B of memory");
  refused(R"({"b": ")" + std::string(1000, 'x') + "\"}", "its values take more than 1000 B of memory");
  refused(R"({"a": )" + large + "}", "nested more than 127 levels deep");
  refused(R"({"a": [1, )", "not valid JSON");
  refused(R"({"b": 1, "b": 2})", "the key 'b' appears twice");
}

TEST(Json, TextThatIsNotUtf8IsRefusedOrReplaced) {
  const Json value = {{"a", "\xff"}};
  cairn::test::expect_error(ErrorKind::kUsage, [&] { (void)value.dump(); },
                            {"cannot be stored as JSON: '\\xff' is not UTF-8"});
  EXPECT_THROW((void)value.dump({.dialect = JsonDialect::kPython}), Error);
  EXPECT_THROW((void)json_quoted("\xff", {}), Error);
  EXPECT_EQ(value.dump({.ascii = true, .is_lenient = true}), "{\"a\":\"\\ufffd\"}");
  EXPECT_EQ(shown_json(Json(std::string(100, 'a')), 10).size(), 13U);
}

constexpr const char* kRefused = nullptr;

struct PythonCase {
  const char* text;
  const char* python;  ///< json.dumps(json.loads(text), separators=(",", ":")) of Python 3.11; kRefused: ValueError
};

constexpr PythonCase kPythonCases[] = {
    {"NaN", "NaN"},
    {"Infinity", "Infinity"},
    {"-Infinity", "-Infinity"},
    {"[NaN,-Infinity,Infinity]", "[NaN,-Infinity,Infinity]"},
    {R"({"time_step_limit": [0.0, Infinity]})", R"({"time_step_limit":[0.0,Infinity]})"},
    {"-NaN", kRefused},
    {"+Infinity", kRefused},
    {"nan", kRefused},
    {"inf", kRefused},
    {"Infinit", kRefused},
    {"Infinityx", kRefused},
    {"-Infinit", kRefused},
    {"- Infinity", kRefused},
    {R"("NaN")", R"("NaN")"},
    {"{NaN: 1}", kRefused},
    {"1e999", "Infinity"},
    {"-1e999", "-Infinity"},
    {"[1e400, -1E+400]", "[Infinity,-Infinity]"},
    {"1e-999", "0.0"},
    {"-1e-999", "-0.0"},
    {"123456e-400", "0.0"},
    {"0.0000001e-320", "0.0"},
    {"0e999", "0.0"},
    {"5e-324", "5e-324"},
    {"1.7976931348623157e308", "1.7976931348623157e+308"},
    {"1.7976931348623159e308", "Infinity"},
    {"0.1", "0.1"},
    {"1E5", "100000.0"},
    {"100e-2", "1.0"},
    {"-0", "0"},
    {"-0.0", "-0.0"},
    {"18446744073709551615", "18446744073709551615"},
    {"-9223372036854775808", "-9223372036854775808"},
    {"01", kRefused},
    {"-01", kRefused},
    {"1.", kRefused},
    {".5", kRefused},
    {"1.e5", kRefused},
    {"1e", kRefused},
    {"1e+", kRefused},
    {"-", kRefused},
    {"--1", kRefused},
    {"+1", kRefused},
    {"0x10", kRefused},
    {"1_000", kRefused},
    {R"("\ud800")", R"("\ud800")"},
    {R"("\udfff")", R"("\udfff")"},
    {R"("\ud800x")", R"("\ud800x")"},
    {R"("x\udc00\ud800")", R"("x\udc00\ud800")"},
    {R"("\ud83d\ude00")", R"("\ud83d\ude00")"},
    {R"("\ud83d\ud83d\ude00")", R"("\ud83d\ud83d\ude00")"},
    {R"("\ude00\ud83d")", R"("\ude00\ud83d")"},
    {R"("\ud800\u0041")", R"("\ud800A")"},
    {R"("\ud800\n")", R"("\ud800\n")"},
    {R"("\ud800\uZZZZ")", kRefused},
    {R"("\ud80")", kRefused},
    {R"("\uD83D\uDE00\u00e9\u0000")", R"("\ud83d\ude00\u00e9\u0000")"},
    {R"({"\ud800": 1, "\ud800": 2})", R"({"\ud800":2})"},
    {R"({"a": 1, "b": 2, "a": 3})", R"({"a":3,"b":2})"},
    {R"({"a": {"x": 1}, "a": {"y": 2}})", R"({"a":{"y":2}})"},
    {R"({"a": 1, "\u0061": 2, "b": 3, "a": [4]})", R"({"a":[4],"b":3})"},
    {R"([{"z": 1, "z": 2}, {"z": {"y": 1, "y": null}}])", R"([{"z":2},{"z":{"y":null}}])"},
    {R"({"": 1, "": 2})", R"({"":2})"},
    {R"({"a": 1,})", kRefused},
    {"[1,]", kRefused},
    {"[,1]", kRefused},
    {"[1 2]", kRefused},
    {R"({"a" 1})", kRefused},
    {R"({"a": 1 "b": 2})", kRefused},
    {"{'a': 1}", kRefused},
    {"{a: 1}", kRefused},
    {"// c", kRefused},
    {"[1] // c", kRefused},
    {R"({"a": 1} {"b": 2})", kRefused},
    {"true", "true"},
    {"True", kRefused},
    {"None", kRefused},
    {"undefined", kRefused},
    {"tru", kRefused},
    {R"("\a")", kRefused},
    {R"("\'")", kRefused},
    {R"("\/\b\f\n\r\t\"\\")", R"("/\b\f\n\r\t\"\\")"},
    {R"("unclosed)", kRefused},
    {"\"tab\tinside\"", kRefused},
    {"[1", kRefused},
    {R"({"a":)", kRefused},
    {"[", kRefused},
    {"", kRefused},
    {" ", kRefused},
    {" \t\n\r[ 1 ,\n2 ]\r\n", "[1,2]"},
    {"\xef\xbb\xbf{}", kRefused},
    {"\xc2\xa0[]", kRefused},
    {"\xe2\x80\xa8[]", kRefused},
    {"\x0c[]", kRefused},
    {"\"\xc3\xa9\xe2\x80\xa8\x7f\"", R"("\u00e9\u2028\u007f")"},
    {"\"line\nbreak\"", kRefused},
};

TEST(Json, ReadsOthersTextsAsPythonDoes) {
  constexpr JsonOptions kPython{.dialect = JsonDialect::kPython};
  constexpr JsonFormat kFormat{.ascii = true, .dialect = JsonDialect::kPython};
  std::size_t refused = 0;
  for (const PythonCase& c : kPythonCases) {
    if (c.python == kRefused) {
      cairn::test::expect_error(ErrorKind::kFormat, [&] { (void)Json::parse(c.text, "x.json", kPython); },
                                {"x.json: "});
      ++refused;
      continue;
    }
    const Json value = Json::parse(c.text, "x.json", kPython);
    EXPECT_EQ(value.dump(kFormat), c.python) << c.text;
    EXPECT_TRUE(value == Json::parse(c.python, "x.json", kPython)) << c.text;
    EXPECT_TRUE(value == Json::parse(value.dump({.dialect = JsonDialect::kPython}), "x.json", kPython)) << c.text;
    EXPECT_TRUE(value == Json::parse(compact_json(c.text), "x.json", kPython)) << c.text;
  }
  EXPECT_GT(refused, 30U);
  EXPECT_GT(std::size(kPythonCases) - refused, 40U);
  for (const std::string_view text : {std::string_view("[1]\0", 4), std::string_view("\0", 1)}) {
    cairn::test::expect_error(ErrorKind::kFormat, [&] { (void)Json::parse(text, "x.json", kPython); }, {"NUL at byte"});
  }
  // Python refuses a text with such bytes when it decodes the file.
  for (const char* text : {"\"\xff\"", "\"\xed\xa0\x80\""}) {
    cairn::test::expect_error(ErrorKind::kFormat, [&] { (void)Json::parse(text, "x.json", kPython); },
                              {"byte 1 is not UTF-8"});
  }
}

TEST(Json, IntegersBeyond64BitsAreDoubles) {
  for (const JsonDialect dialect : {JsonDialect::kStrict, JsonDialect::kPython}) {
    EXPECT_EQ(Json::parse("18446744073709551616", "p", {.dialect = dialect}).real_number(), 0x1p64);
    EXPECT_EQ(Json::parse("-9223372036854775809", "p", {.dialect = dialect}).real_number(), -0x1p63);
  }
  EXPECT_EQ(Json::parse(std::string(400, '9'), "p", {.dialect = JsonDialect::kPython}).real_number(),
            std::numeric_limits<double>::infinity());
}

TEST(Json, CairnsOwnTextsHaveNoneOfIt) {
  for (const char* text : {"NaN", "[Infinity]", "-Infinity", R"("\ud800")", R"("\udc00")", R"("\ud800\u0041")"}) {
    EXPECT_NE(failure_of(text).find("not valid JSON at byte"), std::string::npos) << text;
  }
  EXPECT_EQ(failure_of(R"({"a":1,"a":1})"), "a\\x0a.json: the key 'a' appears twice in one object");
  EXPECT_EQ(failure_of("[-1e400]"), "a\\x0a.json: not valid JSON: a number is too large");
  const Json special = Json::parse(R"(["\ud800", NaN, 1])", "p", {.dialect = JsonDialect::kPython});
  EXPECT_EQ(special.elements()[0].text(), "\xed\xa0\x80");
  cairn::test::expect_error(ErrorKind::kUsage, [&] { (void)special.dump(); }, {"'\\xed\\xa0\\x80' is not UTF-8"});
  cairn::test::expect_error(ErrorKind::kUsage, [&] { (void)python_json(special.elements()[1]); },
                            {"cannot be stored as JSON: a number is not finite"});
  EXPECT_EQ(special.dump({.ascii = true, .is_lenient = true}), R"(["\ufffd\ufffd\ufffd",null,1])");
  EXPECT_EQ(shown_json(special, 40), R"(["\x5cud800",NaN,1])");
}

TEST(Json, AMemberOfSeveralWithOneKeyIsTheLast) {
  constexpr std::array<std::string_view, 1> kWanted = {"b"};
  const JsonOptions options{.dialect = JsonDialect::kPython, .members = kWanted};
  EXPECT_EQ(Json::parse(R"({"b": 1, "a": 2, "b": {"c": NaN, "c": 3}, "a": 4})", "p", options).dump(),
            R"({"b":{"c":3}})");
}

TEST(Json, BlanksBetweenValuesAreTakenOut) {
  EXPECT_EQ(compact_json("{ \"a b\\\" c\" :\t[ 1e-05 , NaN,\r\n 123456789012345678901 ] } \n"),
            "{\"a b\\\" c\":[1e-05,NaN,123456789012345678901]}");
}

TEST(Json, AWrongTypeIsSaid) {
  EXPECT_THROW((void)Json("x").whole_number(), Error);
  EXPECT_THROW((void)Json(-1).whole_number(), Error);
  EXPECT_THROW((void)Json(1).text(), Error);
  EXPECT_THROW((void)Json(1).items(), Error);
  EXPECT_THROW((void)Json(1).elements(), Error);
  EXPECT_THROW((void)Json().at("x"), Error);
  EXPECT_EQ(Json(1).real_number(), 1.0);
  EXPECT_EQ(Json(-1).real_number(), -1.0);
}

constexpr const char* kDocument = R"({"name": "x", "size": 3, "none": null, "yes": true, "sizes": [1, 2, -3],
                                      "parts": [{"a\n": "1"}, []], "names": ["p", "q"]})";

TEST(JsonReader, GivesValuesByTheirType) {
  const Json json = Json::parse(kDocument, "p");
  const JsonReader reader(json, "p");
  EXPECT_EQ(reader.at("name").text(), "x");
  EXPECT_EQ(reader.text_or("name", "y"), "x");
  EXPECT_EQ(reader.text_or("other", "y"), "y");
  EXPECT_EQ(reader.at("size").number(), 3U);
  EXPECT_EQ(reader.at("size").number_from(3), 3U);
  EXPECT_EQ(reader.at("size").number_within(3, 3), 3U);
  EXPECT_EQ(reader.number_or("size", 4), 3U);
  EXPECT_EQ(reader.number_or("other", 4), 4U);
  EXPECT_TRUE(reader.at("yes").flag());
  EXPECT_TRUE(reader.has("none"));
  EXPECT_FALSE(reader.has("other"));
  EXPECT_FALSE(reader.find("other"));
  EXPECT_EQ(reader.at("names").texts(), (std::vector<std::string>{"p", "q"}));
  EXPECT_EQ(reader.at("name").texts(), std::vector<std::string>{"x"});
  const auto parts = reader.at("parts").items();
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_TRUE(parts[1].numbers().empty());
  const auto members = parts[0].members();
  ASSERT_EQ(members.size(), 1U);
  EXPECT_EQ(members[0].key, "a\n");
  EXPECT_EQ(members[0].value.place(), "parts[0].a\\x0a");
  EXPECT_EQ(members[0].value.text(), "1");
  reader.check_keys({"parts", "sizes", "none", "yes", "name", "names", "size", "more"});
}

TEST(JsonReader, ErrorsNameTheDocumentAndThePlace) {
  const Json json = Json::parse(kDocument, "p");
  const JsonReader reader(json, "a\n.json", ErrorKind::kUsage);
  const auto failure = [&](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      EXPECT_TRUE(std::string_view(error.what()).starts_with("a\\x0a.json: ")) << error.what();
      return std::string(error.what()).substr(12);
    }
    return "nothing";
  };
  EXPECT_EQ(failure([&] { (void)reader.at("b\n"); }), "the key 'b\\x0a' is missing");
  EXPECT_EQ(failure([&] { (void)reader.text(); }), "must be a string, found object");
  EXPECT_EQ(failure([&] { (void)reader.at("size").text(); }), "size: must be a string, found 3");
  EXPECT_EQ(failure([&] { (void)reader.text_or("none", ""); }), "none: must be a string, found null");
  EXPECT_EQ(failure([&] { (void)reader.number_or("yes", 1); }), "yes: must be a whole number, 0 or more, found true");
  EXPECT_EQ(failure([&] { (void)reader.at("sizes").numbers(); }),
            "sizes[2]: must be a whole number, 0 or more, found -3");
  EXPECT_EQ(failure([&] { (void)reader.at("size").number_from(4); }), "size: must be at least 4, found 3");
  EXPECT_EQ(failure([&] { (void)reader.at("size").number_within(4, 9); }),
            "size: must be a whole number from 4 to 9, found 3");
  EXPECT_EQ(failure([&] { (void)reader.at("size").number_within(1, 2); }),
            "size: must be a whole number from 1 to 2, found 3");
  EXPECT_EQ(failure([&] { (void)reader.at("name").flag(); }), "name: must be true or false, found \"x\"");
  EXPECT_EQ(failure([&] { (void)reader.at("name").items(); }), "name: must be an array, found \"x\"");
  EXPECT_EQ(failure([&] { (void)reader.at("size").numbers(); }), "size: must be an array, found 3");
  EXPECT_EQ(failure([&] { (void)reader.at("parts").items()[1].texts(); }), "parts[1]: must not be empty");
  EXPECT_EQ(failure([&] { (void)reader.at("parts").texts(); }), "parts[0]: must be a string, found object");
  for (const auto& call : std::vector<std::function<void(const JsonReader&)>>{
           [](const JsonReader& list) { (void)list.members(); }, [](const JsonReader& list) { (void)list.find("x"); },
           [](const JsonReader& list) { list.check_keys({}); }, [](const JsonReader& list) { list.check_object(); }}) {
    EXPECT_EQ(failure([&] { call(reader.at("names")); }), "names: must be an object, found array");
  }
  EXPECT_EQ(failure([&] {
              reader.at("parts").items()[0].check_keys({"b", "c"});
            }),
            "parts[0]: unknown key 'a\\x0a'; allowed: b, c");
}

}  // namespace
}  // namespace cairn::base
