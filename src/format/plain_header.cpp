#include "format/plain_header.hpp"

#include <array>
#include <memory>
#include <utility>

#include "format/plain_json.hpp"

namespace cairn::format {

void HeaderText::reserve(std::size_t tensors, std::size_t name_bytes) {
  tensors_.reserve(tensors);
  store_.names.reserve(name_bytes);
  store_.sizes.reserve(2 * tensors);
}

void HeaderText::add(std::string_view name, DType dtype, std::span<const std::uint64_t> shape, Offsets offsets) {
  store_.names += name;
  store_.sizes.insert(store_.sizes.end(), shape.begin(), shape.end());
  tensors_.push_back({name.size(), shape.size(), dtype, offsets});
}

void HeaderText::give_to(SafetensorsHeader& header) && {
  auto store = std::make_shared<const HeaderStore>(std::move(store_));
  const char* name = store->names.data();
  const std::uint64_t* size = store->sizes.data();
  header.tensors.reserve(tensors_.size());
  for (const Tensor& tensor : tensors_) {
    header.tensors.push_back(
        {{name, tensor.name_bytes}, tensor.dtype, {size, tensor.dimensions}, tensor.offsets.begin, tensor.offsets.end});
    name += tensor.name_bytes;
    size += tensor.dimensions;
  }
  header.metadata = std::move(metadata);
  header.store = std::move(store);
}

namespace {

class PlainHeader {
 public:
  explicit PlainHeader(std::string_view json) : json_(json) {
    constexpr std::size_t kTensorBytes = 128;  // average for a tensor; about half of it is the name
    text_.reserve(json.size() / kTensorBytes, json.size() / 2);
  }

  std::optional<HeaderText> read() {
    if (!members([&](std::string_view name) { return name == "__metadata__" ? metadata() : tensor(name); })) {
      return std::nullopt;
    }
    if (!json_.done()) return std::nullopt;
    return std::move(text_);
  }

 private:
  /// Reads an object; `value` reads the value of each key.
  template <class Value>
  bool members(const Value& value) {
    if (!json_.take('{')) return false;
    if (json_.take('}')) return true;
    do {
      std::string_view key;
      if (!json_.string(key) || !json_.take(':') || !value(key)) return false;
    } while (json_.take(','));
    return json_.take('}');
  }

  bool metadata() {
    if (std::exchange(has_metadata_, true)) return false;
    return members([&](std::string_view key) {
      std::string value;
      return json_.escaped_string(value) && text_.metadata.emplace(key, std::move(value)).second;
    });
  }

  bool tensor(std::string_view name) {
    enum : unsigned { kDtype = 1, kShape = 2, kOffsets = 4, kAll = 7 };
    unsigned seen = 0;
    const auto is_new = [&](unsigned field) { return (std::exchange(seen, seen | field) & field) == 0; };
    HeaderText::Offsets offsets;
    const bool is_plain = members([&](std::string_view key) {
      if (key == "dtype") return is_new(kDtype) && dtype();
      if (key == "shape") return is_new(kShape) && shape();
      return key == "data_offsets" && is_new(kOffsets) && json_.take('[') && json_.number(offsets.begin) &&
             json_.take(',') && json_.number(offsets.end) && json_.take(']');
    });
    if (!is_plain || seen != kAll) return false;
    text_.add(name, dtype_, std::span(shape_).first(dimensions_), offsets);
    return true;
  }

  bool dtype() {
    std::string_view name;
    if (!json_.string(name)) return false;
    if (name == dtype_name_ && !name.empty()) return true;  // as in the previous tensor
    const std::optional<DType> found = dtype_from_name(name);
    if (!found) return false;
    dtype_ = *found;
    dtype_name_ = name;
    return true;
  }

  bool shape() {
    dimensions_ = 0;
    if (!json_.take('[')) return false;
    if (json_.take(']')) return true;
    do {
      if (dimensions_ == kMaxRank || !json_.number(shape_[dimensions_++])) return false;
    } while (json_.take(','));
    return json_.take(']');
  }

  PlainJson json_;
  HeaderText text_;
  bool has_metadata_ = false;
  DType dtype_ = DType::kF32;
  std::string_view dtype_name_;
  std::array<std::uint64_t, kMaxRank> shape_{};
  std::size_t dimensions_ = 0;
};

}  // namespace

std::optional<HeaderText> read_plain_header(std::string_view json) { return PlainHeader(json).read(); }

}  // namespace cairn::format
