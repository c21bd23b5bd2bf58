// torch DCP's sharded files: gathers boxes by name over all files, and checks that they cover each tensor.
#include "interop/dcp/dcp.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "base/checked.hpp"
#include "base/digits.hpp"
#include "base/text.hpp"
#include "interop/file_names.hpp"
#include "interop/sharding_info.hpp"
#include "interop/state_beside.hpp"
#include "shard/box_math.hpp"
#include "shard/box_sweep.hpp"

namespace cairn::interop {

// Finds overlaps by a sweep with an active list, and holes by comparing volumes, since disjoint boxes of full volume
// leave no hole.

namespace {

using Boxes = std::span<const format::StoredBox>;

std::uint64_t begin_of(const Box& box, std::size_t dim) { return box.offset[dim]; }
std::uint64_t end_of(const Box& box, std::size_t dim) { return box.offset[dim] + box.shape[dim]; }

std::optional<CoverFault> find_overlap(Boxes boxes, std::size_t rank) {
  std::vector<std::size_t> order(boxes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto box_of = [&](std::size_t i) -> const Box& { return boxes[i].box; };
  const auto found = shard::find_overlap(order, rank, box_of);
  if (!found) return std::nullopt;
  CoverFault fault;
  fault.overlap = true;
  fault.first = found->first;
  fault.second = found->second;
  return fault;
}

/// Requires disjoint boxes with less volume than the tensor. Finds, dimension by dimension, the first coordinate whose
/// slice is not full, and continues inside that slice.
std::vector<std::uint64_t> first_hole(Boxes boxes, std::span<const std::uint64_t> shape) {
  std::vector<std::uint64_t> element;
  std::vector<std::size_t> members(boxes.size());
  std::iota(members.begin(), members.end(), std::size_t{0});
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::uint64_t full = shard::elements_of(shape.subspan(d + 1));
    std::map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>> changes;  // coordinate -> volume begun, ended
    changes[0];
    for (const std::size_t i : members) {
      const Box& box = boxes[i].box;
      const std::uint64_t slice = shard::elements_of(std::span(box.shape).subspan(d + 1));
      changes[begin_of(box, d)].first += slice;
      changes[end_of(box, d)].second += slice;
    }
    std::uint64_t covered = 0;
    std::uint64_t at = 0;
    for (const auto& [coordinate, change] : changes) {
      covered = covered + change.first - change.second;
      at = coordinate;
      if (covered < full) break;
    }
    element.push_back(at);
    std::erase_if(members,
                  [&](std::size_t i) { return at < begin_of(boxes[i].box, d) || at >= end_of(boxes[i].box, d); });
  }
  return element;
}

}  // namespace

std::optional<CoverFault> find_cover_fault(Boxes boxes, std::span<const std::uint64_t> shape) {
  if (shape.empty()) return std::nullopt;  // a scalar's only box is the whole tensor
  if (auto fault = find_overlap(boxes, shape.size())) return fault;
  std::uint64_t covered = 0;
  for (const auto& stored : boxes) covered += shard::elements_of(stored.box.shape);
  if (covered == shard::elements_of(shape)) return std::nullopt;
  CoverFault hole;
  hole.element = first_hole(boxes, shape);
  return hole;
}

// Boxes are gathered by name from all files, then checked tensor by tensor.

namespace {

struct Gathered {
  format::StoredTensor tensor;
  std::string first_file;
};

bool has_zero(const std::vector<std::uint64_t>& shape) {
  return std::find(shape.begin(), shape.end(), 0u) != shape.end();
}

/// "shard-00001-model-00002-of-00003": all ranks together have the numbers 1 to 3, and all files of a rank have the
/// same count. A rank has no file of a number for which it has no boxes.
void check_numbers(const std::vector<std::string>& files, const Reading& reading) {
  std::map<std::uint64_t, std::set<std::uint64_t>> numbers;  // count -> numbers seen
  std::map<std::string, std::pair<std::uint64_t, std::string>> count_of_rank;
  for (const std::string& file : files) {
    const DataName name = parse_data_name(file);
    if (!name.numbered) continue;
    if (name.number == 0 || name.number > name.count) {
      throw reading.error(ErrorKind::kFormat, file, fmt::format("its number is not one of 1 to {}", name.count));
    }
    numbers[name.count].insert(name.number);
    const auto [known, added] = count_of_rank.try_emplace(name.set, name.count, file);
    if (!added && known->second.first != name.count) {
      throw reading.error(ErrorKind::kFormat, file,
                          fmt::format("belongs to another save than {} (of {} files, not {}); move the files of the "
                                      "older save away",
                                      shown(known->second.second), name.count, known->second.first));
    }
  }
  if (reading.directory().alone) return;
  for (const auto& [count, seen] : numbers) {
    const NumberRange range{1, count};
    const std::uint64_t next = first_missing_number(range, seen);
    if (next <= count) {
      throw Error(ErrorKind::kNotFound,
                  fmt::format("{}: file {} of {} is missing (no shard-*-{:05d}-of-{:05d}.safetensors){}",
                              reading.place(), next, count, next, count, other_missing_numbers(next, range, seen)));
    }
  }
}

void check_same(const Gathered& known, const format::TensorEntry& entry, const SectionedName& target,
                const std::string& file, const Reading& reading) {
  const auto& tensor = known.tensor;
  const std::string both = fmt::format("tensor {} is ", in_quotes(entry.name));
  if (tensor.dtype != entry.dtype) {
    throw reading.error(ErrorKind::kFormat, file,
                        both + fmt::format("{} here and {} in {}", name_of(entry.dtype), name_of(tensor.dtype),
                                           shown(known.first_file)));
  }
  if (tensor.shape.size() != entry.shape.size()) {
    throw reading.error(ErrorKind::kFormat, file,
                        both + fmt::format("{}-dimensional here and {}-dimensional in {}", entry.shape.size(),
                                           tensor.shape.size(), shown(known.first_file)));
  }
  if (target != SectionedName{tensor.section, tensor.name}) {
    throw reading.error(ErrorKind::kFormat, file,
                        both + fmt::format("in section {} here and in section {} in {}", in_quotes(target.section),
                                           in_quotes(tensor.section), shown(known.first_file)));
  }
}

/// Adds one box and widens the global shape.
void add_box(Gathered& gathered, format::StoredBox stored, const std::string& file, const Reading& reading) {
  auto& shape = gathered.tensor.shape;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const auto end = base::try_add(stored.box.offset[d], stored.box.shape[d]);
    if (!end) {
      throw reading.error(
          ErrorKind::kFormat, file,
          fmt::format("tensor {} ends beyond 2^64 in dimension {}", in_quotes(gathered.tensor.name), d));
    }
    shape[d] = std::max(shape[d], *end);
  }
  gathered.tensor.boxes.push_back(std::move(stored));
}

using ByStoredName = std::map<std::string, Gathered>;

void gather(const std::string& file, ByStoredName& all, const Reading& reading) {
  const auto& header = reading.header(file);
  auto offsets = read_sharding_info(file, reading);
  const auto sections = read_sections(file, reading);
  for (const auto& entry : header.tensors) {
    const std::string name(entry.name);
    const auto sectioned = sections.find(name);
    const SectionedName target = sectioned == sections.end() ? SectionedName{"model", name} : sectioned->second;
    const auto [place, added] = all.try_emplace(name);
    Gathered& gathered = place->second;
    if (added) {
      gathered.first_file = file;
      gathered.tensor.section = target.section;
      gathered.tensor.name = target.name;
      gathered.tensor.dtype = entry.dtype;
      gathered.tensor.shape.assign(entry.shape.size(), 0);
    } else {
      check_same(gathered, entry, target, file, reading);
    }
    format::StoredBox stored;
    stored.file = reading.number(file);
    stored.offset_bytes = base::add(header.data_start, entry.begin, "offset of a tensor");
    stored.box.offset = std::move(offsets.at(name));
    stored.box.shape.assign(entry.shape.begin(), entry.shape.end());
    add_box(gathered, std::move(stored), file, reading);
  }
}

/// Sorts the boxes, and drops empty boxes and replicas; returns the number of replicas. An empty tensor keeps one box.
std::size_t tidy(format::StoredTensor& tensor) {
  auto& boxes = tensor.boxes;
  const auto key = [](const format::StoredBox& b) {
    return std::tie(b.box.offset, b.box.shape, b.file, b.offset_bytes);
  };
  std::sort(boxes.begin(), boxes.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
  if (has_zero(tensor.shape)) {
    boxes.resize(1);
    boxes.front().box = Box{std::vector<std::uint64_t>(tensor.shape.size(), 0), tensor.shape};
    return 0;
  }
  std::erase_if(boxes, [](const auto& b) { return has_zero(b.box.shape); });
  const std::size_t before = boxes.size();
  boxes.erase(std::unique(boxes.begin(), boxes.end(), [](const auto& a, const auto& b) { return a.box == b.box; }),
              boxes.end());
  return before - boxes.size();
}

/// "[2, 5]".
std::string element_text(const std::vector<std::uint64_t>& element) {
  return fmt::format("[{}]", base::joined(element));
}

void check_cover(const format::StoredTensor& tensor, const std::vector<std::string>& files, const Reading& reading) {
  if (has_zero(tensor.shape)) return;
  if (!base::try_product(tensor.shape)) {
    throw Error(ErrorKind::kFormat,
                fmt::format("{}: tensor {} of shape {} has more than 2^64 elements", reading.path_of(files.front()),
                            in_quotes(tensor.name), element_text(tensor.shape)));
  }
  const auto fault = find_cover_fault(tensor.boxes, tensor.shape);
  if (!fault) return;
  std::vector<std::string> names;  // names of all files, in the order of StoredBox::file
  for (const auto& [name, header] : reading.directory().safetensors) names.push_back(name);
  if (fault->overlap) {
    const auto& a = tensor.boxes[fault->first];
    const auto& b = tensor.boxes[fault->second];
    throw reading.error(
        ErrorKind::kFormat, names[b.file],
        fmt::format("tensor {}: its box {} overlaps box {} of {}; move files of another save away",
                    in_quotes(tensor.name), shard::to_string(b.box), shard::to_string(a.box), shown(names[a.file])));
  }
  std::set<std::uint32_t> holders;
  for (const auto& stored : tensor.boxes) holders.insert(stored.file);
  std::vector<std::string> held_by;
  if (holders.empty()) held_by.push_back("no file: empty boxes only");
  for (const std::uint32_t file : holders) held_by.push_back(names[file]);
  throw Error(ErrorKind::kFormat,
              fmt::format("{}: tensor {} of shape {}: element {} is in no file (what there is of it is in {}); "
                          "a shard file is missing",
                          reading.place(), in_quotes(tensor.name), element_text(tensor.shape),
                          element_text(fault->element), list_some(held_by)));
}

}  // namespace

bool is_dcp_shard_name(std::string_view file) {
  constexpr std::string_view kStart = "shard-";
  if (!file.starts_with(kStart) || !parse_data_name(file).numbered) return false;
  const std::string_view rest = file.substr(kStart.size());
  const std::size_t digits = base::leading_digits(rest);
  return digits > 0 && rest.substr(digits).starts_with("-model-");
}

std::vector<std::string> sharded_files(const DataSets& sets, const Reading& reading) {
  std::set<std::string_view> listed;
  for (const auto& [name, set] : sets) listed.insert(set.index.files.begin(), set.index.files.end());
  std::vector<std::string> sharded;
  std::string whole;
  for (const auto& [file, header] : reading.directory().safetensors) {
    if (!listed.contains(file) && has_sharding_info(header)) {
      sharded.push_back(file);
    } else if (!listed.contains(file) && is_dcp_shard_name(file)) {
      throw reading.error(
          ErrorKind::kFormat, file,
          fmt::format("is named like a shard of torch DCP, but has no metadata {}", kDcpShardingInfoKey));
    } else if (whole.empty()) {
      whole = file;
    }
  }
  if (!sharded.empty() && !whole.empty()) {
    throw reading.error(
        ErrorKind::kFormat, whole,
        fmt::format("holds whole tensors, but {} holds parts (torch DCP): two checkpoints in one directory; "
                    "move one of them away",
                    shown(sharded.front())));
  }
  return sharded;
}

std::vector<format::StoredTensor> read_dcp_files(const std::vector<std::string>& files, Reading& reading) {
  check_numbers(files, reading);
  ByStoredName all;
  for (const std::string& file : files) gather(file, all, reading);

  std::vector<format::StoredTensor> tensors;
  std::size_t replicas = 0;
  for (auto& [name, gathered] : all) {
    replicas += tidy(gathered.tensor);
    check_cover(gathered.tensor, files, reading);
    tensors.push_back(std::move(gathered.tensor));
  }
  if (replicas != 0) {
    reading.warn(fmt::format("{} stored more than once; of each the copy in the first file is used",
                             base::counted(replicas, "box is", "boxes are")));
  }
  return tensors;
}

namespace {

/// Whether the tensor has a row for each word of the vocabulary, by its name.
bool has_rows_of_words(const format::StoredTensor& tensor) {
  constexpr std::array<std::string_view, 6> kNames = {"embed_tokens.weight", "word_embeddings.weight",
                                                      "wte.weight",          "tok_embeddings.weight",
                                                      "embed_in.weight",     "lm_head.weight"};
  return tensor.shape.size() == 2 &&
         std::ranges::any_of(kNames, [&](std::string_view name) { return tensor.name.ends_with(name); });
}

std::uint64_t ranks_of(const std::vector<std::string>& files) {
  std::set<std::string> ranks;
  for (const std::string& file : files) {
    if (is_dcp_shard_name(file)) ranks.insert(parse_data_name(file).set);
  }
  return ranks.size();
}

/// Whether the boxes of a tensor show that there were no more ranks. FSDP cuts a dimension of n into boxes of
/// ceil(n / ranks): if the last rank here has the smaller rest, n is known, and with it the number of ranks.
bool shows_last_rank(const format::StoredTensor& tensor, std::uint64_t ranks) {
  const auto& boxes = tensor.boxes;
  if (ranks < 2 || boxes.size() != ranks) return false;
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
    const std::uint64_t n = tensor.shape[d];
    const std::uint64_t each = boxes.front().box.shape[d];
    const std::uint64_t rest = boxes.back().box.shape[d];
    const auto is_one_of_them = [&](const format::StoredBox& stored) {
      return stored.box.shape[d] == each && stored.box.offset[d] % each == 0;
    };
    if (each == 0 || rest >= each || (n + ranks) / (ranks + 1) == each) continue;
    if (std::all_of(boxes.begin(), std::prev(boxes.end()), is_one_of_them) && n == each * (ranks - 1) + rest)
      return true;
  }
  return false;
}

/// The files do not say how many ranks there were: without those of the last ranks, every tensor merely ends early.
/// Compares the rows of words with config.json. Throws if rows are missing, and warns if nothing shows that none are.
void check_last_ranks(const std::vector<format::StoredTensor>& tensors, const std::vector<std::string>& files,
                      Reading& reading) {
  if (reading.directory().alone || !reading.directory().manifest.empty()) return;
  const auto words = number_in_config(reading, "vocab_size");
  const format::StoredTensor* most = nullptr;
  for (const format::StoredTensor& tensor : tensors) {
    if (has_rows_of_words(tensor) && (most == nullptr || tensor.shape[0] > most->shape[0])) most = &tensor;
  }
  if (words && most != nullptr && most->shape[0] < *words) {
    throw Error(ErrorKind::kNotFound,
                fmt::format("{}: tensor {} ends after {} rows, and config.json says vocab_size {}: the files of the "
                            "last ranks are missing ({} is the last one here)",
                            reading.place(), in_quotes(most->name), most->shape[0], *words, shown(files.back())));
  }
  const bool is_whole = words && most != nullptr && number_in_config(reading, "hidden_size") == most->shape[1];
  const std::uint64_t ranks = ranks_of(files);
  if (is_whole || std::ranges::any_of(tensors, [&](const auto& tensor) { return shows_last_rank(tensor, ranks); })) {
    return;
  }
  reading.warn(fmt::format(
      "the files of torch DCP do not say how many ranks there were: if files after {} are lost, the tensors "
      "are cut short, and nothing shows it; compare their shapes with the model's (config.json with "
      "vocab_size and hidden_size next to the files lets it be checked)",
      shown(files.back())));
}

class Dcp final : public Dialect {
 public:
  [[nodiscard]] std::string_view name() const override { return "torch DCP safetensors"; }

