// Pickled state as JSON.
#include "pickle/pickle_json.hpp"

#include "bounded.hpp"
#include "pickle_helpers.hpp"

namespace cairn::format::testing {
namespace {

std::string json_text(pickle::PickleValue value) {
  const auto json = pickle::json_of(value);
  return json ? json->dump() : "(nothing)";
}

TEST(PickleJson, PlainValuesOfEveryProtocol) {
  for (int protocol = 0; protocol < 6; ++protocol) {
    SCOPED_TRACE(protocol);
    const HeldPickle held(pickle_file("plain.p" + std::to_string(protocol)));
    EXPECT_EQ(json_text(held["none"]), "null");
    EXPECT_EQ(json_text(held["true"]), "true");
    EXPECT_EQ(json_text(held["integers"]),
              "[0,1,-1,255,256,65535,65536,2147483647,2147483648,-2147483648,9223372036854775807,-9223372036854775808,"
              "9223372036854775808,18446744073709551615]");
    EXPECT_EQ(json_text(held["long"]), R"(["0x10000000000000000","-0x400000000000000000","0x1950a86a20f9469cfc6c"])");
    EXPECT_EQ(json_text(held["nan"]), R"("nan")");
    EXPECT_EQ(json_text(held["floats"].at(5)), R"("inf")");
    EXPECT_EQ(json_text(held["tuples"]), "[[],[1],[1,2],[1,2,3],[1,2,3,4]]");
    EXPECT_EQ(json_text(held["set"]), "[7]");
    EXPECT_EQ(json_text(held["frozenset"]), "[8]");
    EXPECT_EQ(json_text(held["bytes"]), R"({"bytes":6,"hex":"007f80ff270a"})");
    EXPECT_EQ(json_text(held["bytearray"]), R"({"bytes":2,"hex":"01fe"})");
    EXPECT_EQ(json_text(held["shared"]), "[[1],[1]]");
    EXPECT_EQ(json_text(held["circle"]), "(nothing)");
    EXPECT_EQ(json_text(held.root()), "(nothing)");
  }
}

TEST(PickleJson, Dicts) {
  EXPECT_EQ(json_text(HeldPickle("}(Vb\nI1\nI5\nNu.").root()), R"({"5":null,"b":1})");
  EXPECT_EQ(json_text(HeldPickle("}(V5\nI1\nI5\nNu.").root()), R"({"dict":[["5",1],[5,null]]})");
  EXPECT_EQ(json_text(HeldPickle("}((I1\ntI2\nu.").root()), R"({"dict":[[[1],2]]})");
}

TEST(PickleJson, Arrays) {
  for (int protocol = 0; protocol < 6; ++protocol) {
    SCOPED_TRACE(protocol);
    const HeldPickle held(pickle_file("arrays.p" + std::to_string(protocol)));
    const auto all = pickle::json_of(held.root());
    ASSERT_TRUE(all);
    const auto text = [&](const char* key) { return all->at(key).dump(); };
    EXPECT_EQ(text("f4"), R"({"array":"f4","shape":[2,3],"values":[0.0,1.0,2.0,3.0,4.0,5.0]})");
    EXPECT_EQ(text("big"), R"({"array":"f4","shape":[2,3],"values":[0.0,1.0,2.0,3.0,4.0,5.0]})");
    EXPECT_EQ(text("fortran"), R"({"array":"f4","shape":[2,3]})");
    EXPECT_EQ(text("i8"), R"({"array":"i8","shape":[2],"values":[-1,4611686018427387904]})");
    EXPECT_EQ(text("u2"), R"({"array":"u2","shape":[2],"values":[16256,49407]})");
    EXPECT_EQ(text("bool"), R"({"array":"b1","shape":[2],"values":[true,false]})");
    EXPECT_EQ(text("c16"), R"({"array":"c16","shape":[1]})");
    EXPECT_EQ(text("f4_scalar"), "1.5");
    EXPECT_EQ(text("i4_scalar"), "-7");
    EXPECT_EQ(text("scalar_array"), R"({"array":"f8","shape":[],"values":[2.5]})");
    EXPECT_EQ(all->at("objects").find("object")->text(), "numpy.core.multiarray._reconstruct");
    if (protocol > 0) {
      EXPECT_EQ(text("large"), R"({"array":"u4","shape":[2000]})");
    }
  }
}

TEST(PickleJson, State) {
  const HeldPickle scheduler(read_file(test_data("paddle/n-1-O0/scheduler.pdparams")));
  EXPECT_EQ(json_text(scheduler.root()), R"({"last_epoch":3,"last_lr":0.001})");
  const HeldPickle trainer(read_file(test_data("paddle/f-dp2-O1/trainer_state.bin")));
  const auto state = pickle::json_of(trainer.root());
  ASSERT_TRUE(state);
  EXPECT_EQ(state->at("object").text(), "paddleformers.trainer.trainer_callback.TrainerState");
  EXPECT_EQ(state->at("state").at("global_step").whole_number(), 3u);
  const HeldPickle random(read_file(test_data("paddle/n-1-O0/rng_state.pth")));
  const auto generators = pickle::json_of(random.root());
  ASSERT_TRUE(generators);
  EXPECT_EQ(generators->at("python").elements()[1].size(), 625u);
  EXPECT_EQ(generators->at("numpy").elements()[1].at("values").size(), 624u);
  EXPECT_EQ(generators->at("cpu").at("object").text(), "paddle.base.libpaddle.GeneratorState");
  const HeldPickle arguments(pickle_file("torch-training-args.pkl"));
  EXPECT_EQ(pickle::json_of(arguments.root())->at("object").text(), "transformers.training_args.TrainingArguments");
  EXPECT_EQ(json_text(HeldPickle("(Pid\ncmod\nname\nt.").root()), R"([{"persistent":"id"},{"name":"mod.name"}])");
  const HeldPickle command(pickle_file("command.p4"));
  EXPECT_EQ(json_text(command["run"]), R"({"object":"posix.system","arguments":["touch executed"]})");
  EXPECT_EQ(json_text(HeldPickle(pickle_file("keywords.p4")).root()),
            R"({"object":"__main__.Named","keywords":{"size":3},"state":{"size":3}})");
}

TEST(PickleJson, HasLimits) {
  const HeldPickle three("(I1\nI2\nt.");
  EXPECT_TRUE(pickle::json_of(three.root(), 6));
  EXPECT_FALSE(pickle::json_of(three.root(), 5));
  const HeldPickle bytes(
      raw("C\x03"
          "abc."));
  EXPECT_TRUE(pickle::json_of(bytes.root(), 8));
  EXPECT_FALSE(pickle::json_of(bytes.root(), 7));
  const HeldPickle entry("}Vabc\nNs.");
  EXPECT_TRUE(pickle::json_of(entry.root(), 7));
  EXPECT_FALSE(pickle::json_of(entry.root(), 6));
  const auto nested = [](std::size_t depth) { return "N" + std::string(depth - 1, '\x85') + "."; };
  EXPECT_TRUE(pickle::json_of(HeldPickle(nested(100)).root()));
  EXPECT_FALSE(pickle::json_of(HeldPickle(nested(101)).root()));
  std::string laughs = raw("]q\x00");
  for (int i = 1; i <= 40; ++i) {
    const std::string before(1, static_cast<char>(i - 1));
    laughs += "](h" + before + "h" + before + "eq" + std::string(1, static_cast<char>(i));
  }
  EXPECT_FALSE(pickle::json_of(HeldPickle(laughs + ".").root()));
}

/// A string, array, name or key in 100,000 places: 200 kB that would grow to hundreds of megabytes.
TEST(PickleJson, WhatIsSharedIsCountedInEveryPlace) {
  const std::string text = "X" + length_prefix(4000).substr(0, 4) + std::string(4000, 'x');
  const std::string name = "c" + std::string(900, 'm') + "\n" + std::string(900, 'n') + "\n";
  const std::string object = name + ")R";
  const std::string entry = "}" + text + "Ns";
  const std::string sizes = "(" + repeated("K\x01", 60) + "t";
  const std::string array = "cnumpy.core.multiarray\n_reconstruct\n)R(K\x01" + sizes + "cnumpy\ndtype\n(Vu1\ntR" +
                            "\x89" + raw("C\x01x") + "tb";
  for (const std::string& shared : {text, name, object, entry, array}) {
    const HeldPickle held("](" + shared + raw("q\x01") + repeated(raw("h\x01"), 100'000) + "e.");
    SCOPED_TRACE(shared.substr(0, 100));
    test::expect_bounded(5, 48 << 20, [&] { EXPECT_FALSE(pickle::json_of(held.root())); });
  }
}

}  // namespace
}  // namespace cairn::format::testing
