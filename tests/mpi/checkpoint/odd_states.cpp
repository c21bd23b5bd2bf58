#include "odd_states.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "base/text.hpp"
#include "random.hpp"

namespace cairn::test {
namespace {

using Random = std::mt19937_64;

template <class T>
const T& one_of(Random& random, const std::vector<T>& all) {
  return all[uniform(random, 0, all.size() - 1)];
}

bool one_in(Random& random, std::uint64_t n) { return uniform(random, 1, n) == 1; }

/// The words of `plain`, followed by the odd ones.
std::vector<std::string> words(const std::string& plain, const std::vector<std::string>& odd_ones) {
  std::istringstream in(plain);
  std::vector<std::string> all{std::istream_iterator<std::string>(in), {}};
  all.insert(all.end(), odd_ones.begin(), odd_ones.end());
  return all;
}

constexpr std::size_t kPlainSections = 6;  // number of plain sections, which come first in odd_sections()

const std::vector<std::string>& odd_sections() {
  static const std::vector<std::string> all = words(
      "model model model optimizer optimizer master_weights adapter adapter_model peft_model rank_state x "
      "model-00001-of-00002 model-00001-of-00001 model-00003-of-00002 rank_state-00001-of-00002 "
      "shard-00001-model-00001-of-00001 shard-00001 model-00001 pytorch_model consolidated model_state "
      "model_state-tp00_pp00 optimizer-tp00_pp00_shard00 rank0 model-rank-0-part-0 llama-TP-000 w-0000000-0000004 "
      "model_fp16 model.fp16 training_args trainer_state scheduler cairn config adapter_config - _ -- A a a.b a/b . ..",
      {"", "\xc3\xa9", "with space", "line\nend", std::string("nul\0", 4), std::string(64, 's'), std::string(65, 's')});
  return all;
}

const std::vector<std::string>& odd_names() {
  static const std::vector<std::string> all = words(
      "w w v 0 9 10 01 __metadata__ rank rank-00000 rank-00001 a.b.c a/b /abs ../up .. . w@q8 w@scales w@max_scales "
      "w.exp_avg w.exp_avg_sq w.exp_avg@q8 w/moment1_0 w/moment2_0 w/beta1_pow_acc_0 model-00001-of-00002.safetensors "
      "cairn.json weight_map metadata cairn.coding/w cairn.sections DCP_SHARDING_INFO dtype shape data_offsets "
      "lm_head.weight model.embed_tokens.weight w_shard_0001 * ? %s {}",
      {"", " ", "a\\b", "\xc3\xa9", "\xe2\x80\xa8", "\xef\xbb\xbfmark", "\x01\n\t\"\\\x7f", "\xff", "\xed\xa0\x80",
       "\xc0\xaf", "\xf4\x90\x80\x80", "\xf0\x9f\xaa\xa8", "\xc2\x85", "\xe2\x80\xae", std::string("nul\0byte", 8),
       std::string(300, 'n'), std::string(70'000, 'N')});
  return all;
}

const std::vector<std::string>& odd_texts() {
  static const std::vector<std::string> all =
      words("pt np ms tf mlx {} [ null 1e999 \"\\",
            {"", "\xff\xfe", "\xed\xa0\x80", "\xc3\xa9", "a\nb", std::string("a\0b", 3),
             "{\"a\": {\"saved_offsets\": [0]}}", std::string(100'000, 'x'), "\x01"});
  return all;
}

const std::vector<std::string>& odd_keys() {
  static const std::vector<std::string> all = words(
      "format format cairn.coding/w cairn.coding/ cairn.sections cairn.x DCP_SHARDING_INFO DCP_VERSION __metadata__ "
      "paddle scheduler format_version manifest_crc32c total_size quantisation 0",
      {"", "\xff", "\xc3\xa9", "a\nb", std::string("a\0b", 3), std::string(1000, 'k')});
  return all;
}

const std::vector<std::string>& odd_file_names() {
  static const std::vector<std::string> all = words(
      "config.json Config.json tokenizer.json trainer_state.json cairn.json cairn.blocks cairn.JSON model.safetensors "
      "model-00001-of-00002.safetensors optimizer.safetensors x.safetensors x.safetensors_shard_0001 "
      "model.safetensors_shard_0000 model.safetensors.index.json x.safetensors.index.json "
      "model.safetensors.index.fp16.json pytorch_model.bin pytorch_model.bin.index.json model_state.pdparams "
      "optimizer.pdopt scheduler.pdparams master_weights.pdopt x.pdparams model_state.tp00.pdparams training_args.bin "
      "adapter_config.json lora_config.json state.h5 x.hdf5 checkpoint-2 latest_checkpointed_iteration.txt .hidden "
      "._model.safetensors .. . a/b ../up a\\b C:x rank_state.safetensors x.partial x.tmp * index.json saved_signal_0 "
      ".optimizer_weight.done.0 rng_state.pth model.safetensors.partial cairn.coding",
      {"", " ", "\xff", "\xc3\xa9", "a\nb", std::string("a\0b", 3), std::string(255, 'f'), std::string(256, 'f'),
       std::string(5'000, 'f')});
  return all;
}

std::string random_text(Random& random) {
  std::string text(uniform(random, 1, 12), ' ');
  for (char& c : text) c = static_cast<char>(uniform(random, 0, one_in(random, 3) ? 255 : 127));
  return text;
}

std::string odd(Random& random, const std::vector<std::string>& all) {
  return one_in(random, 12) ? random_text(random) : one_of(random, all);
}

std::uint64_t elements_of(const std::vector<std::uint64_t>& shape) {
  std::uint64_t n = 1;
  for (const std::uint64_t length : shape) n *= length;
  return n;
}

std::vector<std::uint64_t> odd_shape(Random& random) {
  if (one_in(random, 100)) {
    return one_of<std::vector<std::uint64_t>>(
        random, {{1ULL << 40, 0}, {0, 1ULL << 40}, {1ULL << 40, 1ULL << 40, 0}, {0, ~0ULL, ~0ULL}, {~0ULL, 0}});
  }
  std::vector<std::uint64_t> shape(uniform(random, 0, one_in(random, 10) ? (one_in(random, 4) ? 9 : 7) : 3));
  for (std::uint64_t& length : shape) length = one_in(random, 8) ? 0 : uniform(random, 1, shape.size() > 4 ? 3 : 20);
  return shape;
}

std::vector<OddTensor> odd_tensors(Random& random, std::uint64_t ranks) {
  std::vector<OddTensor> tensors;
  std::set<std::pair<std::string, std::string>> names;
  const bool is_plain = !one_in(random, 4);  // otherwise nearly all cases would be refused
  const std::uint64_t most = one_in(random, 10) ? 60 : 6;
  for (std::uint64_t left = one_in(random, 10) ? 0 : uniform(random, 1, most); left > 0; --left) {
    OddTensor tensor;
    tensor.section = is_plain || !one_in(random, 4) ? odd_sections()[uniform(random, 0, kPlainSections - 1)]
                                                    : odd(random, odd_sections());
    tensor.tensor.name =
        is_plain || !one_in(random, 4) ? "t" + std::to_string(uniform(random, 0, 99)) : odd(random, odd_names());
    if (!names.insert({tensor.section, tensor.tensor.name}).second) continue;
    tensor.tensor.dtype = static_cast<DType>(uniform(random, 0, kDTypeCount - 1));
    tensor.tensor.shape = odd_shape(random);
    if (bits_of(tensor.tensor.dtype) < 8 && !one_in(random, 20)) tensor.tensor.shape.push_back(4);
    if (elements_of(tensor.tensor.shape) > 1'000'000) tensor.tensor.shape = {7};
    tensor.content = random_bytes(random, (elements_of(tensor.tensor.shape) * bits_of(tensor.tensor.dtype) + 7) / 8);
    tensor.owner = uniform(random, 0, ranks);
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

std::map<std::string, std::string> odd_map(Random& random) {
  std::map<std::string, std::string> map;
  const bool is_plain = !one_in(random, 4);
  for (std::uint64_t left = uniform(random, 0, 3); left > 0; --left) {
    if (is_plain) {
      map["key" + std::to_string(left)] = "value\xc3\xa9";
    } else {
      map[odd(random, odd_keys())] = odd(random, odd_texts());
    }
  }
  return map;
}

}  // namespace

OddCase odd_case(Random& random, std::uint64_t ranks, std::uint64_t rank) {
  OddCase odd_one;
  Options& options = odd_one.options;
  options.engine.name = one_of<std::string>(random, {"posix", "direct", "auto", "mpiio"});
  const std::vector<std::uint64_t> blocks = {4096, 1024, 100,  1,    2,    3,       4,       5,
                                             6,    7,    8,    9,    15,   4095,    4097,    12'345,
                                             100,  33,   4096, 1024, 1000, 1 << 20, 1048577, 5 << 20};
  const std::vector<std::uint64_t> odd_blocks = {0, 1ULL << 30, (1ULL << 30) + 1, 1ULL << 40, ~0ULL};
  options.files.block_bytes = one_of(random, one_in(random, 16) ? odd_blocks : blocks);
  const std::vector<std::uint64_t> odd_alignments = {0,    1,          4,          7,          9,    12,
                                                     4095, 1ULL << 27, 1ULL << 40, 1ULL << 63, ~0ULL};
  options.files.align_bytes =
      one_of(random, one_in(random, 16) ? odd_alignments : std::vector<std::uint64_t>{4096, 8, 16, 64, 512, 1 << 20});
  if (options.files.block_bytes < 64 && options.files.align_bytes == 1 << 20) options.files.align_bytes = 4096;  // fast
  options.files.max_bytes = one_of<std::uint64_t>(random, {5'000'000'000, 5'000'000'000, 0, 1, 100, 1000, ~0ULL});
  options.limits.memory_budget_bytes =
      one_of<std::uint64_t>(random, {256 << 20, 256 << 20, 256 << 20, 256 << 20, 1 << 20, 64 << 10, 1000});
  if (one_in(random, 3)) options.files.metadata = odd_map(random);
  options.read_back = one_of<ReadBack>(random, {ReadBack::kOff, ReadBack::kOff, ReadBack::kAll, ReadBack::kSample});
  if (one_in(random, 10)) options.run_id = odd(random, odd_texts());
  if (one_in(random, 15)) options.engine.hints = odd_map(random);
  if (one_in(random, 10)) {
    options.quantisation.codecs = {{one_of<std::string>(random, {"optimizer", "model", "x", ""}), "q8"}};
  }
  options.allow_other_run = true;
  options.checks.replicas =
      one_of<ReplicaCheck>(random, {ReplicaCheck::kSample, ReplicaCheck::kAll, ReplicaCheck::kOff});
  options.checks.non_finite = one_of<NonFinite>(random, {NonFinite::kIgnore, NonFinite::kCount, NonFinite::kWarn});
  if (one_in(random, 10)) options.files.form = one_of<std::string>(random, {"paddlenlp", "paddleformers", "x"});
  odd_one.tensors = odd_tensors(random, ranks);
  Extras& extras = odd_one.extras;
  if (one_in(random, 2)) extras.metadata = odd_map(random);
  if (one_in(random, 4)) extras.layout = odd(random, odd_texts());
  const bool are_plain = !one_in(random, 4);
  for (std::uint64_t left = uniform(random, 0, 2); left > 0; --left) {
    const std::string name = are_plain ? "config.json" : odd(random, odd_file_names());
    extras.carry_texts[name] = odd(random, odd_texts());
  }
  if (one_in(random, 3))
    odd_one.files[are_plain ? "tokenizer.json" : odd(random, odd_file_names())] = odd(random, odd_texts());
  const std::uint64_t blobs = one_in(random, 3) ? uniform(random, 0, 2) : 0;
  for (std::uint64_t r = 0; r < ranks; ++r) {
    const auto blob = random_bytes(random, blobs == 0 ? 0 : uniform(random, 0, 1) * uniform(random, 1, 10'000));
    if (r == rank) extras.rank_blob = blob;
  }
  odd_one.is_async = one_in(random, 4);
  odd_one.has_gaps = one_in(random, 3);
  odd_one.text = "block " + std::to_string(options.files.block_bytes) + ", align " +
                 std::to_string(options.files.align_bytes) + ", max " + std::to_string(options.files.max_bytes) +
                 ", budget " + std::to_string(options.limits.memory_budget_bytes) + ", engine " + options.engine.name +
                 ", form '" + options.files.form + "', run '" + base::printable(options.run_id) + "'" +
                 (odd_one.is_async ? ", async" : "") + (odd_one.has_gaps ? ", with gaps" : "");
  for (const OddTensor& tensor : odd_one.tensors) {
    odd_one.text += "; " + base::printable(tensor.section) + ":" + base::printable(tensor.tensor.name, 40) + " " +
                    std::string(name_of(tensor.tensor.dtype)) + "[";
    for (const std::uint64_t length : tensor.tensor.shape) odd_one.text += std::to_string(length) + " ";
    odd_one.text += "]";
  }
  for (const auto& [name, text] : extras.carry_texts) odd_one.text += "; text " + base::printable(name, 40);
  for (const auto& [name, text] : odd_one.files) odd_one.text += "; file " + base::printable(name, 40);
  for (const auto& [key, value] : options.files.metadata) odd_one.text += "; metadata " + base::printable(key, 40);
  for (const auto& [key, value] : extras.metadata) odd_one.text += "; user's " + base::printable(key, 40);
  return odd_one;
}

std::vector<Box> boxes_of(const OddTensor& odd_tensor, std::uint64_t rank, std::uint64_t ranks) {
  const std::vector<std::uint64_t>& shape = odd_tensor.tensor.shape;
  const Box whole{std::vector<std::uint64_t>(shape.size(), 0), shape};
  if (odd_tensor.owner == ranks) return {whole};
  const bool can_be_cut = !shape.empty() && bits_of(odd_tensor.tensor.dtype) >= 8;
  if (!can_be_cut) return rank == odd_tensor.owner ? std::vector<Box>{whole} : std::vector<Box>();
  Box box = whole;
  const std::uint64_t rows = shape[0];
  if (rows > 1'000'000) return rank == 0 ? std::vector<Box>{whole} : std::vector<Box>();
  box.offset[0] = rows * rank / ranks;
  box.shape[0] = rows * (rank + 1) / ranks - box.offset[0];
  return {box};
}

namespace {

std::uint64_t row_bytes_of(const OddTensor& odd_tensor) {
  const std::vector<std::uint64_t>& shape = odd_tensor.tensor.shape;
  return shape.empty() || shape[0] == 0 ? 0 : odd_tensor.content.size() / shape[0];
}

}  // namespace

std::vector<std::byte> content_of(const OddTensor& odd_tensor, const std::vector<Box>& boxes) {
  std::vector<std::byte> content;
  for (const Box& box : boxes) {
    if (box.shape == odd_tensor.tensor.shape) {
      content = odd_tensor.content;
    } else {
      const std::uint64_t row = row_bytes_of(odd_tensor);
      const auto begin = odd_tensor.content.begin() + static_cast<std::ptrdiff_t>(box.offset[0] * row);
      content.assign(begin, begin + static_cast<std::ptrdiff_t>(box.shape[0] * row));
    }
  }
  return content;
}

}  // namespace cairn::test
