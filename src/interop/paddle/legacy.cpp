#include "interop/paddle/legacy.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/checked.hpp"
#include "base/digits.hpp"
#include "base/text.hpp"
#include "format/hf_index.hpp"
#include "interop/paddle/copies.hpp"
#include "interop/paddle/legacy_files.hpp"
#include "interop/paddle/legacy_pickles.hpp"
#include "interop/paddle/merged_adapters.hpp"
#include "interop/paddle/tensor_cuts.hpp"
#include "interop/paddle/unmerged.hpp"
#include "shard/box_math.hpp"

namespace cairn::interop {
namespace {

constexpr const char* kMasters = "master_weights";
/// Tied weights have two or three names; a pickle could have any number, with a state for each.
constexpr std::size_t kMostNames = 8;
/// Bytes that names of tensors may take beyond the size of the file; a short key may stand for long names.
constexpr std::uint64_t kFreeNameBytes = 16 << 20;

/// The fragments of every weight of a set, by tensor-parallel rank. If pipeline stages or expert ranks share a weight,
/// only the first one's fragments.
using Weights = std::map<std::string_view, std::map<std::uint32_t, Fragment>>;

Weights weights_of(const RankFiles& files) {
  Weights out;
  for (const RankFile& file : files.files) {
    for (const format::TensorEntry& entry : file.header->tensors) {
      out[entry.name].emplace(file.rank[kTensor], Fragment{&file, &entry});
    }
  }
  return out;
}

class LegacyReader {
 public:
  LegacyReader(Reading& reading, Recognised& out) : reading_(reading), out_(out), files_(legacy_files(reading)) {}

  void read() {
    std::vector<RankFiles> sets;
    for (RankFiles& weights : files_.weights) {
      read_weights_of(weights);
      sets.push_back(weights);
    }
    for (const RankFiles& weights : sets) {
      check_indexes(weights);
      add_parameters(weights);
    }
    if (!files_.optimizer.files.empty()) read_state(sets);
    read_rank_files(sets, nullptr, parameters_, reading_, out_);
    for (format::SafetensorsHeader& header : headers_) out_.stores.push_back(header.store);
    warn_of_copies();
    add_f32_masters();
  }

 private:
  // ---- files

  void put_header(RankFile& file, std::vector<PickledTensor> tensors) {
    const std::uint64_t size = reading_.directory().others.at(file.name);
    file.number = reading_.add_file(file.name, size);
    file.header = &headers_.emplace_back(header_of(std::move(tensors), size));
  }

  void read_weights_of(RankFiles& weights) {
    for (RankFile& file : weights.files) {
      PickledWeights found = read_weights(file.name, reading_);
      if (found.names.empty() && weights.files.size() == 1) nameless_ = PickledFile{file.name, found.tensors};
      put_header(file, std::move(found.tensors));
      StaticNames& names = names_[file.rank];
      for (auto& [name, own] : found.names) {
        auto& all = names[name];
        all.insert(all.end(), own.begin(), own.end());
        if (all.size() > 1) tied_.insert(all.begin(), all.end());
        if (all.size() <= kMostNames) continue;
        throw reading_.error(ErrorKind::kFormat, file.name,
                             fmt::format("has more than {} names of one parameter, the last of them {}", kMostNames,
                                         in_quotes(all.back())));
      }
    }
  }

  /// Checks that each rank's index, if there is one, lists exactly the tensors in the rank's pieces.
  void check_indexes(const RankFiles& weights) const {
    std::map<std::string, std::set<std::pair<std::string_view, std::string_view>>> found;  // index -> file and tensor
    for (const RankFile& file : weights.files) {
      auto& of_rank = found[index_name_of(weights, file.rank)];
      for (const format::TensorEntry& entry : file.header->tensors) of_rank.emplace(file.name, entry.name);
    }
    for (const auto& [name, tensors] : found) {
      const auto text = reading_.directory().json.find(name);
      if (text == reading_.directory().json.end()) continue;
      const format::HfIndex index = format::parse_hf_index(text->second, reading_.raw_path_of(name));
      for (const format::IndexEntry& tensor : index.tensors) {
        const std::string& file = index.file_of(tensor);
        if (tensors.contains({file, tensor.name})) continue;
        throw reading_.error(
            ErrorKind::kFormat, name,
            fmt::format("says that tensor {} is in {}, where it is not", in_quotes(tensor.name), shown(file)));
      }
      if (index.tensors.size() == tensors.size()) continue;
      const auto unlisted =
          std::ranges::find_if(tensors, [&](const auto& tensor) { return index.find(tensor.second) == nullptr; });
      if (unlisted == tensors.end()) continue;
      throw reading_.error(
          ErrorKind::kFormat, std::string(unlisted->first),
          fmt::format("holds tensor {}, which {} does not list", in_quotes(unlisted->second), shown(name)));
    }
  }

