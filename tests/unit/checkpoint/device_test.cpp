// Saves from device memory and loads into it give the same files and values as with host memory. Runs on the
// emulated device (ctest device_checkpoint) and on a GPU (device_checkpoint_gpu, skipped if there is none).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "cairn/error.hpp"
#include "checkpoint/load.hpp"
#include "checkpoint/targets.hpp"
#include "conversion/stage.hpp"
#include "conversion/stage_reader.hpp"
#include "gpu/pipeline.hpp"
#include "gpu/stream.hpp"
#include "hdf5/library.hpp"
#include "moment_state.hpp"
#include "simulated_save.hpp"
#include "test_name.hpp"
#include "with_gaps.hpp"

namespace cairn::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// One rank's shard of a tensor: the whole tensor, or two boxes that cut the columns, so that blocks have parts of both
/// boxes.
std::vector<Box> boxes_of(const StateTensor& tensor, bool is_cut) {
  const std::uint64_t columns = tensor.shape.back();
  Box left{std::vector<std::uint64_t>(tensor.shape.size(), 0), tensor.shape};
  if (!is_cut || columns < 3) return {left};
  Box right = left;
  left.shape.back() = columns / 3;
  right.offset.back() = columns / 3;
  right.shape.back() = columns - columns / 3;
  return {left, right};
}

void put(gpu::DeviceSpan to, std::span<const std::byte> bytes) {
  const gpu::Stream stream;
  stream.copy(to, bytes);
  stream.synchronise();
}

/// The state of one rank in device memory, each tensor `shift_bytes` into an allocation,
/// and the same state in host memory.
class BothMemories {
 public:
  explicit BothMemories(bool is_cut, std::uint64_t shift_bytes = 0)
      : pipeline_({1 << 20, 2, true}), shift_bytes_(shift_bytes) {
    for (const StateTensor& tensor : moment_state()) {
      const auto boxes = boxes_of(tensor, is_cut);
      host_.push_back(cut_out(moment_bytes(tensor, 1), tensor, boxes));
      device_.emplace_back(host_.back().size() + shift_bytes_);
      const gpu::DeviceSpan on_device = place(device_.size() - 1);
      put(on_device, host_.back());
      Source source;
      static_cast<Shard&>(source) = {tensor.section, tensor.name, tensor.dtype, tensor.shape, boxes};
      source.data = host_.back().data();
      on_host_.push_back(source);
      source.data = on_device.data;
      source.memory = Memory::kDevice;
      on_device_.push_back(source);
    }
  }

  [[nodiscard]] const std::vector<Source>& on_host() const { return on_host_; }
  [[nodiscard]] const std::vector<Source>& on_device() const { return on_device_; }

  /// Overwrites the device's memory and returns targets for it.
  std::vector<Target> targets() {
    std::vector<Target> targets;
    for (std::size_t i = 0; i < on_device_.size(); ++i) {
      const std::vector<std::byte> other(host_[i].size(), std::byte{0x77});
      put(place(i), other);
      Target target;
      static_cast<Shard&>(target) = on_device_[i];
      target.data = place(i).data;
      target.memory = Memory::kDevice;
      targets.push_back(std::move(target));
    }
    return targets;
  }

  /// Fills only the device's memory.
  void fill(int version) {
    const std::vector<StateTensor> tensors = moment_state();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto bytes = cut_out(moment_bytes(tensors[i], version), tensors[i], on_device_[i].boxes);
      put(place(i), bytes);
    }
  }

  std::vector<std::byte> device_bytes(std::size_t i) {
    std::vector<std::byte> bytes(host_[i].size());
    gpu::copy_to_host(pipeline_, place(i), bytes);
    return bytes;
  }

 private:
  [[nodiscard]] gpu::DeviceSpan place(std::size_t i) const {
    return device_[i].span().subspan(shift_bytes_, host_[i].size());
  }

  gpu::Pipeline pipeline_;
  std::uint64_t shift_bytes_;
  std::vector<std::vector<std::byte>> host_;
  std::vector<gpu::DeviceBuffer> device_;
  std::vector<Source> on_host_;
  std::vector<Source> on_device_;
};

