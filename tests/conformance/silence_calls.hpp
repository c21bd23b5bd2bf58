// The calls in which silence_program stops a rank, and the state that they run on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "checkpoint/reader.hpp"
#include "comm/communicator.hpp"

namespace cairn::test {

/// A limit that no rank reaches.
constexpr double kLongSeconds = 600;

/// A root with step 1, and the calls on it. Every rank has some rows of five tensors, in three files,
/// two of which are each shared by two ranks. The blob is so large that every rank reads some of it.
class Trial {
 public:
  /// Collective over MPI_COMM_WORLD. `waiting_s` is the time limit of its calls.
  Trial(std::string engine, std::filesystem::path root, double waiting_s);

  [[nodiscard]] std::vector<Source> sources();

  void save();
  void save_async();
  void prepare_async();
  void load();
  void load_latest();
  void load_extras();
  void load_carried();
  void tensors();
  void steps();
  void latest();
  // These calls run on `communicator`.
  void verify();
  void convert();
  void stage();
  void diff();

  std::optional<Checkpointer> checkpointer;
  std::unique_ptr<comm::Communicator> communicator;
  std::vector<Phase> phases;  ///< phases of the last call, if it reports any

 private:
  template <class Shard>
  std::vector<Shard> shards();
  std::vector<Target> targets();
  void apart(const std::function<void()>& work);
  [[nodiscard]] Options options(double waiting_s) const;
  [[nodiscard]] checkpoint::ReadOptions reading() const;
  [[nodiscard]] std::filesystem::path step() const { return root_ / "checkpoint-1"; }

  std::string engine_;
  std::filesystem::path root_;
  int rank_ = 0;
  int ranks_ = 0;
  std::vector<float> values_;
};

struct StoppedCall {
  const char* name;
  void (Trial::*run)();
  bool is_of_checkpointer = true;
};

inline constexpr StoppedCall kSave{"save", &Trial::save};
inline constexpr StoppedCall kSaveAsync{"save_async", &Trial::save_async};

/// Calls that report their phases.
std::vector<StoppedCall> reporting_calls();

/// A place in a call that is not a phase of its report. Work that only rank 0 does must be stopped on rank 0.
struct StoppingPoint {
  StoppedCall call;
  const char* fault;
  bool is_of_rank_0 = false;
};
std::vector<StoppingPoint> stopping_points(const std::string& engine);

}  // namespace cairn::test