  /// The static names of the process that wrote the file; for another process these names mean nothing.
  [[nodiscard]] const StaticNames& names_of(const RankFile& optimizer) const {
    static const StaticNames kNone;
    Rank rank = optimizer.rank;
    rank[kSharding] = 0;
    auto found = names_.find(rank);
    if (found == names_.end()) {
      rank[kTensor] = 0;  // merged weights
      found = names_.find(rank);
    }
    return found == names_.end() ? kNone : found->second;
  }

  /// The tensors under the names of unified checkpoints.
  std::vector<PickledTensor> renamed(const RankFile& file, const std::vector<PickledTensor>& tensors, bool is_state) {
    const StaticNames& names = names_of(file);
    const std::uint64_t most_bytes = kFreeNameBytes + reading_.directory().others.at(file.name);
    std::uint64_t name_bytes = 0;
    std::vector<PickledTensor> out;
    for (const PickledTensor& tensor : tensors) {
      const auto parts = is_state ? split_state_key(tensor.key, names) : std::pair(std::string_view(tensor.key), "");
      const auto known = parts ? names.find(parts->first) : names.end();
      if (known == names.end()) {
        throw reading_.error(
            ErrorKind::kFormat, file.name,
            fmt::format("tensor {} belongs to none of the weights that the same rank wrote: no name in "
                        "StructuredToParameterName@@ is its parameter's",
                        in_quotes(tensor.key)));
      }
      for (const std::string& name : known->second) {
        PickledTensor& copy = out.emplace_back(tensor);
        copy.key = is_state ? name + "/" + std::string(parts->second) : name;
        name_bytes += copy.key.size();
        if (name_bytes <= most_bytes) continue;
        throw reading_.error(
            ErrorKind::kFormat, file.name,
            fmt::format("tensor {}: names up to this one have more bytes than the file", in_quotes(tensor.key)));
      }
    }
    return out;
  }

  void read_state(std::vector<RankFiles>& sets) {
    RankFiles states = files_.optimizer;
    RankFiles masters = files_.optimizer;
    masters.section = kMasters;
    bool has_masters = false;
    find_names_of_merged();
    const auto nameless = std::ranges::find_if(states.files, [&](const RankFile& f) { return names_of(f).empty(); });
    if (nameless != states.files.end()) return leave_state(*nameless);
    for (std::size_t i = 0; i < states.files.size(); ++i) {
      const RankFile& file = files_.optimizer.files[i];
      const PickledOptimizer found = read_optimizer(file.name, reading_);
      put_header(states.files[i], renamed(file, found.states, true));
      put_header(masters.files[i], found.masters ? renamed(file, *found.masters, false) : std::vector<PickledTensor>());
      has_masters = has_masters || found.masters;
    }
    sets.push_back(std::move(states));
    if (has_masters) sets.push_back(std::move(masters));
  }

  /// Finds the static names of a merged adapter's weights, for the optimizer files of tensor-parallel ranks.
  void find_names_of_merged() {
    const RankFiles& optimizer = files_.optimizer;
    const bool is_merged =
        nameless_ && files_.weights.size() == 1 && optimizer.files.size() == optimizer.degrees[kTensor];
    if (!is_merged) return;
    std::vector<PickledFile> masters;
    for (const RankFile& file : optimizer.files) {
      PickledOptimizer found = read_optimizer(file.name, reading_);
      if (!found.masters) return;
      masters.push_back({file.name, std::move(*found.masters)});
    }
    if (nameless_->tensors.empty()) return;
    const ModelFacts facts = facts_of(reading_, nameless_->tensors.front().key);
    if (auto names = names_of_merged(*nameless_, masters, facts, reading_)) names_[Rank{}] = std::move(*names);
  }

  void leave_state(const RankFile& file) {
    out_.about.left.push_back(
        fmt::format("the optimizer state ({}): the weights beside it do not say how its process called them "
                    "(StructuredToParameterName@@ is missing), so that nothing tells which state is whose",
                    shown(file.name)));
  }

  // ---- weights

  void add_parameters(const RankFiles& files) {
    const Weights weights = weights_of(files);
    for (const auto& [name, of_ranks] : weights) {
      const format::TensorEntry& entry = *of_ranks.begin()->second.entry;
      Parameter parameter{name, std::vector(entry.shape.begin(), entry.shape.end()),
                          std::max(bits_of(entry.dtype) / 8, 1U), false};
      if (files.degrees[kTensor] > 1) add_cut(files, of_ranks, parameter);
      parameters_.emplace(name, std::move(parameter));
    }
  }

