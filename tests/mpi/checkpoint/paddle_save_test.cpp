// Saves in the forms of PaddlePaddle's packages give the same bytes as converting the same state into them,
// and load as the program's state. tests/paddle runs the trainers themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "comm/mpi.hpp"
#include "conversion/convert.hpp"
#include "environment.hpp"
#include "expect_error.hpp"
#include "interop/paddle/families.hpp"
#include "moment_state.hpp"
#include "quant/codec.hpp"
#include "same_text.hpp"
#include "shared_temp_dir.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

constexpr std::uint64_t kHidden = 96;
constexpr std::uint64_t kInner = 160;
constexpr std::uint64_t kVocabulary = 130;
constexpr const char* kScheduler = R"({"last_epoch": 7, "last_lr": 0.000125})";

struct Form {
  std::string word;
  bool is_nlp() const { return word == "paddlenlp"; }
};

enum class Ties { kTied, kUntied };

std::string config_of(Ties ties) {
  return R"({"model_type": "llama", "hidden_size": 96, "intermediate_size": 160, "vocab_size": 130, )"
         R"("tie_word_embeddings": )" +
         std::string(ties == Ties::kTied ? "true}" : "false}");
}

/// A small Llama in mixed precision as the package's trainer holds it: linear weights in the package's order, masters
/// and moments as [in, out]; norms in BF16, and the last one in F32.
std::vector<StateTensor> paddle_state(const Form& form, Ties ties) {
  std::vector<StateTensor> state;
  const std::string base = form.is_nlp() ? "llama." : "model.";
  const auto add = [&](const std::string& name, const std::vector<std::uint64_t>& shape, DType dtype) {
    std::vector<std::uint64_t> of_model = shape;
    if (!form.is_nlp() && interop::is_turned_in_file({"llama", {}, {}, ties == Ties::kTied}, name) == true)
      std::swap(of_model[0], of_model[1]);
    state.push_back({"model", name, dtype, of_model});
    state.push_back({"master_weights", name, DType::kF32, shape});
    state.push_back({"optimizer", name + "/moment1_0", DType::kF32, shape});
    state.push_back({"optimizer", name + "/moment2_0", DType::kF32, shape});
    state.push_back({"optimizer", name + "/beta1_pow_acc_0", DType::kF32, {1}});
    state.push_back({"optimizer", name + "/beta2_pow_acc_0", DType::kF32, {1}});
  };
  for (const char* layer : {"layers.2.", "layers.10."}) {
    const std::string stem = base + layer;
    add(stem + "self_attn.q_proj.weight", {kHidden, kHidden}, DType::kBF16);
    add(stem + "mlp.gate_proj.weight", {kHidden, kInner}, DType::kBF16);
    add(stem + "mlp.down_proj.weight", {kInner, kHidden}, DType::kBF16);
    add(stem + "input_layernorm.weight", {kHidden}, DType::kBF16);
  }
  add(base + "norm.weight", {kHidden}, DType::kF32);
  add(base + "embed_tokens.weight", {kVocabulary, kHidden}, DType::kBF16);
  const bool has_rows = ties == Ties::kTied || !form.is_nlp();
  add("lm_head.weight", has_rows ? std::vector{kVocabulary, kHidden} : std::vector{kHidden, kVocabulary}, DType::kBF16);
  return state;
}

Options options_for(const std::string& form, const std::string& codec = "off") {
  Options options;
  options.files.form = form;
  options.files.max_bytes = 100'000;
  options.files.block_bytes = 4096;
  options.limits.memory_budget_bytes = 64 << 10;
  options.quantisation.codecs = {{"optimizer", codec}};
  return options;
}

Extras extras_of(Ties ties) {
  Extras extras;
  extras.metadata = {{"scheduler", kScheduler}, {"run", "mine"}};
  extras.carry_texts = {{"config.json", config_of(ties)}};
  return extras;
}

void convert(const fs::path& from, const fs::path& to, const std::string& form, const std::string& quant) {
  const auto communicator = comm::duplicate_mpi(MPI_COMM_WORLD, {});
  conversion::ConvertOptions options;
  options.write = options_for("");
  options.read.memory_budget_bytes = 64 << 10;
  options.to = form;
  options.quant = quant;
  (void)conversion::convert(*communicator, from, to, options);
}

std::set<std::string> files_of(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.insert(entry.path().filename());
  return names;
}

/// All files except the manifest, which names the tool that wrote it.
void expect_same_files(const fs::path& found, const fs::path& expected) {
  const std::set<std::string> names = files_of(expected);
  EXPECT_EQ(files_of(found), names);
  std::size_t compared = 0;
  for (const std::string& name : names) {
    if (name == "cairn.json") continue;
    EXPECT_TRUE(read_file(found / name) == read_file(expected / name)) << name;
    ++compared;
  }
  EXPECT_GE(compared, 12U);
}

