// The log of a root, cairn.log.jsonl: a JSON object in each line, about one call or about many earlier calls.
// FORMAT.md, "The log of a root", has the keys. Pure: root/run_log.hpp has the file.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn::format {

inline constexpr const char* kRunLogFile = "cairn.log.jsonl";
inline constexpr int kRunLogVersion = 1;

// Values of LogCall::what and LogCall::outcome that Cairn writes. Readers keep all others.
inline constexpr const char* kLogSave = "save";
inline constexpr const char* kLogLoad = "load";
inline constexpr const char* kLogVerify = "verify";
inline constexpr const char* kLogScrub = "scrub";  ///< a verification that ended before all was checked
inline constexpr const char* kLogPrune = "prune";
inline constexpr const char* kLogRepair = "repair";
inline constexpr const char* kLogGood = "good";
inline constexpr const char* kLogFailed = "failed";
inline constexpr const char* kLogRefused = "refused";
inline constexpr const char* kLogCancelled = "cancelled";
inline constexpr const char* kLogSkipped = "skipped";

/// One call. Seconds are those of the slowest rank, or of rank 0 if the call failed.
struct LogCall {
  std::int64_t time_ms = 0;  ///< Unix time at the end of the call
  std::string what;
  std::optional<std::uint64_t> step;
  std::string outcome;
  std::string error_kind;  ///< of a call that failed or was refused; otherwise empty
  std::string error;       ///< one line
  double seconds = 0;
  std::vector<std::pair<std::string, double>> phases;  ///< seconds
  std::uint64_t bytes = 0;  ///< of tensors; of a verification: read and checked; of a pruning: freed; of a repair: of
                            ///< the blocks and files that were damaged
  std::uint64_t files = 0;
  std::uint64_t reused_bytes = 0;  ///< size of the files that a save took from an earlier checkpoint
  std::uint64_t ranks = 0;
  std::uint64_t nodes = 0;
  std::string engine;
  std::map<std::string, std::string> codecs;  ///< by section
  double ratio = 0;                           ///< bytes without the codecs over `bytes`; 0: no codec
  bool is_async = false;
  double stall_seconds = 0;       ///< for which an asynchronous save blocked the program
  double wait_seconds = 0;        ///< in addition: for the save before it
  double background_seconds = 0;  ///< of an asynchronous save, after the stall
  bool is_first = false;          ///< the first good save of its program
  /// Of a good save: the program's time since its last good save let it go on, or since it opened the root.
  double work_seconds = 0;
  std::vector<std::uint64_t> skipped;  ///< damaged steps that a load passed over, the newest first
  std::vector<std::uint64_t> pruned;   ///< steps that a pruning removed
  std::uint64_t faults = 0;            ///< found by a verification, or left by a repair
  std::uint64_t position_bytes = 0;    ///< of a scrub: bytes of the data files, in the order of cairn.blocks, that were
                                       ///< checked, by this call and those before it
  std::string manifest;                ///< of a scrub: checksum of the text of cairn.json, 8 digits
  std::string run_id;
  std::string tool;  ///< program and version

  [[nodiscard]] bool is_good() const { return outcome == kLogGood; }
  [[nodiscard]] bool is_good(std::string_view call) const { return what == call && is_good(); }
  /// Failed or refused.
  [[nodiscard]] bool is_bad() const { return outcome == kLogFailed || outcome == kLogRefused; }
};

/// The values of a key in several calls that were good.
struct LogMeasure {
  std::uint64_t count = 0;
  double sum = 0;
  double min = 0;
  double max = 0;

  void add(double value) { add({1, value, value, value}); }
  void add(const LogMeasure& other);
};

/// Many calls with the same `what` and run.
struct LogSum {
  std::int64_t first_ms = 0;
  std::int64_t last_ms = 0;
  std::string what;
  std::string run_id;
  std::map<std::string, std::uint64_t> outcomes;  ///< number of calls by outcome
  std::optional<std::uint64_t> lowest_step;
  std::optional<std::uint64_t> highest_step;
  /// By key: "seconds", "bytes", "stall_seconds", "background_seconds", "work_seconds".
  std::map<std::string, LogMeasure> measures;
  std::uint64_t programs = 0;  ///< number of calls with `is_first`
  std::uint64_t skipped = 0;
  std::uint64_t faults = 0;

  void add(const LogCall& call);
  void add(const LogSum& other);
  [[nodiscard]] std::uint64_t calls() const;
  [[nodiscard]] std::uint64_t calls(const std::string& outcome) const;
  /// Number of calls that failed or were refused.
  [[nodiscard]] std::uint64_t bad() const { return calls(kLogFailed) + calls(kLogRefused); }
};

struct RunLog {
  std::vector<LogSum> sums;    ///< in the order of the lines
  std::vector<LogCall> calls;  ///< in the order of the lines
  std::uint64_t newer = 0;     ///< number of lines of a newer version
  std::uint64_t damaged = 0;   ///< number of lines that cannot be read: torn ones, or of another program
};

/// The line of a call or a sum, without a line end. Texts that are too long are cut.
std::string encode_log_line(const LogCall& call);
std::string encode_log_line(const LogSum& sum);

/// Reads all lines that can be read; never throws for their content.
RunLog parse_run_log(std::string_view text);

/// The calls of the log about the checkpoint of a step.
struct StepLog {
  std::optional<LogCall> saved;     ///< the last save that was good
  std::optional<LogCall> verified;  ///< the last verification since then, or repair, good or failed
  std::optional<LogCall> scrubbed;  ///< the last scrub since both: the next one goes on from there
};
std::map<std::uint64_t, StepLog> log_by_step(const RunLog& log);

/// The size of an aggregated log: at most the sum of the bytes, and about 600 bytes for each sum.
struct LogBound {
  std::size_t newest_bytes = 256U << 10;  ///< of the newest lines, which stay as they are
  std::size_t marked_bytes = 128U << 10;  ///< of the older lines that stay
  std::size_t sums = 256;                 ///< further sums of one day each are combined to sums of more days
};

/// The log in less space. These lines stay as they are: the newest; of each step for which `is_there` returns true, the
/// last save, the last verification and the last repair that were good; lines of a newer version, as far as there is
/// room. All other calls of one day (UTC), one `what` and one run become a sum. Damaged lines are dropped.
std::string aggregate_run_log(std::string_view text, const std::function<bool(std::uint64_t step)>& is_there,
                              const LogBound& bound = {});

/// "2026-11-27T20:15:55.123Z", and back; nothing for other texts.
std::string log_time(std::int64_t time_ms);
std::optional<std::int64_t> parse_log_time(std::string_view text);

}  // namespace cairn::format
