// The bytes of a kernel are those that it must read or write once. A kernel's reference is a copy inside device
// memory that moves the same number of bytes: half of them are read, half are written.
#include "kernels.hpp"

#include <cmath>
#include <cstring>
#include <random>

#include "cairn/error.hpp"
#include "quant/boxes.hpp"
#include "quant/codec.hpp"
#include "quant/device_codec.hpp"
#include "quant/device_stage.hpp"
#include "shard/box_math.hpp"

namespace cairn::gpu_bench {
namespace {

constexpr std::uint64_t kColumns = 4096;

void require(bool condition, const std::string& what) {
  if (!condition) throw Error(ErrorKind::kInternal, "GPU benchmark: " + what + " is not what the processor makes");
}

struct Moments {
  std::vector<float> m;
  std::vector<float> v;
};

Moments lognormal(std::uint64_t elements) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  // A tile of random numbers is repeated, because drawing all numbers would take longer than everything else.
  constexpr std::size_t kDrawn = 1 << 20;
  Moments out{std::vector<float>(elements), std::vector<float>(elements)};
  for (std::size_t i = 0; i < elements; ++i) {
    out.v[i] = i < kDrawn ? std::exp(-25.0F + normal(random)) : out.v[i - kDrawn];
    out.m[i] = i < kDrawn ? normal(random) * std::sqrt(out.v[i]) : out.m[i - kDrawn];
  }
  return out;
}

bool same(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

class CodecRun {
 public:
  CodecRun(const quant::Codec& codec, const Options& options)
      : options_(options),
        codec_(quant::device_codec_of(codec)),
        source_{"w", {options.state_bytes / 8 / kColumns / 32 * 32, kColumns}},
        box_(shard::whole(codec.view(source_.shape))),
        elements_(quant::elements_of(source_.shape)),
        on_host_(lognormal(elements_)),
        m_(elements_ * 4),
        v_(elements_ * 4) {
    put(m_, std::as_bytes(std::span(on_host_.m)));
    put(v_, std::as_bytes(std::span(on_host_.v)));
    statistics_ = codec.no_statistics(source_.shape, box_);
    codec.measure(source_, box_, {on_host_.m, on_host_.v}, statistics_);
    expected_ = quant::encode_box(codec, source_, box_, {on_host_.m, on_host_.v}, statistics_);
    for (const auto& bytes : expected_) {
      parts_.emplace_back(bytes.size());
      code_bytes_ += bytes.size();
    }
  }

  std::vector<Row> rows() {
    std::vector<Row> rows;
    if (codec_.codec().traits().cut == quant::Cut::kAnywhere) rows.push_back(measure());
    rows.push_back(encode());
    rows.push_back(stage_out());
    return rows;
  }

 private:
  [[nodiscard]] std::uint64_t moment_bytes() const { return 2 * elements_ * 4; }
  [[nodiscard]] quant::ConstDeviceMoments moments() const {
    return {reinterpret_cast<const float*>(m_.span().data), reinterpret_cast<const float*>(v_.span().data)};
  }
  [[nodiscard]] std::string name(const char* what) const { return codec_.codec().traits().name + " " + what; }

  void put(const gpu::DeviceBuffer& to, std::span<const std::byte> bytes) const {
    stream_.copy(to.span(), bytes);
    stream_.synchronise();
  }
  [[nodiscard]] base::Bytes get(gpu::ConstDeviceSpan from) const {
    base::Bytes bytes(from.size);
    stream_.copy(bytes, from);
    stream_.synchronise();
    return bytes;
  }

  [[nodiscard]] Row beside_copy(Row row) const {
    const std::uint64_t half = row.bytes / 2;
    const gpu::DeviceBuffer from(half);
    const gpu::DeviceBuffer to(half);
    stream_.fill(from.span(), 0x5a);
    stream_.fill(to.span(), 0);
    stream_.synchronise();
    row.reference = "copy in device memory";
    row.reference_bytes = 2 * half;
    row.reference_seconds =
        time_on_stream(stream_, options_.repeats, [&] { stream_.copy(to.span(), gpu::ConstDeviceSpan(from.span())); });
    require(get(to.span()) == base::Bytes(half, std::byte{0x5a}), "a copy");
    return row;
  }

  [[nodiscard]] Row measure() const {
    quant::Statistics found;
    Row row{name("statistics"), "host", moment_bytes(), {}, {}, 0, {}};
    row.seconds = time_on_host(options_.repeats, [&] {
      found = codec_.codec().no_statistics(source_.shape, box_);
      codec_.measure(source_, box_, moments(), found, stream_);
    });
    for (std::size_t i = 0; i < found.arrays.size(); ++i) {
      require(same(found.arrays[i].values, statistics_.arrays[i].values), "a statistic");
    }
    return beside_copy(std::move(row));
  }

  Row encode() {
    std::vector<gpu::DeviceSpan> parts;
    for (const auto& part : parts_) parts.push_back(part.span());
    quant::Verdict verdict;
    Row row{name("encode"), "events", moment_bytes() + code_bytes_, {}, {}, 0, {}};
    row.seconds = time_on_stream(stream_, options_.repeats, [&] {
      codec_.encode(source_, box_, moments(), statistics_, parts, verdict, stream_);
    });
    stream_.synchronise();
    codec_.raise_encode(source_, box_, moments(), verdict, stream_);
    for (std::size_t i = 0; i < parts.size(); ++i) require(get(parts[i]) == expected_[i], "a code");
    return beside_copy(std::move(row));
  }

  /// The reference is staging both moments uncoded, as in a save without a codec.
  Row beside_plain(Row row) const {
    gpu::Pipeline plain({options_.budget_bytes, 2, false});
    row.reference = "staging the moments uncoded";
    row.reference_bytes = moment_bytes();
    row.reference_seconds = time_on_host(options_.repeats, [&] {
      for (const gpu::DeviceBuffer* moment : {&m_, &v_}) {
        gpu::copy_to_host(plain, moment->span(), [](std::uint64_t, std::span<const std::byte>) {});
      }
    });
    return row;
  }

  Row stage_out() {
    gpu::Pipeline pipeline({options_.budget_bytes, 2, true});
    Row row{name("encode and stage"), "host", moment_bytes(), {}, {}, 0, {}};
    std::uint64_t arrived = 0;
    row.seconds = time_on_host(options_.repeats, [&] {
      arrived = 0;
      quant::encode_to_host(pipeline, codec_, source_, box_, moments(), statistics_,
                            [&](const auto& piece) { arrived += piece.bytes.size(); });
    });
    require(arrived >= code_bytes_, "the number of staged bytes");
    bool is_equal = true;
    quant::encode_to_host(pipeline, codec_, source_, box_, moments(), statistics_, [&](const auto& piece) {
      const auto& part = expected_[piece.part];
      const std::uint64_t row_bytes = piece.box.shape.size() == 2 ? piece.bytes.size() / piece.box.shape[0] : 0;
      const std::uint64_t begin = piece.box.shape.size() == 2 ? piece.box.offset[0] * row_bytes : 0;
      is_equal &= std::memcmp(&part[begin], piece.bytes.data(), piece.bytes.size()) == 0;
    });
    require(is_equal, "a staged byte");
    return beside_plain(std::move(row));
  }

  Options options_;
  const quant::DeviceCodec& codec_;
  quant::Source source_;
  Box box_;
  std::uint64_t elements_;
  Moments on_host_;
  gpu::Stream stream_;
  gpu::DeviceBuffer m_;
  gpu::DeviceBuffer v_;
  quant::Statistics statistics_;
  quant::Encoded expected_;
  std::vector<gpu::DeviceBuffer> parts_;
  std::uint64_t code_bytes_ = 0;
};

}  // namespace

std::vector<Row> measure_codec(const quant::Codec& codec, const Options& options) {
  return CodecRun(codec, options).rows();
}

}  // namespace cairn::gpu_bench