Report save(const std::filesystem::path& directory, const Options& options, const std::vector<Source>& sources) {
  Report report;
  comm::run_simulated(1, [&](comm::Communicator& communicator) {
    io::WindowStore store;
    report = checkpoint::Saver(communicator, options, store).save(directory, 1, sources, {});
  });
  return report;
}

bool has_hdf5() {
  try {
    hdf5::require();
  } catch (const Error&) {
    return false;
  }
  return true;
}

class Device : public testing::TestWithParam<std::tuple<const char*, bool>> {
 protected:
  void SetUp() override {
    const gpu::Availability devices = gpu::availability();
    if (devices.devices == 0) GTEST_SKIP() << "no GPU: " << devices.reason;
  }
  Options options() const {
    Options made = small_options();
    made.quantisation.codecs["optimizer"] = std::get<0>(GetParam());
    made.quantisation.report = true;
    return made;
  }
  TempDir root;
};

TEST_P(Device, SavesTheFilesOfTheSameStateInHostMemory) {
  const BothMemories state(std::get<1>(GetParam()));
  const Report from_host = save(root / "host", options(), state.on_host());
  const Report from_device = save(root / "device", options(), state.on_device());
  const auto files = data_files(root / "host");
  EXPECT_GE(files.size(), 4U);
  EXPECT_EQ(files, data_files(root / "device"));
  ASSERT_EQ(from_host.coding_errors.size(), from_device.coding_errors.size());
  for (std::size_t i = 0; i < from_host.coding_errors.size(); ++i) {
    const CodingError& a = from_host.coding_errors[i];
    const CodingError& b = from_device.coding_errors[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.elements, b.elements);
    EXPECT_NEAR(a.update_rms, b.update_rms, 1e-9 * a.update_rms);
    EXPECT_EQ(a.first_max, b.first_max);
  }
}

TEST_P(Device, SavesFromMemoryThatIsNotAlignedForFloats) {
  const BothMemories state(std::get<1>(GetParam()), 1);
  save(root / "host", options(), state.on_host());
  save(root / "device", options(), state.on_device());
  EXPECT_EQ(data_files(root / "host"), data_files(root / "device"));
}

TEST_P(Device, ReplicasOnTheHostAndOnTheDeviceAreCompared) {
  const BothMemories on_host(std::get<1>(GetParam()));
  BothMemories on_device(std::get<1>(GetParam()), 1);
  Options strict = options();
  strict.checks.replicas = ReplicaCheck::kAll;
  strict.checks.replicas_differ = ReplicasDiffer::kRefuse;
  const auto save_both = [&](const char* name) {
    std::string error;
    comm::run_simulated(2, [&](comm::Communicator& communicator) {
      io::WindowStore store;
      checkpoint::Saver saver(communicator, strict, store);
      try {
        saver.save(root / name, 1, communicator.rank() == 0 ? on_host.on_host() : on_device.on_device(), {});
      } catch (const Error& failure) {
        if (communicator.rank() == 0) error = failure.what();
      }
    });
    return error;
  };
  EXPECT_EQ(save_both("same"), "");
  on_device.fill(2);
  EXPECT_THAT(save_both("other"),
              AllOf(HasSubstr("its replicas differ, on rank 1 from those on rank 0"), HasSubstr("so do those of")));
  EXPECT_FALSE(std::filesystem::exists(root / "other"));
}

