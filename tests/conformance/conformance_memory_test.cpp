// The conformance suite on engine "memory": ranks are threads, files live in this process.
#include <gtest/gtest.h>

#include "comm/simulated.hpp"
#include "engine_conformance.hpp"
#include "io/memory_store.hpp"

namespace cairn::test {
namespace {

class StoreAccess final : public FileAccess {
 public:
  void read(const std::filesystem::path& path, std::uint64_t offset, std::span<std::byte> data) const override {
    io::MemoryStore::global().read(path, offset, data);
  }
  [[nodiscard]] std::uint64_t size_bytes(const std::filesystem::path& path) const override {
    return io::MemoryStore::global().size_bytes(path);
  }
  void create(const std::filesystem::path& path, std::uint64_t size_bytes) const override {
    io::MemoryStore::global().create(path, size_bytes);
  }
  void set_size(const std::filesystem::path& path, std::uint64_t size_bytes) const override {
    io::MemoryStore::global().set_size(path, size_bytes);
  }
};

class MemoryEngineConformance : public testing::TestWithParam<std::tuple<std::size_t, int>> {};

TEST_P(MemoryEngineConformance, Holds) {
  const auto [number, ranks] = GetParam();
  io::MemoryStore::global().clear();
  const StoreAccess files;
  comm::run_simulated(ranks, [&, test = &engine_tests()[number]](comm::Communicator& communicator) {
    test->body({communicator, "memory", "/memory", files, {}});
  });
}

INSTANTIATE_TEST_SUITE_P(Engine, MemoryEngineConformance,
                         testing::Combine(testing::Range(std::size_t{0}, engine_tests().size()),
                                          testing::Values(1, 2, 4, 7)),
                         [](const auto& param) {
                           return engine_tests()[std::get<0>(param.param)].name + "On" +
                                  std::to_string(std::get<1>(param.param));
                         });

TEST(MemoryStore, ForgetsWhatWasCutOff) {
  io::MemoryStore store;
  store.create("f", 200'000);
  const base::Bytes ones(200'000, std::byte{1});
  store.write("f", 0, ones);
  store.set_size("f", 70'000);
  store.set_size("f", 200'000);
  const base::Bytes content = store.content("f");
  EXPECT_EQ(std::count(content.begin(), content.end(), std::byte{1}), 70'000);
  EXPECT_EQ(content[69'999], std::byte{1});
  EXPECT_THROW(store.write("f", 199'999, std::span(ones).first(2)), Error);
  EXPECT_THROW(static_cast<void>(store.size_bytes("g")), Error);
}

TEST(MakeEngine, RefusesWhatItCannotMake) {
  comm::run_simulated(2, [](comm::Communicator& communicator) {
    EXPECT_THROW(io::make_engine("tape", communicator, {}), Error);
    EXPECT_THROW(io::make_engine("mpiio", communicator, {}), Error);  // simulated ranks have no MPI
    EXPECT_EQ(io::make_engine("memory", communicator, {})->name(), "memory");
  });
}

}  // namespace
}  // namespace cairn::test
