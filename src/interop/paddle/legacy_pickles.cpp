#include "interop/paddle/legacy_pickles.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "pickle/pickle.hpp"
#include "pickle/python_objects.hpp"

namespace cairn::interop {
namespace {

using pickle::PickleKind;
using pickle::PickleValue;

constexpr std::string_view kNames = "StructuredToParameterName@@";
constexpr std::string_view kBigTensors = "UnpackBigParamInfor@@";
constexpr std::string_view kMasters = "master_weights";
constexpr std::string_view kSchedule = "LR_Scheduler";
constexpr std::string_view kMasterSuffix = "_fp32_master_0_";
/// A pickle can have one array under any number of names. Tied weights need two.
constexpr std::uint64_t kMostUses = 2;
/// Most words in the name of a state: "beta1_pow_acc_0" has four.
constexpr int kMostWords = 16;

/// Reads a pickle as a dict.
class Reader {
 public:
  Reader(const std::string& file, Reading& reading)
      : file_(file),
        path_(reading.raw_path_of(file)),
        reading_(reading),
        source_(reading.open(file)),
        pickle_(pickle::read_pickle(source_, path_)) {
    auto entries = pickle::dict_of(pickle_.root());
    if (!entries) pickle_.root().fail(fmt::format("{} is not a dict of tensors", shown(file)));
    entries_ = std::move(*entries);
  }

  [[nodiscard]] const std::vector<std::pair<PickleValue, PickleValue>>& entries() const { return entries_; }

  static std::string key_of(PickleValue key) {
    if (!key.is_text()) key.fail(fmt::format("a key is {}, not the name of a tensor", pickle::name_of(key.kind())));
    return std::string(key.text());
  }

  /// The tensor and, if the value has one, its static name.
  PickledTensor tensor(PickleValue key, PickleValue value, std::string* static_name = nullptr) {
    PickledTensor out;
    out.key = key_of(key);
    const auto array = array_of(out.key, value, static_name);
    out.dtype = array.dtype.value();
    out.shape = array.shape;
    out.size_bytes = array.data_bytes;
    if (array.data_bytes != 0) out.offset_bytes = array.data.offset;
    used_bytes_ = base::add(used_bytes_, array.data_bytes, "bytes of tensors");
    if (used_bytes_ / kMostUses > source_.size_bytes) {
      throw reading_.error(ErrorKind::kFormat, file_,
                           fmt::format("tensor {}: tensors up to this one have more bytes than the file: one array "
                                       "stands for many of them",
                                       in_quotes(out.key)));
    }
    return out;
  }

 private:
  [[nodiscard]] Error wrong(std::string_view tensor, const std::string& what) const {
    return reading_.error(ErrorKind::kFormat, file_, fmt::format("tensor {} {}", in_quotes(tensor), what));
  }

  pickle::PickledArray array_of(std::string_view key, PickleValue value, std::string* static_name) const {
    try {
      PickleValue from = pickle::plain(value);
      if (from.is(PickleKind::kTuple) && from.size() == 2 && from.at(0).is_text()) {
        if (static_name != nullptr) *static_name = from.at(0).text();
        from = from.at(1);
      }
      const auto array = pickle::array_of(from);
      if (!array) {
        from.fail(fmt::format("it is {}{}, not a tensor", pickle::name_of(from.kind()),
                              from.is(PickleKind::kObject) ? " " + base::printable(from.name()) : ""));
      }
      if (const std::string obstacle = pickle::obstacle_of(*array); !obstacle.empty()) {
        from.fail(fmt::format("its elements {}: save it again with a current paddle.save", obstacle));
      }
      return *array;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kFormat) throw;
      throw Error(ErrorKind::kFormat, fmt::format("{} (tensor {})", error.what(), in_quotes(key)));
    }
  }

