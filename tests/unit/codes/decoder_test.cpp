// Loads through a view: for every codec, on any number of ranks, boxes get the same bits as slices of the decoded whole
// tensors, with little memory. Errors about damage name the tensor, and are the same on every rank.
#include "codes/decoder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <limits>
#include <string>

#include "cairn/error.hpp"
#include "checkpoint/load.hpp"
#include "coded_state.hpp"
#include "cut_out.hpp"
#include "random.hpp"
#include "simulated.hpp"
#include "temp_dir.hpp"

namespace cairn::test {
namespace {

using codes::View;
using codes::ViewTensor;
using opening::OpenCheckpoint;
using plan::MemoryBox;
using testing::AllOf;
using testing::HasSubstr;

/// The boxes that one rank loads, each into separate memory, also at odd addresses.
class Wishes {
 public:
  Wishes(const View& view, std::mt19937_64& random, std::size_t count) : view_(view) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto number = static_cast<std::uint32_t>(uniform(random, 0, view.tensors.size() - 1));
      Box box;
      for (const std::uint64_t size : view.at(number).shape) {
        const std::uint64_t begin = uniform(random, 0, 3) == 0 ? 0 : uniform(random, 0, size);
        box.offset.push_back(begin);
        box.shape.push_back(uniform(random, 0, 1) == 0 ? size - begin : uniform(random, 0, size - begin));
      }
      add(number, box, random);
      // Often adds the second moment of the same box, and sometimes the same box again.
      const ViewTensor& tensor = view.at(number);
      if (tensor.origin == codes::Origin::kFirstMoment && uniform(random, 0, 1) == 0) add(number + 1, box, random);
      if (uniform(random, 0, 9) == 0) add(number, box, random);
    }
  }

  [[nodiscard]] std::span<const MemoryBox> wanted() const { return wanted_; }

  /// Expects every box to have the right content. Returns the number of bytes compared.
  std::uint64_t check(const Truth& truth) const {
    std::uint64_t bytes = 0;
    for (const MemoryBox& want : wanted_) {
      const ViewTensor& tensor = view_.at(want.tensor);
      const auto& whole = truth.at({std::string(tensor.section), std::string(tensor.name)});
      const std::vector<std::uint64_t> shape(tensor.shape.begin(), tensor.shape.end());
      const base::Bytes expected = cut_out(whole, shape, bits_of(tensor.dtype) / 8, {want.box});
      EXPECT_EQ(expected.size(), want.bytes.size());
      const bool is_same = expected.empty() || std::memcmp(expected.data(), want.bytes.data(), expected.size()) == 0;
      EXPECT_TRUE(is_same) << tensor.name << " at " << testing::PrintToString(want.box.offset) << " of "
                           << testing::PrintToString(want.box.shape);
      bytes += expected.size();
    }
    return bytes;
  }

 private:
  void add(std::uint32_t number, const Box& box, std::mt19937_64& random) {
    std::uint64_t bytes = bits_of(view_.at(number).dtype) / 8;
    for (const std::uint64_t size : box.shape) bytes *= size;
    const std::uint64_t shift = uniform(random, 0, 2) == 0 ? uniform(random, 1, 3) : 0;
    memory_.emplace_back(bytes + shift, std::byte{0x5a});
    wanted_.push_back({number, box, std::span(memory_.back()).subspan(shift)});
  }

  const View& view_;
  std::vector<base::Bytes> memory_;
  std::vector<MemoryBox> wanted_;
};

/// Loads in batches, like a Loader with a view; the decoder may have any amount of memory.
void load_in_batches(comm::Communicator& communicator, checkpoint::Loader& stored, codes::Decoder decoder) {
  do {
    stored.load(decoder.next_batch());
    decoder.finish_batch();
  } while (communicator.max(decoder.is_done() ? 0 : 1) != 0);
}

class AnyBoxes : public testing::TestWithParam<std::tuple<int, std::uint64_t, bool>> {};