TEST_P(Device, LoadsWhatALoadIntoHostMemoryGives) {
  BothMemories state(std::get<1>(GetParam()));
  save(root / "saved", options(), state.on_host());
  comm::run_simulated(1, [&](comm::Communicator& communicator) {
    const auto opened = opening::open_checkpoint(communicator, root / "saved");
    const auto view = codes::decoded_view(opened, {});
    checkpoint::Loader loader(communicator, opened, &view, {"posix", 1 << 20, {}, 0});  // its destructor waits
    const auto targets = state.targets();
    loader.load(checkpoint::find_targets(opened, view, targets).boxes);
    std::vector<std::vector<std::byte>> found;
    for (std::size_t i = 0; i < targets.size(); ++i) found.push_back(state.device_bytes(i));
    for (std::size_t i = 0; i < targets.size(); ++i) {
      Target target = targets[i];
      std::vector<std::byte> expected(found[i].size());
      target.data = expected.data();
      target.memory = Memory::kHost;
      loader.load(checkpoint::find_targets(opened, view, std::vector<Target>{target}).boxes);
      EXPECT_TRUE(found[i] == expected) << target.section << ' ' << target.name;
    }
  });
}

TEST_P(Device, TakesMemoryWithGapsAndTouchesNone) {
  const BothMemories state(std::get<1>(GetParam()));
  save(root / "host", options(), state.on_host());
  gpu::Pipeline pipeline({1 << 20, 2, true});
  std::vector<Source> sources = state.on_host();
  std::deque<WithGaps> memory;
  std::vector<gpu::DeviceBuffer> buffers;
  std::mt19937_64 random = make_random();
  for (Source& source : sources) {
    WithGaps& gapped = memory.emplace_back(source, random);
    gapped.put({static_cast<const std::byte*>(source.data), gapped.bytes().size()});
    buffers.emplace_back(gapped.memory().size());
    put(buffers.back().span(), gapped.memory());
    source.placements = gapped.placements();
    source.data = buffers.back().span().data;
    source.memory = Memory::kDevice;
  }
  save(root / "device", options(), sources);
  EXPECT_EQ(data_files(root / "host"), data_files(root / "device"));

  comm::run_simulated(1, [&](comm::Communicator& communicator) {
    const auto opened = opening::open_checkpoint(communicator, root / "host");
    const auto view = codes::decoded_view(opened, {});
    checkpoint::Loader loader(communicator, opened, &view, {"posix", 1 << 20, {}, 0});
    std::vector<Target> targets(sources.size());
    for (std::size_t i = 0; i < sources.size(); ++i) {
      static_cast<Shard&>(targets[i]) = sources[i];
      memory[i] = WithGaps(sources[i], random);  // gaps in different places
      targets[i].placements = memory[i].placements();
      buffers[i] = gpu::DeviceBuffer(memory[i].memory().size());
      put(buffers[i].span(), memory[i].memory());
      targets[i].data = buffers[i].span().data;
      targets[i].memory = Memory::kDevice;
    }
    loader.load(checkpoint::find_targets(opened, view, targets).boxes);
    for (std::size_t i = 0; i < targets.size(); ++i) {
      gpu::copy_to_host(pipeline, buffers[i].span(), memory[i].memory());
      Target target = targets[i];
      std::vector<std::byte> expected(memory[i].bytes().size());
      target.data = expected.data();
      target.memory = Memory::kHost;
      target.placements.clear();
      loader.load(checkpoint::find_targets(opened, view, std::vector<Target>{target}).boxes);
      EXPECT_TRUE(memory[i].bytes() == expected) << target.section << ' ' << target.name;
      EXPECT_EQ(memory[i].untouched_gap_bytes(), memory[i].gap_bytes()) << target.section << ' ' << target.name;
    }
  });
}

