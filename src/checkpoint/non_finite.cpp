#include "checkpoint/non_finite.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "comm/messages.hpp"

namespace cairn::checkpoint {
namespace {

constexpr std::size_t kNamed = 8;

}  // namespace

std::vector<FloatsInFile> floats_in_files(const plan::HfLayout& files, const plan::FileLayout& layout,
                                          std::span<const std::uint32_t> wanted) {
  std::vector<FloatsInFile> floats;
  for (const std::uint32_t file : wanted) {
    const std::span<const std::uint32_t> tensors = files.tensors_of(file);
    const format::StoredCheckpoint places = files.places_of(layout, tensors);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const plan::CatalogTensor tensor = files.catalog().at(tensors[i]);  // the header may name a different dtype
      if (!quant::can_be_nan(tensor.dtype)) continue;
      const std::uint64_t begin = places.tensors[i].boxes.at(0).offset_bytes;
      const std::uint64_t bytes = format::tensor_bytes(tensor.dtype, tensor.shape, tensor.name);
      if (bytes != 0) floats.push_back({file, tensors[i], begin, begin + bytes, tensor.dtype});
    }
  }
  std::ranges::sort(floats, [](const FloatsInFile& a, const FloatsInFile& b) {
    return std::pair(a.file, a.begin) < std::pair(b.file, b.begin);
  });
  return floats;
}

void NonFiniteCounter::add(std::uint32_t file, std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
  const std::uint64_t end = offset + bytes.size();
  const auto ends_before = [](const FloatsInFile& tensor, const std::pair<std::uint32_t, std::uint64_t>& place) {
    return std::pair(tensor.file, tensor.end) <= place;
  };
  auto at = std::lower_bound(floats_.begin(), floats_.end(), std::pair(file, offset), ends_before);
  for (; at != floats_.end() && at->file == file && at->begin < end; ++at) {
    const std::uint64_t from = std::max(at->begin, offset);
    const std::uint64_t to = std::min(at->end, end);
    try {
      add_to(static_cast<std::size_t>(at - floats_.begin()), from - at->begin, bytes.subspan(from - offset, to - from));
    } catch (...) {
      has_failed_ = true;
    }
  }
}

void NonFiniteCounter::check() const {
  if (has_failed_) throw Error(ErrorKind::kInternal, "count values that are not finite: out of memory");
}

/// `begin`: offset of the bytes in the tensor.
void NonFiniteCounter::add_to(std::size_t tensor, std::uint64_t begin, std::span<const std::byte> bytes) {
  const FloatsInFile& floats = floats_[tensor];
  const std::uint64_t width = quant::value_bytes(floats.dtype);
  const std::uint64_t head = std::min<std::uint64_t>((width - begin % width) % width, bytes.size());
  add_part(floats, begin, bytes.first(head));
  begin += head;
  bytes = bytes.subspan(head);
  const std::uint64_t whole = bytes.size() / width * width;
  counts_[tensor] += quant::count_non_finite(floats.dtype, bytes.first(whole));
  add_part(floats, begin + whole, bytes.subspan(whole));
}

void NonFiniteCounter::add_part(const FloatsInFile& tensor, std::uint64_t begin, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const std::uint64_t width = quant::value_bytes(tensor.dtype);
  Part& part = parts_[{tensor.tensor, begin / width}];
  part.dtype = tensor.dtype;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    part.bytes[begin % width + i] = bytes[i];
    part.has |= 1ULL << (begin % width + i);
  }
}

void NonFiniteCounter::merge(const Parts& parts, Parts& into, std::map<std::uint64_t, quant::NonFiniteCount>& counts) {
  for (const auto& [key, part] : parts) {
    Part& all = into[key];
    all.dtype = part.dtype;
    for (std::size_t i = 0; i < part.bytes.size(); ++i) all.bytes[i] |= part.bytes[i];
    all.has |= part.has;
    const std::uint64_t width = quant::value_bytes(part.dtype);
    if (all.has != (1ULL << width) - 1) continue;
    counts[key.first] += quant::count_non_finite(part.dtype, std::span(all.bytes).first(width));
    into.erase(key);
  }
}

namespace {

/// Messages to the home of each tensor: its counts, and parts of values.
comm::Messages counts_to_homes(const NonFiniteCounter& counter, int ranks) {
  comm::MessageWriter out(static_cast<std::size_t>(ranks));
  const auto home = [&](std::uint64_t tensor) { return tensor % static_cast<std::uint64_t>(ranks); };
  for (std::size_t i = 0; i < counter.counts().size(); ++i) {
    const quant::NonFiniteCount& count = counter.counts()[i];
    if (!count.any()) continue;
    const std::uint64_t tensor = counter.floats()[i].tensor;
    const std::uint64_t record[] = {tensor, 0, count.nans, count.infinities};
    out.raw(record, sizeof record);
    out.close(home(tensor));
  }
  for (const auto& [key, part] : counter.parts()) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, part.bytes.data(), sizeof bytes);
    const std::uint64_t record[] = {key.first, part.has << 8 | static_cast<std::uint64_t>(part.dtype), key.second,
                                    bytes};
    out.raw(record, sizeof record);
    out.close(home(key.first));
  }
  return out.take();
}

