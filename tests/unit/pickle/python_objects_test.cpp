// Calls in pickles: numpy's arrays of every protocol, Paddle's tensors, and calls that stay opaque.
#include "pickle/python_objects.hpp"

#include <cstring>

#include "pickle_helpers.hpp"

namespace cairn::format::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// The decoded bytes, read through give_bytes() as in a load.
std::string data_of(const HeldPickle& held, const pickle::PickledArray& array) {
  std::string out;
  pickle::PickledBytes bytes = array.data;
  if (bytes.form != pickle::PickledBytes::Form::kMemory) bytes.memory.reset();
  pickle::give_bytes(bytes, held.source(), "p", array.data_bytes, [&](std::span<const std::byte> piece) {
    out.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  });
  return out;
}

template <class Element>
std::vector<Element> elements_of(const HeldPickle& held, const pickle::PickledArray& array) {
  const std::string bytes = data_of(held, array);
  std::vector<Element> out(bytes.size() / sizeof(Element));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

pickle::PickledArray need_array(pickle::PickleValue value) {
  const auto array = pickle::array_of(value);
  if (!array) throw std::runtime_error("not an array: " + value.where());
  return *array;
}

class NumpyProtocols : public ::testing::TestWithParam<int> {
 protected:
  std::string name_ = "arrays.p" + std::to_string(GetParam());
  HeldPickle held_{pickle_file(name_)};

  pickle::PickleValue value(std::string_view key) {
    const auto entries = pickle::dict_of(held_.root()).value();
    for (const auto& entry : entries) {
      if (entry.first.text() == key) return entry.second;
    }
    throw std::runtime_error("no '" + std::string(key) + "'");
  }
};

TEST_P(NumpyProtocols, Arrays) {
  ASSERT_EQ(pickle::dict_of(held_.root()).value().size(), 17u);
  const pickle::PickledArray f4 = need_array(value("f4"));
  EXPECT_EQ(f4.type, "f4");
  EXPECT_EQ(f4.dtype, DType::kF32);
  EXPECT_THAT(f4.shape, ElementsAre(2, 3));
  EXPECT_FALSE(f4.is_big_endian);
  EXPECT_FALSE(f4.is_fortran_order);
  EXPECT_EQ(f4.data_bytes, 24u);
  EXPECT_THAT(elements_of<float>(held_, f4), ElementsAre(0, 1, 2, 3, 4, 5));
  const pickle::PickledArray fortran = need_array(value("fortran"));
  EXPECT_THAT(fortran.shape, ElementsAre(2, 3));
  EXPECT_TRUE(fortran.is_fortran_order);
  EXPECT_THAT(elements_of<float>(held_, fortran), ElementsAre(0, 3, 1, 4, 2, 5));
  const pickle::PickledArray big = need_array(value("big"));
  EXPECT_TRUE(big.is_big_endian);
  EXPECT_EQ(data_of(held_, big).substr(4, 4), raw("\x3f\x80\x00\x00"));
  EXPECT_THAT(need_array(value("scalar_array")).shape, IsEmpty());
  const pickle::PickledArray empty = need_array(value("empty"));
  EXPECT_THAT(empty.shape, ElementsAre(2, 0));
  EXPECT_EQ(data_of(held_, empty), "");
  EXPECT_THAT(elements_of<std::int64_t>(held_, need_array(value("i8"))), ElementsAre(-1, std::int64_t{1} << 62));
  EXPECT_EQ(pickle::obstacle_of(big), "are big-endian");
  EXPECT_EQ(pickle::obstacle_of(fortran), "are in column-major order");
  EXPECT_EQ(pickle::obstacle_of(empty), "");
  EXPECT_EQ(pickle::obstacle_of(f4).empty(), GetParam() >= 3) << pickle::obstacle_of(f4);
  EXPECT_EQ(pickle::obstacle_of(need_array(value("c16"))), "are of numpy's type c16");
  const pickle::PickledArray u2 = need_array(value("u2"));
  EXPECT_EQ(u2.dtype, DType::kU16);
  EXPECT_THAT(elements_of<std::uint16_t>(held_, u2), ElementsAre(0x3f80, 0xc0ff));
  EXPECT_EQ(need_array(value("bool")).dtype, DType::kBool);
  EXPECT_EQ(data_of(held_, need_array(value("bool"))), raw("\x01\x00"));
  const pickle::PickledArray complex = need_array(value("c16"));
  EXPECT_FALSE(complex.dtype);
  EXPECT_EQ(complex.data_bytes, 16u);
  EXPECT_FALSE(pickle::array_of(value("objects")));
  EXPECT_FALSE(pickle::array_of(value("text")));
  EXPECT_FALSE(pickle::array_of(value("f4_scalar")));
}

TEST_P(NumpyProtocols, LargeArraysAreLeftInTheFile) {
  const pickle::PickledArray large = need_array(value("large"));
  if (GetParam() > 0) {
    EXPECT_FALSE(large.data.memory);
  }
  const auto elements = elements_of<std::uint32_t>(held_, large);
  ASSERT_EQ(elements.size(), 2000u);
  for (std::uint32_t i = 0; i < 2000; ++i) ASSERT_EQ(elements[i], i);
  if (GetParam() < 3) return;
  ASSERT_EQ(large.data.form, pickle::PickledBytes::Form::kPlain);
  std::uint32_t second = 0;
  std::memcpy(&second, held_.bytes.data() + large.data.offset + 4, sizeof second);
  EXPECT_EQ(second, 1u);
}

TEST_P(NumpyProtocols, Numbers) {
  EXPECT_EQ(pickle::number_of(value("f4_scalar")), 1.5);
  EXPECT_EQ(pickle::number_of(value("f8_scalar")), 0.1);
  EXPECT_EQ(pickle::number_of(value("scalar_array")), 2.5);
  EXPECT_EQ(pickle::number_of(value("i4_scalar")), -7);
  EXPECT_EQ(pickle::integer_of(value("i4_scalar")), -7);
  EXPECT_EQ(pickle::integer_of(value("big_scalar")), 5);
  EXPECT_EQ(pickle::integer_of(value("bool_scalar")), 1);
  EXPECT_FALSE(pickle::integer_of(value("f4_scalar")));
  EXPECT_FALSE(pickle::number_of(value("f4")));
  EXPECT_FALSE(pickle::number_of(value("objects")));
}

TEST_P(NumpyProtocols, NothingIsOpaque) { EXPECT_THAT(opaque_names(held_.pickle), IsEmpty()); }

INSTANTIATE_TEST_SUITE_P(, NumpyProtocols, ::testing::Range(0, 6), ::testing::PrintToStringParamName());

TEST(PythonObjects, BytesOfEveryProtocol) {
  for (int protocol = 0; protocol < 6; ++protocol) {
    SCOPED_TRACE(protocol);
    const HeldPickle held(pickle_file("plain.p" + std::to_string(protocol)));
    const auto text = [&](std::string_view key) {
      std::string out;
      const auto bytes = pickle::bytes_of(held[key]);
      if (!bytes || !bytes->memory) return std::string("?");
      return std::string(reinterpret_cast<const char*>(bytes->memory->data()), bytes->memory->size());
    };
    EXPECT_EQ(text("bytes"), raw("\x00\x7f\x80\xff'\n"));
    EXPECT_EQ(text("empty bytes"), "");
    EXPECT_EQ(text("bytearray"), "\x01\xfe");
    EXPECT_FALSE(pickle::bytes_of(held["text"]));
    EXPECT_EQ(pickle::integer_of(pickle::plain(held["set"]).at(0)), 7);
    EXPECT_EQ(pickle::integer_of(pickle::plain(held["frozenset"]).at(0)), 8);
    EXPECT_THAT(opaque_names(held.pickle), IsEmpty());
  }
}

TEST(PythonObjects, PaddleTensors) {
  for (int protocol = 2; protocol < 5; ++protocol) {
    SCOPED_TRACE(protocol);
    const HeldPickle held(pickle_file("paddle.p" + std::to_string(protocol)));
    const pickle::PickleValue named = pickle::plain(held["linear_0.w_0"]);
    ASSERT_TRUE(named.is(pickle::PickleKind::kTuple));
    EXPECT_EQ(named.at(0).text(), "linear_0.w_0");
    EXPECT_THAT(elements_of<float>(held, need_array(named.at(1))), ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(elements_of<float>(held, need_array(held["nameless"])), ElementsAre(0, 1, 2));
    EXPECT_EQ(pickle::number_of(*held["LR_Scheduler"].find("last_lr")), 0.5);
    EXPECT_EQ(held["StructuredToParameterName@@"].find("fc.weight")->text(), "linear_0.w_0");
    const pickle::PickleValue parts = *held["UnpackBigParamInfor@@"].find("big");
    EXPECT_EQ(parts.find("slices")->at(1).text(), "big@@.1");
    EXPECT_EQ(parts.find("OriginShape")->at(0).integer(), 2);
    EXPECT_THAT(elements_of<float>(held, need_array(held["big@@.1"])), ElementsAre(3));
    EXPECT_THAT(opaque_names(held.pickle), IsEmpty());
  }
}

TEST(PythonObjects, RandomStates) {
  for (const char* protocol : {"2", "4"}) {
    SCOPED_TRACE(protocol);
    const HeldPickle held(pickle_file(std::string("random.p") + protocol));
    const pickle::PickleValue python = held["python"];
    ASSERT_EQ(python.size(), 3u);
    EXPECT_EQ(python.at(0).integer(), 3);
    EXPECT_EQ(python.at(1).size(), 625u);
    EXPECT_TRUE(python.at(2).is(pickle::PickleKind::kNone));
    const pickle::PickleValue numpy = held["numpy"];
    EXPECT_EQ(numpy.at(0).text(), "MT19937");
    const pickle::PickledArray state = need_array(numpy.at(1));
    EXPECT_EQ(state.dtype, DType::kU32);
    EXPECT_THAT(state.shape, ElementsAre(624));
    EXPECT_EQ(elements_of<std::uint32_t>(held, state)[0], 6u);
    EXPECT_EQ(pickle::number_of(numpy.at(4)), 0.0);
  }
}

TEST(PythonObjects, OpaqueNames) {
  const HeldPickle command(pickle_file("command.p4"));
  EXPECT_THAT(opaque_names(command.pickle), ElementsAre("posix.system"));
  const HeldPickle objects(pickle_file("objects.p2"));
  EXPECT_THAT(opaque_names(objects.pickle),
              ElementsAre("__main__.Color", "__main__.Elements", "__main__.Entries", "__main__.State", "builtins.len",
                          "collections.defaultdict", "pathlib.PurePosixPath"));
}

/// eval has a meaning only in the form that Paddle writes.
TEST(PythonObjects, EvalOfAnythingElseIsOpaque) {
  const auto names = [](const std::string& pickle) { return opaque_names(HeldPickle(pickle).pickle); };
  const std::string eval = "cbuiltins\neval\n";
  EXPECT_THAT(names(eval + "(Vdata\n(Vdata\nI1\ndtR."), IsEmpty());
  EXPECT_THAT(names(eval + "(Vdata2\n(Vdata\nI1\ndtR."), ElementsAre("builtins.eval"));
  EXPECT_THAT(names(eval + "(Vdata\n(Vdata\nI1\nVos\nI2\ndtR."), ElementsAre("builtins.eval"));
  EXPECT_THAT(names(eval + "(Vdata\ntR."), ElementsAre("builtins.eval"));
  EXPECT_THAT(names(eval + "(Vdata\n(Vdata\nI1\ndtR}b."), ElementsAre("builtins.eval"));
  EXPECT_THAT(names(eval + "."), ElementsAre("builtins.eval"));
  const HeldPickle command(eval + "(Vprint(1)\n(Vdata\nI1\ndtR.");
  EXPECT_TRUE(pickle::plain(command.root()).is(pickle::PickleKind::kObject));
  // plain() does not hang in a cycle of calls that stand for each other.
  const HeldPickle circle(eval + "(Vdata\n}p0\ntRp1\n0g0\nVdata\ng1\ns0g1\n.");
  EXPECT_EQ(pickle::plain(circle.root()).id(), circle.root().id());
}

TEST(PythonObjects, OrderedDictOfPython2) {
  const HeldPickle held("ccollections\nOrderedDict\n((lp0\n(S'a'\nI1\nta(lp1\nS'b'\naI2\naatR.");
  const auto entries = pickle::dict_of(held.root()).value();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[1].first.text(), "b");
  EXPECT_EQ(entries[1].second.integer(), 2);
  const HeldPickle twice("ccollections\nOrderedDict\n((lp0\n(S'a'\nI1\nta(S'a'\nI2\ntatR.");
  expect_error(ErrorKind::kFormat, [&] { (void)pickle::dict_of(twice.root()); },
               {"a key of an OrderedDict is given twice"});
  EXPECT_FALSE(pickle::dict_of(HeldPickle("N.").root()));
}

/// The pickle of one array, made by hand from its state (version, shape, dtype, order, data).
std::string array_pickle(std::string_view state, std::string_view maker = "numpy.core.multiarray\n_reconstruct") {
  return "c" + std::string(maker) + "\n(cnumpy\nndarray\n(I0\ntS'b'\ntR" + std::string(state) + "b.";
}

TEST(PythonObjects, Bfloat16OfMlDtypes) {
  const HeldPickle held(array_pickle(
      "(I1\n(I1\ntcnumpy\ndtype\n(cml_dtypes\nbfloat16\nI00\nI01\ntR(I3\nV<\nNNNI-1\nI-1\nI0\ntbI00\nS'\\x80?'\nt"));
  const pickle::PickledArray array = need_array(held.root());
  EXPECT_EQ(array.type, "bfloat16");
  EXPECT_EQ(array.dtype, DType::kBF16);
  EXPECT_EQ(data_of(held, array), "\x80?");
}

TEST(PythonObjects, ArraysThatContradictThemselves) {
  const std::string f4 = "cnumpy\ndtype\n(S'f4'\nI00\nI01\ntR";
  const auto refuse = [](const std::string& pickle, std::string_view part) {
    const HeldPickle held(pickle);
    expect_error(ErrorKind::kFormat, [&] { (void)pickle::array_of(held.root()); }, {"dir/x.pdopt: byte ", part});
  };
  ASSERT_TRUE(pickle::array_of(HeldPickle(array_pickle("(I1\n(I1\nt" + f4 + "I00\nS'abcd'\nt")).root()));
  refuse(array_pickle("(I1\n(I2\nt" + f4 + "I00\nS'abcd'\nt"), "an array f4[2] has 8 bytes, found 4");
  refuse(array_pickle("(I1\n(I-1\nt" + f4 + "I00\nS'abcd'\nt"), "expected an integer from 0 to 2^64 - 1, found -1");
  refuse(array_pickle("(I1\n(I4294967296\nI4294967296\nt" + f4 + "I00\nS'abcd'\nt"), "has more than 2^64 bytes");
  refuse(array_pickle("(I1\nN" + f4 + "I00\nS'abcd'\nt"), "the shape of an array is not a tuple");
  refuse(array_pickle("(I1\n(I1\ntNI00\nS'abcd'\nt"), "expected a numpy dtype, found None");
  refuse(array_pickle("(I1\n(I1\nt" + f4 + "NS'abcd'\nt"), "expected an integer, found None");
  refuse(array_pickle("(I1\n(I1\nt" + f4 + "I00\nNt"), "the data of an array is None, not bytes");
  refuse(array_pickle("(I1\nt"), "a numpy array's state is not (version, shape, dtype, order, data)");
  refuse(array_pickle("(I1\n(I1\ntcnumpy\ndtype\n(tRI00\nS'abcd'\nt"), "a numpy dtype without a type");
  refuse(array_pickle("(I1\n(I1\nt" + f4 +
                      "Nb"
                      "I00\nS'abcd'\nt"),
         "the state of a numpy dtype is not one");
  refuse(array_pickle("(I1\n(I1\nt" + f4 + "(I3\nS'?'\ntbI00\nS'abcd'\nt"), "a numpy dtype has byte order '?'");
  std::string many = "(I1\n(";
  for (int i = 0; i < 65; ++i) many += "I1\n";
  refuse(array_pickle(many + "t" + f4 + "I00\nS'abcd'\nt"), "an array of 65 dimensions");
  refuse("cnumpy.core.numeric\n_frombuffer\n(S'abcd'\n" + f4 + "(I1\ntVK\ntR.", "a numpy array has order 'K'");
  refuse("cnumpy.core.numeric\n_frombuffer\n(S'abcd'\ntR.", "a numpy array's arguments are not");
  const HeldPickle scalar("cnumpy.core.multiarray\nscalar\n(" + f4 + "S'abc'\ntR.");
  expect_error(ErrorKind::kFormat, [&] { (void)pickle::number_of(scalar.root()); },
               {"the data of a numpy scalar is not 4 bytes"});
}

TEST(PythonObjects, TextsThatStandForBytes) {
  const std::string encode = "c_codecs\nencode\n(V";
  EXPECT_TRUE(pickle::bytes_of(HeldPickle(encode + "\xe9\nVlatin1\ntR.").root()));
  EXPECT_FALSE(pickle::bytes_of(HeldPickle(encode + "a\nVutf-7\ntR.").root()));
  const HeldPickle wide(encode + "\\u20ac\nVlatin1\ntR.");
  expect_error(ErrorKind::kFormat, [&] { (void)pickle::bytes_of(wide.root()); }, {"characters beyond Latin-1"});
}

TEST(PythonObjects, GiveBytesChecksWhatItReads) {
  const auto give = [](const std::string& file, pickle::PickledBytes bytes, std::uint64_t expected) {
    std::uint64_t given = 0;
    pickle::give_bytes(bytes, pickle::source_of(base::as_bytes(file)), "p", expected,
                       [&](std::span<const std::byte> piece) { given += piece.size(); });
    return given;
  };
  // Longer than one piece, with a character that is cut by the end of the piece.
  std::string file = "x";
  for (int i = 0; i < 700'000; ++i) file += "\xc3\xa9";
  const pickle::PickledBytes latin1{
      .form = pickle::PickledBytes::Form::kLatin1, .offset = 0, .size_bytes = file.size(), .memory = {}};
  EXPECT_EQ(give(file, latin1, 700'001), 700'001u);
  const auto refuse = [&](const std::string& content, pickle::PickledBytes bytes, std::uint64_t expected,
                          std::string_view part) {
    bytes.size_bytes = content.size();
    expect_error(ErrorKind::kFormat, [&] { give(content, bytes, expected); }, {"p: byte 0: ", part});
  };
  refuse(file, latin1, 700'000, "more than the 700,000 bytes expected");
  refuse(file, latin1, 700'002, "expected 700,002 bytes, found 700001");
  refuse("a\xc3", latin1, 1, "ends within a character");
  refuse("a\xc4\x80", latin1, 2, "characters beyond Latin-1");
  refuse("a\xc3z", latin1, 2, "characters beyond Latin-1");
}

// Files written by Paddle, torch and others.

TEST(PythonObjects, LegacyCheckpointOfPaddleIsTheTruth) {
  const HeldPickle model(read_file(test_data("paddle/n-legacy-dp2/model_state.pdparams")));
  const HeldPickle optimizer(read_file(test_data("paddle/n-legacy-dp2/optimizer.pdopt")));
  EXPECT_THAT(opaque_names(model.pickle), IsEmpty());
  EXPECT_THAT(opaque_names(optimizer.pickle), IsEmpty());
  const std::string truth = read_file(test_data("paddle/truth/nlp-A.safetensors"));
  const SafetensorsHeader header = read_safetensors(truth, "truth");
  std::size_t compared = 0;
  for (const TensorEntry& tensor : header.tensors) {
    const std::string_view kind = tensor.name.substr(0, tensor.name.find('/'));
    const std::string_view parameter = tensor.name.substr(kind.size() + 1);
    const std::string stored_name(model["StructuredToParameterName@@"].find(parameter)->text());
    std::optional<pickle::PickleValue> value;
    if (kind == "model") {
      value = model[parameter];
    } else if (kind == "master") {
      value = optimizer["master_weights"].find(stored_name);
    } else {
      value = optimizer[stored_name + "_fp32_master_0_" + std::string(kind)];
    }
    ASSERT_TRUE(value) << tensor.name;
    const pickle::PickleValue found = pickle::plain(*value);
    const bool is_named = found.is(pickle::PickleKind::kTuple);
    const pickle::PickledArray array = need_array(is_named ? found.at(1) : found);
    EXPECT_EQ(is_named, kind != "model") << tensor.name;
    EXPECT_THAT(array.shape, ::testing::ElementsAreArray(tensor.shape)) << tensor.name;
    const HeldPickle& file = kind == "model" ? model : optimizer;
    EXPECT_TRUE(data_of(file, array) == truth.substr(header.data_start + tensor.begin, tensor.end - tensor.begin))
        << tensor.name;
    ++compared;
  }
  EXPECT_EQ(compared, 72u);
}

TEST(PythonObjects, RandomStateOfPaddle) {
  const HeldPickle held(read_file(test_data("paddle/n-1-O0/rng_state.pth")));
  EXPECT_EQ(held["python"].at(1).size(), 625u);
  EXPECT_EQ(need_array(held["numpy"].at(1)).data_bytes, 2496u);
  const pickle::PickleValue generator = held["cpu"];
  EXPECT_EQ(generator.name(), "paddle.base.libpaddle.GeneratorState");
  ASSERT_TRUE(generator.state());
  EXPECT_EQ(generator.state()->size(), 4u);
  EXPECT_THAT(opaque_names(held.pickle), ElementsAre("paddle.base.libpaddle.GeneratorState"));
}

TEST(PythonObjects, SchedulerAndTrainerStateOfPaddle) {
  const HeldPickle scheduler(read_file(test_data("paddle/n-1-O0/scheduler.pdparams")));
  EXPECT_EQ(pickle::integer_of(scheduler["last_epoch"]), 3);
  const HeldPickle trainer(read_file(test_data("paddle/f-dp2-O1/trainer_state.bin")));
  EXPECT_EQ(trainer.root().name(), "paddleformers.trainer.trainer_callback.TrainerState");
  EXPECT_EQ(pickle::integer_of(*trainer.root().state()->find("global_step")), 3);
}

TEST(PythonObjects, WhatTorchWrites) {
  const HeldPickle checkpoint(pickle_file("torch-checkpoint.pkl"));
  const auto weights = pickle::dict_of(checkpoint["model"]).value();
  ASSERT_FALSE(weights.empty());
  const pickle::PickleValue tensor = weights.front().second;
  EXPECT_EQ(weights.front().first.text(), "weight");
  EXPECT_EQ(tensor.name(), "torch._utils._rebuild_tensor_v2");
  const pickle::PickleValue storage = tensor.arguments().at(0).persistent_id();
  EXPECT_EQ(storage.at(0).text(), "storage");
  EXPECT_EQ(storage.at(1).name(), "torch.FloatStorage");
  const HeldPickle random(pickle_file("torch-rng-state.pkl"));
  EXPECT_EQ(random["python"].at(1).size(), 625u);
  EXPECT_EQ(need_array(random["numpy"].at(1)).data_bytes, 2496u);
  const HeldPickle arguments(pickle_file("torch-training-args.pkl"));
  EXPECT_EQ(arguments.root().name(), "transformers.training_args.TrainingArguments");
  EXPECT_TRUE(arguments.root().state()->find("learning_rate"));
  const HeldPickle metadata(pickle_file("torch-dcp-metadata.pkl"));
  EXPECT_EQ(metadata.root().name(), "torch.distributed.checkpoint.metadata.Metadata");
  (void)HeldPickle(pickle_file("torch-sharded-tensors.pkl"));
  (void)HeldPickle(pickle_file("deepspeed-optimizer.pkl"));
  // torch's older files are several pickles, then data.
  const std::string legacy = pickle_file("torch-legacy.pt");
  const HeldPickle magic(legacy, {.may_go_on = true});
  EXPECT_EQ(magic.root().long_integer(), "0x1950a86a20f9469cfc6c");
  const HeldPickle version(legacy, {.begin = magic.pickle.end(), .may_go_on = true});
  EXPECT_EQ(version.root().integer(), 1001);
}

}  // namespace
}  // namespace cairn::format::testing