TEST_P(Device, ConvertsToAnotherFloatAsInHostMemory) {
  const BothMemories state(std::get<1>(GetParam()));
  save(root / "saved", options(), state.on_host());
  comm::run_simulated(1, [&](comm::Communicator& communicator) {
    const auto opened = opening::open_checkpoint(communicator, root / "saved");
    auto view = codes::decoded_view(opened, {});
    view.as_stored = false;
    checkpoint::Loader loader(communicator, opened, &view, {"posix", 1 << 20, {}, 0});
    gpu::Pipeline pipeline({1 << 20, 2, true});
    for (const Source& source : state.on_host()) {
      Target target;
      static_cast<Shard&>(target) = source;
      target.dtype = source.dtype == DType::kF32 ? DType::kBF16 : DType::kF64;
      std::vector<std::byte> expected(shard::elements_of(source.boxes) * bits_of(target.dtype) / 8);
      std::vector<std::byte> found(expected.size());
      const gpu::DeviceBuffer memory(expected.size());
      for (const bool is_on_device : {false, true}) {
        target.data = is_on_device ? memory.span().data : expected.data();
        target.memory = is_on_device ? Memory::kDevice : Memory::kHost;
        auto wanted = checkpoint::find_targets(opened, view, {&target, 1}, {{}, false, true});
        ASSERT_EQ(wanted.casts.size(), 1U);
        view.casts = std::move(wanted.casts);
        loader.load(wanted.boxes);
      }
      gpu::copy_to_host(pipeline, memory.span(), found);
      EXPECT_TRUE(found == expected) << target.section << ' ' << target.name;
      EXPECT_TRUE(std::ranges::any_of(found, [](std::byte b) { return b != std::byte{}; })) << target.name;
    }
  });
}

TEST_P(Device, LoadsTensorsThatAreTurnedAsIntoHostMemory) {
  const BothMemories state(std::get<1>(GetParam()));
  save(root / "saved", options(), state.on_host());
  comm::run_simulated(1, [&](comm::Communicator& communicator) {
    const auto opened = opening::open_checkpoint(communicator, root / "saved");
    auto view = codes::decoded_view(opened, {});
    plan::TensorMap map;
    for (const codes::ViewTensor& tensor : view.tensors) {
      const auto number = static_cast<std::uint32_t>(map.sources.size());
      map.pieces[number] = {plan::reversed(number, tensor.shape)};
      map.catalog.tensors.push_back({std::string(tensor.section),
                                     std::string(tensor.name),
                                     tensor.dtype,
                                     {tensor.shape.rbegin(), tensor.shape.rend()},
                                     {}});
      map.sources.push_back(number);
    }
    view = codes::mapped_view(std::move(view), map);
    checkpoint::Loader loader(communicator, opened, &view, {"posix", 1 << 20, {}, 0});
    gpu::Pipeline pipeline({1 << 20, 2, true});
    for (std::uint32_t i = 0; i < view.tensors.size(); ++i) {
      Box box = shard::whole(view.at(i).shape);
      if (!box.shape.empty() && box.shape[0] > 1) {
        ++box.offset[0];
        --box.shape[0];
      }
      std::vector<std::byte> expected(shard::elements_of(box) * bits_of(view.at(i).dtype) / 8);
      std::vector<std::byte> found(expected.size());
      const gpu::DeviceBuffer memory(expected.size());
      loader.load(std::vector<plan::MemoryBox>{{i, box, expected}});
      loader.load(std::vector<plan::MemoryBox>{{i, box, {memory.span().data, expected.size()}, Memory::kDevice}});
      gpu::copy_to_host(pipeline, memory.span(), found);
      EXPECT_TRUE(found == expected) << view.at(i).name;
      EXPECT_TRUE(std::ranges::any_of(found, [](std::byte b) { return b != std::byte{}; })) << view.at(i).name;
    }
  });
}