TEST_P(AnyBoxes, AreWhatSlicingTheDecodedTensorGives) {
  const auto [ranks, memory_bytes, reciprocals] = GetParam();
  const TempDir directory;
  const Truth truth =
      write_state(directory.path(), reciprocals ? quant::Division::kReciprocal : quant::Division::kTrue);
  std::atomic<std::uint64_t> compared = 0;
  comm::run_simulated(ranks, [&, memory_bytes = memory_bytes,
                              reciprocals = reciprocals](comm::Communicator& communicator) {
    const OpenCheckpoint opened = opening::open_checkpoint(communicator, directory.path());
    const View view = codes::decoded_view(opened, {reciprocals, true});
    EXPECT_EQ(view.tensors.size(), truth.size());
    checkpoint::Loader stored(communicator, opened, {"posix", 64 << 20, {}});
    auto random = make_random(10 + static_cast<std::uint64_t>(communicator.rank()));
    for (int round = 0; round < 3; ++round) {
      const std::size_t count = communicator.rank() == round ? 0 : uniform(random, 5, 40);  // a rank may load nothing
      const Wishes wishes(view, random, count);
      io::DeviceCopies no_device(io::DeviceCopies::kLeastBytes);
      load_in_batches(communicator, stored, codes::Decoder(opened, view, wishes.wanted(), memory_bytes, no_device));
      compared += wishes.check(truth);
    }
  });
  EXPECT_GT(compared, ranks == 1 ? 0U : 10'000U);  // boxes are random: a single rank may compare few bytes
}

INSTANTIATE_TEST_SUITE_P(RanksAndMemory, AnyBoxes,
                         testing::Combine(testing::Values(1, 2, 3, 5), testing::Values(6000, 200'000, 64 << 20),
                                          testing::Bool()));

TEST(Decoder, MemoryIsBoundedAndBothMomentsAreReadOnce) {
  const TempDir directory;
  FileTensors tensors;
  std::map<std::string, std::string> notes;
  const auto moments = CodedMoments::random("q8", "w", {512, 256}, 1);
  moments.add_to(tensors, notes);
  write_safetensors(directory / "optimizer.safetensors", tensors, notes);
  comm::run_simulated(1, [&](comm::Communicator& communicator) {
    const OpenCheckpoint opened = opening::open_checkpoint(communicator, directory.path());
    const View view = codes::decoded_view(opened, {});
    ASSERT_EQ(view.tensors.size(), 2U);
    constexpr std::uint64_t kMemoryBytes = 64 << 10;
    checkpoint::Loader stored(communicator, opened, {"posix", 64 << 20, {}});
    std::vector<base::Bytes> memory(2, base::Bytes(512 * 256 * 4));
    const Box all{{0, 0}, {512, 256}};
    io::DeviceCopies no_device(io::DeviceCopies::kLeastBytes);
    codes::Decoder decoder(opened, view, std::vector<MemoryBox>{{0, all, memory[0]}, {1, all, memory[1]}}, kMemoryBytes,
                           no_device);
    std::uint64_t total = 0;
    std::uint64_t batches = 0;
    while (!decoder.is_done()) {
      const std::span<const MemoryBox> batch = decoder.next_batch();
      std::uint64_t bytes = 0;
      for (const MemoryBox& want : batch) bytes += want.bytes.size();
      EXPECT_LE(bytes, kMemoryBytes / 2);
      total += bytes;
      ++batches;
      stored.load(batch);
      decoder.finish_batch();
    }
    EXPECT_EQ(total, moments.parts[0].size());
    EXPECT_GE(batches, 5U);
    EXPECT_EQ(memory[0], moments.decoded().first);
    EXPECT_EQ(memory[1], moments.decoded().second);
  });
}

/// The error message of rank 2 in a load on three ranks, of which only rank 1 loads tensors (all); "" for success.
std::string failure_of_load(const std::filesystem::path& directory) {
  std::string message;
  comm::run_simulated(3, [&](comm::Communicator& communicator) {
    const OpenCheckpoint opened = opening::open_checkpoint(communicator, directory);
    const View view = codes::decoded_view(opened, {});
    checkpoint::Loader reader(communicator, opened, &view, {"posix", 64 << 20, {}});
    std::vector<base::Bytes> memory;
    std::vector<MemoryBox> wanted;
    for (std::uint32_t i = 0; i < view.tensors.size() && communicator.rank() == 1; ++i) {
      const std::vector<std::uint64_t> shape(view.at(i).shape.begin(), view.at(i).shape.end());
      std::uint64_t bytes = bits_of(view.at(i).dtype) / 8;
      for (const std::uint64_t size : shape) bytes *= size;
      memory.emplace_back(bytes);
      wanted.push_back({i, {std::vector<std::uint64_t>(shape.size(), 0), shape}, memory.back()});
    }
    try {
      reader.load(wanted);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kFormat);
      if (communicator.rank() == 2) message = error.what();  // this rank loaded nothing
    }
  });
  return message;
}

std::string failure_with(const std::string& codec, std::size_t part, const std::function<void(base::Bytes&)>& damage) {
  const TempDir directory;
  FileTensors tensors;
  std::map<std::string, std::string> notes;
  auto moments = CodedMoments::random(codec, "w", {64, 128}, 1);
  damage(moments.parts.at(part));
  moments.add_to(tensors, notes);
  write_safetensors(directory / "optimizer.safetensors", tensors, notes);
  return failure_of_load(directory.path());
}

TEST(Decoder, RefusesWhatIsDamagedByName) {
  const auto put = [](float scale) {
    return [scale](base::Bytes& bytes) { std::memcpy(bytes.data() + 40, &scale, sizeof scale); };
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(failure_with("paddle-o1", 1, put(0.5F)), "");
  EXPECT_THAT(failure_with("paddle-o1", 1, put(nan)),
              AllOf(HasSubstr("'w.exp_avg@scales'"), HasSubstr("nan"), HasSubstr("(rank 1)")));
  EXPECT_THAT(failure_with("paddle-o1", 4, put(-infinity)), HasSubstr("'w.exp_avg_sq@max_scales'"));
  EXPECT_THAT(failure_with("paddle-o2", 2, put(nan)), HasSubstr("'w.exp_avg_sq@min_scales'"));
  const auto fill = [](base::Bytes& bytes) {
    std::fill(bytes.begin() + 272 + 4, bytes.begin() + 544, std::byte{0xff});
  };
  EXPECT_THAT(failure_with("q8", 0, fill),
              AllOf(HasSubstr("'w.exp_avg'"), HasSubstr("q8"), HasSubstr("[1, 0]"), HasSubstr("not in use")));
}

TEST(Decoder, BoxesThatDoNotFitAreRefused) {
  const TempDir directory;
  write_state(directory.path(), quant::Division::kTrue);
  comm::run_simulated(2, [&](comm::Communicator& communicator) {
    const OpenCheckpoint opened = opening::open_checkpoint(communicator, directory.path());
    const View view = codes::decoded_view(opened, {});
    checkpoint::Loader reader(communicator, opened, &view, {"posix", 64 << 20, {}});
    base::Bytes memory(16);
    const Box box{std::vector<std::uint64_t>(view.at(0).shape.size(), 1'000'000),
                  std::vector<std::uint64_t>(view.at(0).shape.size(), 1)};
    EXPECT_THROW(reader.load(std::vector<MemoryBox>{{0, box, memory}}), Error);
  });
}

}  // namespace
}  // namespace cairn::test
