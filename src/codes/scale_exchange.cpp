#include "codes/scale_exchange.hpp"

#include <cstring>
#include <map>

#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "comm/mail.hpp"
#include "planning/claim_steps.hpp"
#include "quant/boxes.hpp"
#include "quant/statistics.hpp"
#include "shard/box_math.hpp"

namespace cairn::checkpoint {
namespace {

/// A tensor at its home.
struct HomeTensor {
  CodedTensor tensor;
  quant::Statistics statistics;  ///< of the whole
};

void put_values(comm::MailWriter& out, const quant::Statistics& statistics) {
  for (const auto& array : statistics.arrays) out.raw(array.values.data(), array.values.size() * sizeof(float));
}

void get_values(comm::MailReader& in, quant::Statistics& statistics) {
  for (auto& array : statistics.arrays) {
    const auto bytes = in.raw(array.values.size() * sizeof(float));
    std::memcpy(array.values.data(), bytes.data(), bytes.size());
  }
}

/// Statistics of a box that a message begins to describe.
quant::Statistics get_statistics(comm::MailReader& in, const CodedTensor& tensor) {
  Box box;
  box.offset = in.u64s();
  box.shape = in.u64s();
  quant::Statistics statistics = tensor.codec->no_statistics(tensor.source.shape, box);
  get_values(in, statistics);
  return statistics;
}

/// Takes what all ranks found; gives each of them back what its pieces need, in the order in which they came.
comm::Mail bring_together(const CodingPlan& plan, const comm::Mail& found, std::map<std::uint32_t, HomeTensor>& home) {
  std::vector<std::vector<std::pair<std::uint32_t, quant::Statistics>>> asked(found.size());
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    comm::MailReader in(found[rank]);
    while (!in.done()) {
      const auto number = static_cast<std::uint32_t>(in.u64());
      auto at = home.find(number);
      if (at == home.end()) {
        CodedTensor tensor = plan.tensor(number);
        const Box whole = shard::whole(tensor.source.shape);
        quant::Statistics none = tensor.codec->no_statistics(tensor.source.shape, whole);
        at = home.emplace(number, HomeTensor{std::move(tensor), std::move(none)}).first;
      }
      asked[rank].emplace_back(number, get_statistics(in, at->second.tensor));
      quant::merge(at->second.statistics, asked[rank].back().second);
    }
  }
  comm::MailWriter answers(found.size());
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    for (auto& [number, statistics] : asked[rank]) {
      quant::merge(statistics, home.at(number).statistics);  // reductions: taking values twice changes nothing
      put_values(answers, statistics);
      answers.close(rank);
    }
  }
  return answers.take();
}

void add_scales(std::uint32_t number, const HomeTensor& home, std::vector<CodedPiece>& out) {
  const CodedTensor& tensor = home.tensor;
  const Box whole = shard::whole(tensor.source.shape);
  std::vector<base::Bytes> bytes(tensor.parts.size());
  std::vector<std::span<std::byte>> spans;
  std::vector<Box> boxes;
  for (std::size_t p = 0; p < tensor.parts.size(); ++p) {
    boxes.push_back(tensor.codec->part_box(tensor.source.shape, p, whole));
    if (tensor.parts[p].role == quant::Role::kScales) bytes[p].resize(quant::bytes_of(tensor.parts[p], boxes[p]));
    spans.emplace_back(bytes[p]);
  }
  tensor.codec->store_scales(tensor.source, whole, home.statistics, spans);
  for (std::size_t p = 0; p < tensor.parts.size(); ++p) {
    if (tensor.parts[p].role == quant::Role::kScales) out.push_back({number, p, {boxes[p]}, std::move(bytes[p])});
  }
}

}  // namespace

std::vector<CodedPiece> exchange_scales(comm::Communicator& communicator, const CodingPlan& plan,
                                        std::span<MeasuredPiece> pieces) {
  const int ranks = communicator.size();
  comm::Mail mail;
  comm::agree(communicator, "send what was measured", [&] {
    comm::MailWriter out(static_cast<std::size_t>(ranks));
    for (const MeasuredPiece& piece : pieces) {
      out.u64(piece.tensor);
      out.u64s(piece.box.offset);
      out.u64s(piece.box.shape);
      put_values(out, piece.statistics);
      out.close(static_cast<std::size_t>(home_of(piece.tensor, ranks)));
    }
    mail = out.take();
  });
  mail = communicator.all_to_all(std::move(mail));
  std::map<std::uint32_t, HomeTensor> home;
  comm::agree(communicator, "bring the scales together", [&] { mail = bring_together(plan, mail, home); });
  mail = communicator.all_to_all(std::move(mail));
  std::vector<CodedPiece> scales;
  comm::agree(communicator, "collect the scales", [&] {
    std::vector<comm::MailReader> from(mail.begin(), mail.end());
    for (MeasuredPiece& piece : pieces) {
      get_values(from.at(static_cast<std::size_t>(home_of(piece.tensor, ranks))), piece.statistics);
    }
    for (const auto& [number, tensor] : home) add_scales(number, tensor, scales);
  });
  return scales;
}

}  // namespace cairn::checkpoint
