// The parsed form of a layout, only for this folder: mesh axes, the parallel degrees of a short form, the rules of a
// JSON file. Independent of tensors; bind.cpp turns it into rules for given tensors.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/box.hpp"
#include "shard/chunk.hpp"
#include "shard/name_pattern.hpp"

namespace cairn::shard {

/// A mesh axis. A rank's coordinate on it is rank / stride % size. The same ranks may be factorised in several ways
/// (Megatron's dense and expert views).
struct Axis {
  std::string name;
  std::uint64_t size = 1;
  std::uint64_t stride = 1;
};

/// One or more axes read as one, the slowest first.
using AxisGroup = std::vector<std::uint32_t>;

/// One cut of one dimension. Cuts of the same dimension nest in their order: each cuts the result of the previous cuts.
struct Cut {
  std::uint32_t dim = 0;
  AxisGroup axes;
  ChunkSpec spec;
};

/// The ranks on which a tensor exists: every condition must hold.
struct Where {
  struct Condition {
    std::uint32_t axis = 0;
    std::vector<std::uint64_t> coordinates;
  };
  std::vector<Condition> conditions;
  std::optional<std::vector<std::uint64_t>> only_ranks;
  std::vector<std::uint64_t> absent_ranks;
};

enum class FlatKind { kZero1, kZero3, kFsdp1, kMegatron };

struct FlatRule {
  FlatKind kind = FlatKind::kZero1;
  AxisGroup axes;
  std::uint64_t alignment = 0;    ///< 0: the default of the kind
  std::uint64_t bucket_size = 0;  ///< Megatron
  std::uint64_t pad_to = 128;     ///< Megatron
  bool use_orig_params = false;   ///< FSDP1
  bool round_robin = false;       ///< ZeRO-1
  /// Groups of buffers: a tensor belongs to the first group with a pattern that matches and no "!pattern" that matches;
  /// every value of the captures has a separate buffer. No groups: one buffer.
  std::vector<std::vector<std::string>> groups;
  std::string key;  ///< the rule's JSON text: rules with the same text share their buffers
};

/// For each layer or expert number: the coordinates of an axis that hold it.
struct Placement {
  std::uint32_t axis = 0;
  std::optional<std::vector<std::vector<std::uint64_t>>> lists;  ///< by coordinate
  std::uint64_t count = 0;                                       ///< without lists: 0..count-1 are cut by `kind`
  ChunkKind kind = ChunkKind::kEven;
  std::uint64_t virtual_stages = 1;  ///< chunk v of stage p is number v * stages + p
};

using RankBoxes = std::map<std::uint64_t, std::vector<Box>>;

struct NameRule {
  std::vector<NamePattern> match;
  NamePattern section{"*"};
  std::vector<Cut> cuts;
  Where where;
  std::optional<FlatRule> flat;
  std::optional<RankBoxes> boxes;  ///< explicit boxes; ranks without an entry do not hold the tensor
  std::string key;                 ///< "rules[3]", for messages
};

/// The parallel degrees of a short form, as axes of the mesh. Unnamed degrees are 1, except etp, which is then tp.
struct ShortForm {
  std::uint32_t tp = 0, etp = 0, ep = 0, pp = 0;
  std::optional<std::uint32_t> fsdp;
  AxisGroup world;  ///< all dense axes, slowest first
  int zero = 0;
  FlatRule dense_flat;   ///< used if zero > 0: cuts over dp and cp
  FlatRule expert_flat;  ///< for experts: over edp with ep or etp, otherwise as dense_flat
  std::uint64_t virtual_stages = 1;
  bool uneven = false;
};

enum class Otherwise { kReplicate, kFsdp, kError };

struct LayoutRules {
  std::string text;
  std::uint64_t world = 1;
  std::vector<Axis> axes;
  std::optional<ShortForm> short_form;  ///< the families' rules apply to tensors that match no rule
  std::vector<NameRule> rules;
  std::optional<Placement> stages;
  std::optional<Placement> experts;
  Otherwise otherwise = Otherwise::kReplicate;
  std::uint32_t otherwise_axis = 0;
};

/// ways_of: number of positions on a group of axes; position_of: the position of a rank on the group.
std::uint64_t ways_of(const LayoutRules& rules, const AxisGroup& group);
std::uint64_t position_of(const LayoutRules& rules, const AxisGroup& group, std::uint64_t rank);
/// "tp=4", "dp*cp=8": for messages.
std::string describe(const LayoutRules& rules, const AxisGroup& group);

/// Defined in layout.cpp and layout_json.cpp; both throw Error(kUsage).
LayoutRules parse_short_form(std::string_view text);
LayoutRules parse_layout_json(std::string_view text);

}  // namespace cairn::shard