/// At a home: the counts of its tensors, without zeros.
std::map<std::uint64_t, quant::NonFiniteCount> counts_of_home(const comm::Messages& messages) {
  std::map<std::uint64_t, quant::NonFiniteCount> counts;
  NonFiniteCounter::Parts parts;
  for (const base::Bytes& message : messages) {
    for (comm::MessageReader in(message); !in.done();) {
      const std::uint64_t tensor = in.u64();
      const std::uint64_t part_of = in.u64();
      const std::uint64_t first = in.u64();
      const std::uint64_t second = in.u64();
      if (part_of == 0) {
        counts[tensor] += {first, second};
        continue;
      }
      NonFiniteCounter::Part part{{}, part_of >> 8, static_cast<DType>(part_of & 0xff)};
      std::memcpy(part.bytes.data(), &second, sizeof second);
      NonFiniteCounter::merge({{{tensor, first}, part}}, parts, counts);
    }
  }
  std::erase_if(counts, [](const auto& item) { return !item.second.any(); });
  return counts;
}

/// At a home: its first tensors with values that are not finite, at most kNamed.
base::Bytes first_of_home(const std::map<std::uint64_t, quant::NonFiniteCount>& counts) {
  base::ByteWriter out;
  std::size_t named = 0;
  for (const auto& [tensor, count] : counts) {
    if (named++ == kNamed) break;
    out.u64(tensor);
    out.u64(count.nans);
    out.u64(count.infinities);
  }
  return out.take();
}

/// On rank 0: the first kNamed tensors of all homes, with names.
base::Bytes name_first(const comm::Messages& of_homes, const plan::PackedCatalog& catalog) {
  std::map<std::uint64_t, quant::NonFiniteCount> first;
  for (const base::Bytes& message : of_homes) {
    for (comm::MessageReader in(message); !in.done();) {
      quant::NonFiniteCount& count = first[in.u64()];
      count.nans = in.u64();
      count.infinities = in.u64();
    }
  }
  base::ByteWriter out;
  std::size_t named = 0;
  for (const auto& [tensor, count] : first) {
    if (named++ == kNamed) break;
    const plan::CatalogTensor what = catalog.at(static_cast<std::uint32_t>(tensor));
    out.text(what.section);
    out.text(what.name);
    out.u64(count.nans);
    out.u64(count.infinities);
  }
  return out.take();
}

}  // namespace

NonFiniteValues collect_non_finite(comm::Communicator& communicator, const NonFiniteCounter& counter,
                                   const plan::PackedCatalog& catalog) {
  std::uint64_t found = 0;
  comm::agree(communicator, "count values that are not finite", [&] {
    counter.check();
    const bool any = std::ranges::any_of(counter.counts(), [](const quant::NonFiniteCount& c) { return c.any(); });
    found = any || !counter.parts().empty() ? 1 : 0;
  });
  NonFiniteValues values;
  if (communicator.max(found) == 0) return values;
  comm::Messages messages;
  comm::agree(communicator, "name values that are not finite",
              [&] { messages = counts_to_homes(counter, communicator.size()); });
  messages = communicator.all_to_all(std::move(messages));
  std::array<std::uint64_t, 3> sums = {};
  base::Bytes first;
  comm::agree(communicator, "name values that are not finite", [&] {
    const auto counts = counts_of_home(messages);
    for (const auto& [tensor, count] : counts) {
      sums[0] += count.nans;
      sums[1] += count.infinities;
    }
    sums[2] = counts.size();
    first = first_of_home(counts);
  });
  communicator.all_reduce(std::span<std::uint64_t>(sums), comm::ReduceOp::kSum);
  messages = communicator.gather(first, 0);
  comm::agree_on_root(communicator, "name values that are not finite", 0,
                      [&] { first = name_first(messages, catalog); });
  communicator.share(first, 0);
  comm::agree(communicator, "name values that are not finite", [&] {
    values = {sums[0], sums[1], sums[2], {}};
    for (base::ByteReader in(first); !in.done();) {
      NonFiniteTensor& tensor = values.first.emplace_back();
      tensor.section = in.text();
      tensor.name = in.text();
      tensor.nans = in.u64();
      tensor.infinities = in.u64();
    }
  });
  return values;
}

std::string words_of(const NonFiniteValues& values) {
  std::vector<std::string> tensors;
  for (const NonFiniteTensor& tensor : values.first) {
    std::string counts;
    if (tensor.nans != 0) counts = base::group_digits(tensor.nans) + " NaN";
    if (tensor.infinities != 0) {
      counts += (counts.empty() ? "" : " and ") + base::group_digits(tensor.infinities) + " infinite";
    }
    tensors.push_back(
        fmt::format("'{}' (section {}) {}", base::printable(tensor.name), base::printable(tensor.section), counts));
  }
  const std::uint64_t more = values.tensors - values.first.size();
  return fmt::format("{} not finite: {}{}", base::counted(values.nans + values.infinities, "value is", "values are"),
                     base::joined(tensors), more == 0 ? "" : " and " + base::counted(more, "more tensor"));
}

}  // namespace cairn::checkpoint