  const std::string& file_;
  std::string path_;
  Reading& reading_;
  base::ByteSource source_;
  pickle::Pickle pickle_;
  std::vector<std::pair<PickleValue, PickleValue>> entries_;
  std::uint64_t used_bytes_ = 0;
};

void refuse_cut_tensors(PickleValue key) {
  key.fail(
      fmt::format("it has tensors in several pieces ({}), which are not read; save it again with paddle.save's "
                  "protocol 4",
                  kBigTensors));
}

void add_names(PickleValue table, StaticNames& names) {
  const auto entries = pickle::dict_of(table);
  if (!entries) table.fail(fmt::format("{} is not a dict", kNames));
  for (const auto& [name, of_process] : *entries) {
    names[Reader::key_of(of_process)].push_back(Reader::key_of(name));
  }
}

std::vector<PickledTensor> read_masters(PickleValue table, Reader& reader) {
  const auto entries = pickle::dict_of(table);
  if (!entries) table.fail(fmt::format("{} is not a dict", kMasters));
  std::vector<PickledTensor> out;
  for (const auto& [key, value] : *entries) out.push_back(reader.tensor(key, value));
  return out;
}

}  // namespace

PickledWeights read_weights(const std::string& file, Reading& reading) {
  Reader reader(file, reading);
  PickledWeights out;
  StaticNames of_tensors;
  for (const auto& [key, value] : reader.entries()) {
    const std::string name = Reader::key_of(key);
    if (name == kBigTensors) refuse_cut_tensors(key);
    if (name == kNames) {
      add_names(value, out.names);
      continue;
    }
    std::string static_name;
    out.tensors.push_back(reader.tensor(key, value, &static_name));
    if (!static_name.empty()) of_tensors[static_name].push_back(name);
  }
  if (out.names.empty()) out.names = std::move(of_tensors);
  return out;
}

PickledOptimizer read_optimizer(const std::string& file, Reading& reading) {
  Reader reader(file, reading);
  PickledOptimizer out;
  for (const auto& [key, value] : reader.entries()) {
    const std::string name = Reader::key_of(key);
    if (name == kBigTensors) refuse_cut_tensors(key);
    if (name == kSchedule || name == kNames) continue;
    if (name == kMasters) {
      out.masters = read_masters(value, reader);
    } else {
      out.states.push_back(reader.tensor(key, value));
    }
  }
  return out;
}

std::optional<std::pair<std::string_view, std::string_view>> split_state_key(std::string_view key,
                                                                             const StaticNames& names) {
  if (const std::size_t at = key.find(kMasterSuffix); at != std::string_view::npos) {
    const std::string_view name = key.substr(0, at);
    if (names.contains(name)) return std::pair(name, key.substr(at + kMasterSuffix.size()));
  }
  std::size_t at = key.rfind('_');
  for (int tried = 0; tried < kMostWords && at != std::string_view::npos && at != 0;
       ++tried, at = key.rfind('_', at - 1)) {
    if (names.contains(key.substr(0, at))) return std::pair(key.substr(0, at), key.substr(at + 1));
  }
  return std::nullopt;
}

format::SafetensorsHeader header_of(std::vector<PickledTensor> tensors, std::uint64_t file_bytes) {
  std::ranges::sort(tensors, {}, [](const PickledTensor& tensor) {
    return std::tuple(tensor.offset_bytes, tensor.size_bytes, std::string_view(tensor.key));
  });
  auto store = std::make_shared<format::HeaderStore>();
  for (const PickledTensor& tensor : tensors) {
    store->names += tensor.key;
    store->sizes.insert(store->sizes.end(), tensor.shape.begin(), tensor.shape.end());
  }
  format::SafetensorsHeader out;
  std::size_t name_at = 0;
  std::size_t size_at = 0;
  for (const PickledTensor& tensor : tensors) {
    out.tensors.push_back({std::string_view(store->names).substr(name_at, tensor.key.size()), tensor.dtype,
                           std::span(store->sizes).subspan(size_at, tensor.shape.size()), tensor.offset_bytes,
                           tensor.offset_bytes + tensor.size_bytes});
    name_at += tensor.key.size();
    size_at += tensor.shape.size();
  }
  out.file_bytes = file_bytes;
  out.store = std::move(store);
  return out;
}

}  // namespace cairn::interop
