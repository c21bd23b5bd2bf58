// Named values that travel with a checkpoint: step, learning-rate schedule, data position, random state, and your own.
//
// Values of the run are the same for all ranks; each rank may have values of its own. A load checks them: a checksum,
// the type and the name of each value that is asked for, and, for values of ranks, the number of ranks.
//
//   cairn::NamedValues run, mine;
//   run.set_integer(cairn::value_names::kStep, step);
//   mine.set_bytes(cairn::value_names::kRandomState, state_of(generator));
//   cairn::put_run_values(extras, run);
//   cairn::put_rank_values(extras, mine);
//   checkpointer.save(step, sources, extras);
//   ...
//   const auto extras = checkpointer.load_extras(step);
//   step = cairn::run_values(extras).integer(cairn::value_names::kStep);
//   restore(generator, cairn::rank_values(extras, ranks).bytes(cairn::value_names::kRandomState));
//
// All functions are rank-local and thread-safe on different objects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cairn/checkpoint.hpp"

namespace cairn {

/// Names for values that most training loops have. Other names are as good.
namespace value_names {
inline constexpr std::string_view kStep = "step";
inline constexpr std::string_view kSchedule = "lr_schedule";
inline constexpr std::string_view kDataPosition = "data_position";
inline constexpr std::string_view kRandomState = "random_state";
}  // namespace value_names

class NamedValues {
 public:
  using Bytes = std::vector<std::byte>;

  // Add or replace a value. Throw kUsage for an empty name, and for names and texts that are not UTF-8.
  void set_integer(std::string_view name, std::int64_t value);
  void set_number(std::string_view name, double value);  ///< kUsage for NaN and infinities
  void set_text(std::string_view name, std::string_view value);
  void set_bytes(std::string_view name, std::span<const std::byte> value);

  // The value of a name. Throw kNotFound, naming the nearest name, if there is none, and kState if the
  // value has another type; an integer is also a number.
  [[nodiscard]] std::int64_t integer(std::string_view name) const;
  [[nodiscard]] double number(std::string_view name) const;
  [[nodiscard]] const std::string& text(std::string_view name) const;
  [[nodiscard]] const Bytes& bytes(std::string_view name) const;

  [[nodiscard]] bool contains(std::string_view name) const;
  [[nodiscard]] std::vector<std::string> names() const;

  friend bool operator==(const NamedValues&, const NamedValues&) = default;

 private:
  friend std::string encode_values(const NamedValues& values);
  friend NamedValues parse_values(std::string_view text);
  using Value = std::variant<std::int64_t, double, std::string, Bytes>;
  void set(std::string_view name, Value value);
  [[nodiscard]] const Value& get(std::string_view name) const;

  std::map<std::string, Value, std::less<>> values_;
};

/// The values as a JSON text with a checksum, and back. parse_values() throws kFormat for any other text, and
/// kIntegrity for a wrong checksum.
std::string encode_values(const NamedValues& values);
NamedValues parse_values(std::string_view text);

/// Values of the run, as Extras::metadata["cairn.values"]; rank 0's count.
void put_run_values(Extras& extras, const NamedValues& values);
/// Values of this rank, as Extras::rank_blob, which they replace.
void put_rank_values(Extras& extras, const NamedValues& values);

/// Throws kNotFound if the checkpoint has no values of the run, otherwise as parse_values().
NamedValues run_values(const Checkpointer::LoadedExtras& extras);
/// The values of the saving rank with this rank's number. `ranks`: number of ranks of the communicator that loads.
/// Throws kState if another number of ranks saved them, since a random state or a data position of other ranks belongs
/// to no rank here: the program may take them by load_extras() with a BlobMapping, or by load_rank_blob(), and
/// values_of_blob(). Throws kNotFound if no rank had values, otherwise as parse_values().
NamedValues rank_values(const Checkpointer::LoadedExtras& extras, std::uint64_t ranks);
/// The values in the blob of a saving rank. Throws as parse_values(), and kFormat for a blob of another kind.
NamedValues values_of_blob(std::span<const std::byte> blob);

}  // namespace cairn
