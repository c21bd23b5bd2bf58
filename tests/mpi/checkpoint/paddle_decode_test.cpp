// Every O1 and O2 directory that Paddle wrote, decoded by conversions and by loads of boxes in other layouts:
// bit for bit the moments that the codec decodes from the true moments' codes, by both rules of division.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "cairn/staging.hpp"
#include "coded_files.hpp"
#include "comm/mpi.hpp"
#include "conversion/convert.hpp"
#include "cut_out.hpp"
#include "environment.hpp"
#include "paddle_samples.hpp"
#include "quant/cast.hpp"
#include "sharded_state.hpp"
#include "shared_temp_dir.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

/// The expected moments of the optimizer, by name.
FileTensors expected_moments(const PaddleSample& sample, quant::Division division) {
  const FileTensors truth = read_safetensors(test_data("paddle/truth/" + std::string(sample.truth) + ".safetensors"));
  const quant::Codec& codec = quant::find_codec(sample.codec);
  const std::string prefix = "moment1_0/";
  FileTensors expected;
  std::size_t coded = 0;
  for (const auto& [key, m] : truth) {
    if (!key.starts_with(prefix)) continue;
    const std::string parameter = key.substr(prefix.size());
    const FileTensor& v = truth.at("moment2_0/" + parameter);
    CodedMoments moments{sample.codec, parameter + "/moment1_0", parameter + "/moment2_0", m.shape, {}};
    expected[moments.first] = m;
    expected[moments.second] = v;
    if (!codec.left_alone(m.shape).empty()) continue;
    const auto floats = [](const base::Bytes& bytes) {
      std::vector<float> values(bytes.size() / sizeof(float));
      std::memcpy(values.data(), bytes.data(), bytes.size());
      return values;
    };
    moments.parts = quant::encode_whole(codec, {parameter, m.shape}, {floats(m.bytes), floats(v.bytes)});
    std::tie(expected[moments.first].bytes, expected[moments.second].bytes) = moments.decoded(division);
    ++coded;
  }
  EXPECT_EQ(coded, sample.coded);
  EXPECT_EQ(expected.size(), 2 * (sample.coded + sample.kept));
  return expected;
}

/// The boxes of all tensors that one rank of a layout loads.
class Boxes {
 public:
  Boxes(const FileTensors& tensors, const std::string& section, Cut cut) : tensors_(tensors) {
    const World world;
    std::size_t index = 0;
    for (const auto& [name, tensor] : tensors) {
      Target target;
      target.section = section;
      target.name = name;
      target.dtype = tensor.dtype;
      target.shape = tensor.shape;
      target.boxes = cut_boxes({section, name, tensor.dtype, tensor.shape}, index++, cut, world.rank, world.ranks);
      std::uint64_t bytes = 0;
      for (const Box& box : target.boxes) bytes += bytes_of(tensor, box);
      memory_.emplace_back(bytes, std::byte{0x77});
      target.data = memory_.back().data();
      targets_.push_back(std::move(target));
    }
  }

  [[nodiscard]] const std::vector<Target>& targets() const { return targets_; }

  /// Collective: fails unless every byte is as expected and all ranks together have compared every tensor whole.
  void check() const {
    std::uint64_t compared = 0;
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      const FileTensor& tensor = tensors_.at(targets_[i].name);
      const auto expected = cut_out(tensor.bytes, tensor.shape, bits_of(tensor.dtype) / 8, targets_[i].boxes);
      EXPECT_TRUE(expected == memory_[i]) << targets_[i].name;
      compared += expected.size();
      total += tensor.bytes.size();
    }
    MPI_Allreduce(MPI_IN_PLACE, &compared, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    EXPECT_GT(total, 0U);
    EXPECT_GE(compared, total);
  }

 private:
  static std::uint64_t bytes_of(const FileTensor& tensor, const Box& box) {
    std::uint64_t bytes = bits_of(tensor.dtype) / 8;
    for (const std::uint64_t size : box.shape) bytes *= size;
    return bytes;
  }

  const FileTensors& tensors_;
  std::vector<Target> targets_;
  std::vector<base::Bytes> memory_;
};

Options small_options(quant::Division division) {
  Options options;
  options.limits.memory_budget_bytes = 32 << 20;
  options.quantisation.decode_by_reciprocals = division == quant::Division::kReciprocal;
  return options;
}

void convert_sample(const std::filesystem::path& from, const std::filesystem::path& to, const std::string& quant,
                    quant::Division division) {
  conversion::ConvertOptions options;
  options.quant = quant;
  options.keep_names = true;
  options.decode_by_reciprocals = division == quant::Division::kReciprocal;
  const auto communicator = comm::duplicate_mpi(MPI_COMM_WORLD);
  conversion::convert(*communicator, from, to, options);
}

class PaddleDecode : public testing::TestWithParam<std::tuple<PaddleSample, bool>> {
 protected:
  PaddleSample sample_ = std::get<0>(GetParam());
  quant::Division division_ = std::get<1>(GetParam()) ? quant::Division::kReciprocal : quant::Division::kTrue;
  std::filesystem::path source_ = test_data("paddle/" + std::string(sample_.directory));
};

TEST_P(PaddleDecode, ConvertGivesTheMoments) {
  const SharedTempDir root;
  const FileTensors expected = expected_moments(sample_, division_);
  convert_sample(source_, root / "out", "off", division_);
  FileTensors found = read_section(root / "out", "optimizer");
  const auto scalars = std::erase_if(found, [](const auto& tensor) { return tensor.first.ends_with("_pow_acc_0"); });
  EXPECT_EQ(scalars, expected.size());
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(found.at(name) == tensor) << name;
}