TEST_P(Device, StagesAndReadsStagingFilesAsFromHostMemory) {
  if (!has_hdf5()) GTEST_SKIP() << "this build has no HDF5";
  BothMemories state(std::get<1>(GetParam()));
  comm::run_simulated(1, [&](comm::Communicator& communicator) {
    conversion::stage_state(communicator, root / "host.h5", state.on_host(), options(), {});
    conversion::stage_state(communicator, root / "device.h5", state.on_device(), options(), {});
    const auto from_device = opening::open_checkpoint(communicator, root / "device.h5");
    const auto from_host = opening::open_checkpoint(communicator, root / "host.h5");
    const auto view = codes::decoded_view(from_device, {});
    const checkpoint::ReadOptions small{"auto", 1 << 20, {}, 0};
    const auto reader = conversion::make_reader(communicator, from_device, view, small);  // its destructor waits
    const auto targets = state.targets();
    reader->load(checkpoint::find_targets(from_device, view, targets).boxes);
    const auto host_reader = conversion::make_reader(communicator, from_host, view, small);
    for (std::size_t i = 0; i < targets.size(); ++i) {
      Target target = targets[i];
      const std::vector<std::byte> found = state.device_bytes(i);
      std::vector<std::byte> expected(found.size());
      target.data = expected.data();
      target.memory = Memory::kHost;
      host_reader->load(checkpoint::find_targets(from_host, view, std::vector<Target>{target}).boxes);
      EXPECT_TRUE(found == expected) << target.section << ' ' << target.name;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Codecs, Device,
                         testing::Combine(testing::Values("q8", "q4", "paddle-o1", "paddle-o2", "off"),
                                          testing::Bool()),
                         [](const auto& test) {
                           return test_name(std::get<0>(test.param)) + (std::get<1>(test.param) ? "_cut" : "_whole");
                         });

TEST(DevicePointers, HostMemoryThatIsSaidToBeADevicesIsRefused) {
  const TempDir root;
  std::vector<float> values(4);
  Source source;
  static_cast<Shard&>(source) = {"model", "w", DType::kF32, {4}, {{{0}, {4}}}};
  source.data = values.data();
  source.memory = Memory::kDevice;
  try {
    save(root / "x", small_options(), {source});
    FAIL() << "the pointer was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'w'"), HasSubstr("said to be a device's")));
  }
}

TEST(DevicePointers, APlanIsUsedAgainForTheSameMemoryOnly) {
  if (gpu::availability().devices == 0) GTEST_SKIP() << "no GPU: " << gpu::availability().reason;
  const TempDir root;
  const BothMemories state(false);
  comm::run_simulated(1, [&](comm::Communicator& communicator) {
    io::WindowStore store;
    checkpoint::Saver saver(communicator, small_options(), store);
    EXPECT_FALSE(saver.save(root / "1", 1, state.on_host(), {}).plan_reused);
    EXPECT_FALSE(saver.save(root / "2", 1, state.on_device(), {}).plan_reused);
    EXPECT_TRUE(saver.save(root / "3", 1, state.on_device(), {}).plan_reused);
    EXPECT_FALSE(saver.save(root / "4", 1, state.on_host(), {}).plan_reused);
  });
  for (const char* name : {"2", "3", "4"}) EXPECT_EQ(data_files(root / "1"), data_files(root / name)) << name;
}

TEST(DevicePointers, ShardsOfDifferentSizesMayBeginAtOnePlace) {
  if (gpu::availability().devices == 0) GTEST_SKIP() << "no GPU: " << gpu::availability().reason;
  const TempDir root;
  const BothMemories state(false);
  const auto with_first_row = [](std::vector<Source> sources) {
    Source row = sources.at(0);
    row.name += ".first_row";
    row.shape.at(0) = 1;
    row.boxes = {{std::vector<std::uint64_t>(row.shape.size(), 0), row.shape}};
    sources.insert(sources.begin(), row);
    return sources;
  };
  save(root / "host", small_options(), with_first_row(state.on_host()));
  save(root / "device", small_options(), with_first_row(state.on_device()));
  EXPECT_EQ(data_files(root / "host"), data_files(root / "device"));
}

}  // namespace
}  // namespace cairn::test
