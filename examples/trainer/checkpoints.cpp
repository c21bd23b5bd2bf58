#include "checkpoints.hpp"

#include <cairn/state.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <span>
#include <sstream>

namespace trainer {
namespace {

cairn::Options options() {
  cairn::Options options;
  options.waiting.then = cairn::OnSilence::kEndProcess;  // when a rank is lost, the job ends and can be started again
  options.retention.keep_last = 3;
  return options;
}

/// Boxes of elements [begin, end), counted row by row, in a tensor of one or two dimensions: the rest of a first row,
/// whole rows, and the beginning of a last row.
std::vector<cairn::Box> boxes_of_range(const std::vector<std::uint64_t>& shape, std::uint64_t begin,
                                       std::uint64_t end) {
  if (shape.size() == 1) return {{{begin}, {end - begin}}};
  std::vector<cairn::Box> boxes;
  const std::uint64_t columns = shape[1];
  while (begin < end) {
    const std::uint64_t row = begin / columns, column = begin % columns;
    if (column == 0 && end - begin >= columns) {
      const std::uint64_t rows = (end - begin) / columns;
      boxes.push_back({{row, 0}, {rows, columns}});
      begin += rows * columns;
    } else {
      const std::uint64_t part = std::min(columns - column, end - begin);
      boxes.push_back({{row, column}, {1, part}});
      begin += part;
    }
  }
  return boxes;
}

/// This rank's part of the state, for saves and loads. Every rank has all weights, which are written once, and a slice
/// of the master weights and moments in flat memory. A slice can begin and end inside a tensor.
cairn::State describe(const State& state) {
  cairn::State list;
  Model& model = state.model;
  ShardedAdam& optimizer = state.optimizer;
  const std::size_t last = optimizer.first + optimizer.master.size();
  for (const Parameter& p : model.parameters) {
    std::vector<std::uint64_t> origin(p.shape.size(), 0);
    list.add({"model", p.name, cairn::DType::kBF16, p.shape, {{origin, p.shape}}}, &model.weights[p.first]);
    const std::size_t begin = std::max(p.first, optimizer.first), end = std::min(p.first + p.elements, last);
    if (begin >= end) continue;  // the slices of other ranks have all of it
    const auto boxes = boxes_of_range(p.shape, begin - p.first, end - p.first);
    const auto add = [&](const std::string& section, const std::string& name, std::vector<float>& slice) {
      list.add(section, name, p.shape, std::span(slice).subspan(begin - optimizer.first, end - begin)).boxes = boxes;
    };
    add("master_weights", p.name, optimizer.master);
    add("optimizer", p.name + ".exp_avg", optimizer.exp_avg);
    add("optimizer", p.name + ".exp_avg_sq", optimizer.exp_avg_sq);
  }
  return list;
}

std::vector<std::byte> bytes_of(const std::mt19937_64& random) {
  std::ostringstream text;
  text << random;
  const std::string digits = text.str();
  std::vector<std::byte> bytes(digits.size());
  std::memcpy(bytes.data(), digits.data(), digits.size());
  return bytes;
}

cairn::ScheduleOptions schedule_of(std::uint64_t every) {
  cairn::ScheduleOptions options;
  options.every_steps = every;
  return options;
}

}  // namespace

Checkpoints::Checkpoints(MPI_Comm communicator, const std::string& root, std::string run, std::uint64_t every)
    : communicator_(communicator),
      run_(std::move(run)),
      schedule_(communicator, schedule_of(every)),
      checkpointer_(communicator, root, options()) {}

std::uint64_t Checkpoints::resume(const State& state) {
  std::uint64_t newest = 0;
  try {
    // Goes back to an older step if the newest is damaged.
    newest = checkpointer_.load_latest(describe(state).targets()).step;
  } catch (const cairn::Error& error) {
    if (error.missing() != cairn::Missing::kAnyStep) throw;  // such as a tensor that the checkpoint lacks
    return 0;
  }
  const auto extras = checkpointer_.load_extras(newest, cairn::BlobMapping::by_rank());  // on any number of ranks
  const auto run = extras.metadata.find("run");
  if (run == extras.metadata.end() || run->second != run_) {
    throw cairn::Error(cairn::ErrorKind::kUsage, "the checkpoint of step " + std::to_string(newest) +
                                                     " is of a run with '" +
                                                     (run == extras.metadata.end() ? "" : run->second) + "', not '" +
                                                     run_ + "': give the options of that run, or another --root");
  }
  const std::uint64_t step = std::stoull(extras.metadata.at("step"));
  if (extras.rank_blob.empty()) {  // an additional rank: numbers that no other rank draws
    state.random.seed(hash(state.random(), step));
  } else {
    const auto* digits = reinterpret_cast<const char*>(extras.rank_blob.data());
    std::istringstream(std::string(digits, extras.rank_blob.size())) >> state.random;
  }
  return step;
}

void Checkpoints::save(std::uint64_t step, const State& state) {
  cairn::Extras extras;
  extras.metadata = {{"step", std::to_string(step)}, {"run", run_}};
  extras.rank_blob = bytes_of(state.random);
  finished(Ask::kWait);
  ticket_ = checkpointer_.save_async(step, describe(state).sources(), extras);
}

std::optional<std::uint64_t> Checkpoints::finished(Ask ask) {
  if (!ticket_) return std::nullopt;
  int is_over = ask == Ask::kWait || ticket_->test() ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &is_over, 1, MPI_INT, MPI_MIN, communicator_);
  if (is_over == 0) return std::nullopt;
  cairn::SaveTicket ticket = std::move(*ticket_);
  ticket_.reset();
  schedule_.saved(ticket.wait());
  return ticket.step();
}

}  // namespace trainer