TEST_P(PaddleDecode, LoadsOfBoxesGiveTheMoments) {
  const FileTensors expected = expected_moments(sample_, division_);
  for (const Cut cut : {Cut::kColumns, Cut::kRows, Cut::kFlat, Cut::kReplicated}) {
    const Boxes boxes(expected, "optimizer", cut);
    load_from(MPI_COMM_WORLD, source_, boxes.targets(), small_options(division_));
    boxes.check();
  }
}

/// Collective: distributes the sample's files over three directories, as several machines would leave them.
std::vector<std::filesystem::path> split_sample(const std::filesystem::path& source, const SharedTempDir& root) {
  std::vector<std::filesystem::path> parts;
  for (const char* name : {"a", "b", "c"}) parts.push_back(root / name);
  if (World().rank == 0) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(source)) files.push_back(entry.path());
    std::ranges::sort(files);
    for (const auto& part : parts) std::filesystem::create_directory(part);
    for (std::size_t i = 0; i < files.size(); ++i) {
      const bool is_data = files[i].extension() == ".safetensors";
      std::filesystem::copy_file(files[i], parts[is_data ? i % 3 : 0] / files[i].filename());
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  return parts;
}

TEST_P(PaddleDecode, LoadsFromSeveralDirectoriesGiveTheMoments) {
  const SharedTempDir root;
  const World world;
  const FileTensors expected = expected_moments(sample_, division_);
  const auto parts = split_sample(source_, root);
  const Boxes boxes(expected, "optimizer", Cut::kColumns);
  load_from(MPI_COMM_WORLD, parts, boxes.targets(), small_options(division_));
  boxes.check();
  std::vector<std::filesystem::path> mine = {root / "not-here"};
  for (int part = world.rank; part < 3; part += world.ranks) mine.push_back(parts[static_cast<std::size_t>(part)]);
  const Boxes seen(expected, "optimizer", Cut::kRows);
  load_from(MPI_COMM_WORLD, mine, seen.targets(), small_options(division_), {}, Sight::kEachRank);
  seen.check();
  if (world.ranks == 1) return;
  EXPECT_THROW(load_from(MPI_COMM_WORLD, mine, seen.targets(), small_options(division_)), Error);
}

TEST_P(PaddleDecode, KeptCodesLoadAlike) {
  const SharedTempDir root;
  convert_sample(source_, root / "checkpoint-1", "keep", quant::Division::kTrue);  // decodes nothing
  const FileTensors expected = expected_moments(sample_, division_);
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), small_options(division_));
  const Boxes boxes(expected, "optimizer", Cut::kGrid);
  checkpointer.load(1, boxes.targets());
  boxes.check();
  // The codes themselves, by their stored names; some of these names are also names of moments.
  FileTensors stored = read_section(source_, "optimizer");
  std::erase_if(stored, [](const auto& tensor) {
    return !tensor.first.ends_with("_scales") && tensor.second.dtype == DType::kF32;
  });
  ASSERT_GE(stored.size(), sample_.coded);
  const Boxes codes(stored, "optimizer", Cut::kRows);
  checkpointer.load(1, codes.targets());
  codes.check();
}

INSTANTIATE_TEST_SUITE_P(All, PaddleDecode, testing::Combine(testing::ValuesIn(kPaddleSamples), testing::Bool()),
                         [](const auto& sample) {
                           return std::get<0>(sample.param).name() +
                                  (std::get<1>(sample.param) ? "_reciprocal" : "_true");
                         });

TEST(RemovedMasterWeights, ComeFromTheModelWhereTheyAreAskedFor) {
  const auto source = test_data("paddle/n-dp2-O2-rm");
  FileTensors expected = read_section(source, "model");
  for (auto& [name, tensor] : expected) {
    base::Bytes wide(2 * tensor.bytes.size());
    quant::cast_values(DType::kBF16, tensor.bytes, DType::kF32, wide);  // stored as U16
    tensor = {DType::kF32, tensor.shape, std::move(wide)};
  }
  EXPECT_EQ(expected.size(), 12U);
  Options options = small_options(quant::Division::kTrue);
  for (const Cut cut : {Cut::kColumns, Cut::kFlat}) {
    const Boxes boxes(expected, "master_weights", cut);
    options.quantisation.master_weight_compatible = false;
    try {
      load_from(MPI_COMM_WORLD, source, boxes.targets(), options);
      ADD_FAILURE() << "there are none";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kNotFound);
    }
    options.quantisation.master_weight_compatible = true;
    load_from(MPI_COMM_WORLD, source, boxes.targets(), options);
    boxes.check();
  }
}

TEST(WrongTargets, AreNamedInTermsOfWhatTheUserSees) {
  const auto source = test_data("paddle/n-dp2-O1");
  const auto failure = [&](const std::string& name, DType dtype, std::vector<std::uint64_t> shape) {
    Target target;
    target.section = "optimizer";
    target.name = name;
    target.dtype = dtype;
    target.shape = std::move(shape);
    try {
      load_from(MPI_COMM_WORLD, source, std::vector<Target>{target}, small_options(quant::Division::kTrue));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(failure("lm_head.weight/moment2_0", DType::kF32, {64, 96}), "");
  EXPECT_EQ(failure("lm_head.weight/moment2_0", DType::kU8, {64, 96}), "");
  EXPECT_NE(failure("lm_head.weight/moment2_0", DType::kBF16, {64, 96}).find("is F32 [64, 96], expected BF16"),
            std::string::npos);
  EXPECT_NE(failure("lm_head.weight/moment2_0@max_scales", DType::kF32, {64}).find("is F32 [96], expected F32 [64]"),
            std::string::npos);
  EXPECT_NE(failure("lm_head.weight/moment3_0", DType::kF32, {64, 96}).find("has no tensor"), std::string::npos);
}

}  // namespace
}  // namespace cairn::test