/// The moments of the state are more than Paddle's codecs can hold: one warning, on rank 0, says so.
void expect_only_the_warning_of_figures(const Report& report, bool is_expected) {
  EXPECT_EQ(report.warnings.size(), is_expected ? 1U : 0U);
  EXPECT_EQ(report.beyond_figures.empty(), !is_expected);
  if (!is_expected) return;
  EXPECT_THAT(report.warnings.at(0), HasSubstr("coded worse than the codec's figures; there paddle-o"));
}

std::uint64_t sum(std::uint64_t value) {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  return value;
}

std::uint64_t bytes_of(const std::vector<StateTensor>& tensors) {
  std::uint64_t bytes = 0;
  for (const StateTensor& tensor : tensors) bytes += shard::elements_of(tensor.shape) * bits_of(tensor.dtype) / 8;
  return bytes;
}

class PaddleSave : public testing::TestWithParam<std::tuple<const char*, const char*, Ties>> {
 protected:
  const World world_;
  const SharedTempDir root_;
  const Form form_{std::get<0>(GetParam())};
  const std::string codec_ = std::get<1>(GetParam());
  const Ties ties_ = std::get<2>(GetParam());
};

TEST_P(PaddleSave, WritesWhatAConversionOfTheSameStateWrites) {
  const auto tensors = paddle_state(form_, ties_);
  MomentRank state(Cut::kColumns, world_.rank, world_.ranks, tensors);
  state.fill(1);
  Extras extras = extras_of(ties_);
  extras.rank_blob.assign(static_cast<std::size_t>(10 + world_.rank), std::byte{7});
  Checkpointer plain(MPI_COMM_WORLD, root_ / "plain", options_for(""));
  plain.save(5, state.sources(), extras);
  convert(root_ / "plain/checkpoint-5", root_ / "converted", form_.word, codec_);
  Checkpointer checkpointer(MPI_COMM_WORLD, root_ / "form", options_for(form_.word, codec_));
  const Report report = checkpointer.save(5, state.sources(), extras);
  expect_only_the_warning_of_figures(report, world_.rank == 0 && codec_ != "off");
  expect_same_files(report.directory, root_ / "converted");
  const std::set<std::string> names = files_of(report.directory);
  const std::string first = read_file(report.directory / *names.lower_bound("model-00001-of-")).substr(0, 4096);
  EXPECT_THAT(first, HasSubstr(form_.is_nlp() ? R"("dtype":"U16")" : R"("dtype":"BF16")"));
  EXPECT_THAT(first, HasSubstr(form_.is_nlp() ? R"("format":"np")" : R"("format":"pt")"));

  const auto content = loaded_content(tensors, codec_ == "off" ? nullptr : &quant::find_codec(codec_));
  for (const Cut cut : {Cut::kRows, Cut::kFlat, Cut::kOneRank}) {
    MomentRank loaded(cut, world_.rank, world_.ranks, tensors);
    checkpointer.load(5, loaded.targets());
    EXPECT_EQ(sum(loaded.expect(content)), bytes_of(tensors));
  }
  EXPECT_EQ(checkpointer.load_rank_blob(5, 0).size(), 10U);
  if (world_.rank == 0) {  // also on another number of ranks
    MomentRank loaded(Cut::kReplicated, 0, 1, tensors);
    Checkpointer alone(MPI_COMM_SELF, root_ / "form");
    alone.load_latest(loaded.targets());
    EXPECT_EQ(loaded.expect(content), bytes_of(tensors));
  }
}

TEST_P(PaddleSave, AsynchronousSavesWriteTheSame) {
  const auto tensors = paddle_state(form_, ties_);
  MomentRank state(Cut::kRows, world_.rank, world_.ranks, tensors);
  state.fill(1);
  const Extras extras = extras_of(ties_);
  Checkpointer checkpointer(MPI_COMM_WORLD, root_.path(), options_for(form_.word, codec_));
  const fs::path expected = checkpointer.save(5, state.sources(), extras).directory;
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_.rank == 0) fs::rename(expected, root_ / "expected");
  MPI_Barrier(MPI_COMM_WORLD);
  checkpointer.prepare_async(state.sources());
  SaveTicket ticket = checkpointer.save_async(5, state.sources(), extras);
  state.fill(2);
  const Report report = ticket.wait();
  expect_only_the_warning_of_figures(report, world_.rank == 0 && codec_ != "off");
  expect_same_files(report.directory, root_ / "expected");
}

INSTANTIATE_TEST_SUITE_P(Forms, PaddleSave,
                         testing::Values(std::tuple("paddlenlp", "off", Ties::kUntied),
                                         std::tuple("paddlenlp", "paddle-o1", Ties::kTied),
                                         std::tuple("paddleformers", "off", Ties::kTied),
                                         std::tuple("paddleformers", "paddle-o1", Ties::kUntied)),
                         [](const auto& form) {
                           return std::string(std::get<0>(form.param)) +
                                  (std::get<1>(form.param)[0] == 'o' ? "O0" : "O1");
                         });