  [[nodiscard]] bool recognises(Reading& reading) const override {
    return !sharded_files(reading.sets(), reading).empty();
  }

  void describe(Reading& reading, Recognised& out) const override {
    require_maps(reading);
    const std::vector<std::string> files = sharded_files(reading.sets(), reading);
    std::vector<format::StoredTensor> tensors = read_dcp_files(files, reading);
    check_last_ranks(tensors, files, reading);
    for (auto& tensor : tensors) out.add(std::move(tensor));
  }

  void tell(Reading& reading, About& out) const override {
    tell_of_trainer(reading, out);
    const std::vector<std::string> files = sharded_files(reading.sets(), reading);
    for (const std::string& file : files) {
      const auto& metadata = reading.header(file).metadata;
      const auto version = metadata.find("DCP_VERSION");
      if (version != metadata.end()) out.version = "torch DCP " + version->second;
    }
    if (const std::uint64_t ranks = ranks_of(files); ranks != 0) out.parallel = fmt::format("ranks={}", ranks);
  }

  [[nodiscard]] bool describes_file(std::string_view key, std::string_view /*value*/) const override {
    return key.starts_with("DCP_");
  }

  [[nodiscard]] std::string_view why_unread(std::string_view file) const override {
    return file.ends_with(".distcp") ? ".distcp files of torch DCP are not read, only its safetensors files" : "";
  }

  [[nodiscard]] std::span<const Form* const> forms() const override {
    static const std::array<const Form*, 1> kForms = {&shards_form()};
    return kForms;
  }
};

}  // namespace

const Dialect& dcp_dialect() {
  static const Dcp dialect;
  return dialect;
}

}  // namespace cairn::interop