  std::vector<Fragment> all_slices(const RankFiles& files, const std::map<std::uint32_t, Fragment>& of_ranks) const {
    std::vector<Fragment> slices;
    const Fragment& first = of_ranks.begin()->second;
    for (std::uint32_t rank = 0; rank < files.degrees[kTensor]; ++rank) {
      const auto slice = of_ranks.find(rank);
      if (slice == of_ranks.end()) {
        Rank where = first.file->rank;
        where[kTensor] = rank;
        throw wrong_fragment(first, reading_,
                             fmt::format("is not in {}: each tensor-parallel rank has a slice or a copy of it",
                                         shown(files.name_of(where, first.file->piece))));
      }
      const format::TensorEntry& entry = *slice->second.entry;
      if (entry.dtype != first.entry->dtype || !std::ranges::equal(entry.shape, first.entry->shape)) {
        throw wrong_fragment(slice->second, reading_,
                             fmt::format("is {}, and {} {} in {}", name_of(entry.dtype), name_of(first.entry->dtype),
                                         shard::shape_text(first.entry->shape), shown(first.file->name)));
      }
      slices.push_back(slice->second);
    }
    return slices;
  }

  /// Sets the whole shape of a weight, and how ranks cut the weight, from the slices of tensor-parallel ranks.
  void add_cut(const RankFiles& files, const std::map<std::uint32_t, Fragment>& of_ranks, Parameter& parameter) {
    if (!facts_) facts_ = facts_of(reading_, parameter.name);
    const std::vector<Fragment> slices = all_slices(files, of_ranks);
    const std::uint32_t ranks = files.degrees[kTensor];
    const std::vector<std::uint64_t> shape = *parameter.shape;
    ModelFacts facts = *facts_;
    if (tied_.contains(parameter.name)) facts.says_tied = true;
    const TensorCut cut = cut_of(parameter.name, shape, ranks, facts, [&] {
      const bool decides = facts.family.empty();
      return comparer_.compare(slices, decides ? CopyComparer::Look::kAll : CopyComparer::Look::kSamples);
    });
    if (!cut.unknown.empty()) {
      throw wrong_fragment(slices.front(), reading_,
                           fmt::format("is of {} tensor-parallel ranks: {}", ranks, cut.unknown));
    }
    parameter.slices.assign(ranks, shape);
    if (cut.is_cut) {
      check_parts(slices);
      (*parameter.shape)[cut.dimension] = base::mul(shape[cut.dimension], ranks, "rows of slices");
      parameter.fused.widths = cut.fused;
    }
    if (!cut.differs) return;
    ++differing_;
    differing_name_ = parameter.name;
  }

  /// Checks that the ranks' parts differ, once for all weights whose names differ only in digits.
  void check_parts(const std::vector<Fragment>& slices) {
    std::string pattern(slices.front().entry->name);
    std::ranges::replace_if(pattern, base::is_digit, '0');
    if (known_parts_.contains(pattern)) return;
    const Copies found = comparer_.compare(slices, CopyComparer::Look::kAll);
    if (found == Copies::kAlike) {
      throw wrong_fragment(slices.front(), reading_,
                           "should be one tensor-parallel rank's part by its name, but all ranks have the same");
    }
    if (found != Copies::kUniform) known_parts_.insert(std::move(pattern));
  }

  void warn_of_copies() {
    if (differing_ == 0) return;
    reading_.warn(fmt::format(
        "{} in the files of tensor-parallel ranks, which should have copies, e.g. {}; those of the first rank are "
        "taken, as PaddlePaddle does when it merges",
        base::counted(differing_, "tensor differs", "tensors differ"), in_quotes(differing_name_)));
  }

  /// Adds F32 weights to the master weights, as in unified checkpoints.
  void add_f32_masters() {
    if (!out_.sections.contains(kMasters)) return;
    std::set<std::string_view> known;
    for (const format::PlacedTensor& tensor : out_.tensors) {
      if (tensor.section == kMasters) known.insert(tensor.name);
    }
    std::vector<format::StoredTensor> more;
    for (const format::PlacedTensor& tensor : out_.tensors) {
      const bool is_weight = tensor.section == "model" || tensor.section == "adapter";
      if (!is_weight || tensor.dtype != DType::kF32 || known.contains(tensor.name)) continue;
      more.push_back(format::stored_tensor(tensor));
      more.back().section = kMasters;
    }
    for (format::StoredTensor& tensor : more) out_.add(std::move(tensor));
  }

  Reading& reading_;
  Recognised& out_;
  LegacyFiles files_;
  std::deque<format::SafetensorsHeader> headers_;
  std::map<Rank, StaticNames> names_;        ///< by rank, without the rank of sharding
  std::set<std::string, std::less<>> tied_;  ///< weights with several names in their process
  std::optional<PickledFile> nameless_;      ///< weights without static names
  Parameters parameters_;
  std::optional<ModelFacts> facts_;
  CopyComparer comparer_{reading_};
  std::set<std::string> known_parts_;
  std::size_t differing_ = 0;
  std::string_view differing_name_;
};

}  // namespace

void read_legacy(Reading& reading, Recognised& out) { LegacyReader(reading, out).read(); }

}  // namespace cairn::interop