/// A state of the form `word`, whole on every rank.
struct Whole {
  Whole(const std::string& word, Ties ties, const std::function<void(std::vector<StateTensor>&)>& change = {})
      : tensors(changed(paddle_state({word}, ties), change)), rank(Cut::kReplicated, 0, 1, tensors) {
    rank.fill(1);
  }
  static std::vector<StateTensor> changed(std::vector<StateTensor> state,
                                          const std::function<void(std::vector<StateTensor>&)>& change) {
    if (change) change(state);
    return state;
  }
  std::vector<StateTensor> tensors;
  MomentRank rank;
};

TEST(PaddleForm, ThePlanHoldsWhateverIsSaidBesideTheTensors) {
  const World world;
  const SharedTempDir root;
  Whole state("paddlenlp", Ties::kTied);
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options_for("paddlenlp"));
  Extras extras = extras_of(Ties::kTied);
  EXPECT_FALSE(checkpointer.save(1, state.rank.sources(), extras).plan_reused);
  // The run resumed from codes, which Paddle allows once, and continues.
  extras.metadata["paddle"] = R"({"ckpt_quant_stage": "O1", "quant_ckpt_resume_times": 1})";
  extras.metadata["scheduler"] = R"({"last_epoch": 8, "last_lr": 0.5})";
  const Report second = checkpointer.save(2, state.rank.sources(), extras);
  EXPECT_TRUE(second.plan_reused);
  EXPECT_THAT(read_file(root / "checkpoint-1/optimizer.safetensors.index.json"),
              HasSubstr("\"quant_ckpt_resume_times\": 0"));
  EXPECT_THAT(read_file(root / "checkpoint-2/optimizer.safetensors.index.json"),
              HasSubstr("\"quant_ckpt_resume_times\": 2"));
  EXPECT_EQ(read_file(root / "checkpoint-2/scheduler.pdparams"), interop::encode_scheduler(8, 0.5));
  EXPECT_EQ(read_file(root / "checkpoint-2/trainer_state.json"), "{\n  \"global_step\": 2\n}\n");
  const auto kept = checkpointer.load_extras(2).metadata;
  EXPECT_EQ(interop::parse_paddle_state(kept.at("paddle")), (interop::PaddleState{"O0", 2, false, false}));
  EXPECT_EQ(kept.at("run"), "mine");

  // Metadata that is not carried is generated: here for another state, without master weights.
  Whole other("paddlenlp", Ties::kTied,
              [](auto& tensors) { std::erase_if(tensors, [](auto& t) { return t.section == "master_weights"; }); });
  EXPECT_FALSE(checkpointer.save(3, other.rank.sources(), extras).plan_reused);
  EXPECT_THAT(read_file(root / "checkpoint-3/optimizer.safetensors.index.json"),
              HasSubstr("\"master_weights\": false"));
}

TEST(PaddleForm, TakesWhatTheProgramCarries) {
  const World world;
  const SharedTempDir root;
  Whole state("paddleformers", Ties::kUntied);
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options_for("paddleformers"));
  Extras extras = extras_of(Ties::kUntied);
  extras.carry_texts["scheduler.pdparams"] = "its own";
  extras.carry_texts["trainer_state.bin"] = "its step";
  checkpointer.save(1, state.rank.sources(), extras);
  EXPECT_EQ(read_file(root / "checkpoint-1/scheduler.pdparams"), "its own");
  EXPECT_EQ(read_file(root / "checkpoint-1/trainer_state.bin"), "its step");
  const Report bare = checkpointer.save(2, state.rank.sources());
  if (world.rank == 0) {
    EXPECT_THAT(bare.warnings, Contains(HasSubstr("PaddleFormers resumes only with ignore_load_lr_and_optim")));
  }
  EXPECT_FALSE(fs::exists(root / "checkpoint-2/scheduler.pdparams"));
}

TEST(PaddleForm, SaysThatItsLoaderReadsNoO2) {
  const World world;
  const SharedTempDir root;
  Whole state("paddlenlp", Ties::kTied);
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options_for("paddlenlp", "paddle-o2"));
  const Report report = checkpointer.save(1, state.rank.sources(), extras_of(Ties::kTied));
  if (world.rank == 0) {
    EXPECT_THAT(report.warnings, Contains(HasSubstr("PaddleNLP cannot load moments of O2")));
  }
  MomentRank loaded(Cut::kRows, world.rank, world.ranks, state.tensors);
  checkpointer.load(1, loaded.targets());
  const auto content = loaded_content(state.tensors, &quant::find_codec("paddle-o2"));
  EXPECT_EQ(sum(loaded.expect(content)), bytes_of(state.tensors));
}

/// Collective: the message, equal on all ranks, of the Error(kUsage) that `call` must throw.
std::string refusal(const std::function<void()>& call) {
  std::string text = message_of_error(ErrorKind::kUsage, call);
  expect_same_everywhere(text);
  return text;
}

TEST(PaddleForm, RefusesOptionsThatItsLoaderCannotRead) {
  const SharedTempDir root;
  const auto refused = [&](const Options& options) {
    return refusal([&] { const Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options); });
  };
  EXPECT_THAT(refused(options_for("shards")),
              HasSubstr("no save writes files in the form 'shards' (Options::files.form); there are hf, paddleformers, "
                        "paddlenlp"));
  EXPECT_THAT(refused(options_for("paddlenlp", "q8")), HasSubstr("PaddleNLP reads no moments in q8"));
  Options options = options_for("paddleformers");
  options.quantisation.remove_master_weight = true;
  EXPECT_THAT(refused(options), HasSubstr("master weights of PaddleFormers are transposed"));
  options = options_for("paddleformers", "q8");
  options.quantisation.disable_ckpt_quant = true;
  EXPECT_NO_THROW(Checkpointer(MPI_COMM_WORLD, root.path(), options));
  EXPECT_NO_THROW(Checkpointer(MPI_COMM_WORLD, root.path(), options_for("hf", "q8")));
}

TEST(PaddleForm, RefusesAStateThatItsLoaderWouldNotFindAndLeavesNothing) {
  const SharedTempDir root;
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options_for("paddlenlp", "paddle-o1"));
  const auto refused = [&](Whole state, Ties ties = Ties::kUntied) {
    std::string text = refusal([&] { checkpointer.save(1, state.rank.sources(), extras_of(ties)); });
    EXPECT_EQ(files_of(root.path()).count("checkpoint-1"), 0U);
    EXPECT_THAT(files_of(root.path()), Not(Contains(EndsWith(".partial"))));
    return text;
  };
  const auto rename = [](const char* from, const char* to) {
    return [=](std::vector<StateTensor>& tensors) {
      for (StateTensor& tensor : tensors) {
        const std::size_t at = tensor.name.find(from);
        if (at != std::string::npos) tensor.name.replace(at, std::strlen(from), to);
      }
    };
  };
  EXPECT_THAT(refused(Whole("paddlenlp", Ties::kUntied, rename("/beta1_pow_acc_0", ".beta1"))),
              HasSubstr(".beta1' of section optimizer is not called '<parameter>/moment1_0'"));
  EXPECT_THAT(refused(Whole("paddlenlp", Ties::kUntied, rename("norm.weight/beta1_pow", "norm.weight/beta3_pow"))),
              HasSubstr("is missing, and other parameters have it: PaddleNLP would not resume"));
  const auto without_powers = [](std::vector<StateTensor>& tensors) {
    std::erase_if(tensors, [](const auto& t) { return t.name.find("_pow_acc_0") != std::string::npos; });
  };
  EXPECT_THAT(refused(Whole("paddlenlp", Ties::kUntied, without_powers)),
              HasSubstr("no '<parameter>/beta1_pow_acc_0'"));
  EXPECT_THAT(refused(Whole("paddlenlp", Ties::kUntied, rename("gate_proj", "gate_up_fused_proj"))),
              HasSubstr("PaddleNLP takes wrong scales of fused weights"));
  EXPECT_THAT(refused(Whole("paddleformers", Ties::kUntied)),
              HasSubstr("by its weight: PaddleNLP has linear weights [in, out]"));
  EXPECT_THAT(refused(Whole("paddlenlp", Ties::kUntied, rename("llama.", "model."))),
              HasSubstr("names of PaddleNLP's model llama begin with 'llama.'"));
  const auto without_head = [](std::vector<StateTensor>& tensors) {
    std::erase_if(tensors, [](const auto& t) { return t.section != "model" && t.name.starts_with("lm_head"); });
  };
  EXPECT_THAT(refused(Whole("paddlenlp", Ties::kTied, without_head), Ties::kTied),
              HasSubstr("section optimizer has 'llama.embed_tokens.weight' and not 'lm_head.weight'"));
  EXPECT_THAT(refused(Whole("paddlenlp", Ties::kUntied, [](std::vector<StateTensor>& tensors) { tensors.clear(); })),
              HasSubstr("a state without tensors: PaddleNLP would have nothing to resume from"));

  Whole good("paddlenlp", Ties::kUntied);
  EXPECT_EQ(checkpointer.save(1, good.rank.sources(), extras_of(Ties::kUntied)).tensors, good.tensors.size() + 3 * 11);
}

}  // namespace
}  // namespace cairn::test
