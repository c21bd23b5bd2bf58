// A small training that can be stopped at any moment and resumed on any number of ranks: trainer [--OPTION VALUE]...
//
// Data-parallel, with a sharded Adam. Saves after every --every steps, at the end, on SIGUSR1, and on SIGTERM and before
// a job's time limit, which also end the training. README.md has the options, the exit codes and commands to run it.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "checkpoints.hpp"
#include "settings.hpp"

namespace trainer {
namespace {

/// Collective: the sum over all ranks.
double sum(MPI_Comm communicator, Fixed value) {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT64_T, MPI_SUM, communicator);
  return from_fixed(value);
}

/// Collective: the mean loss over kDraws validation samples from each rank.
double validate(MPI_Comm communicator, const Settings& settings, Model& model, std::mt19937_64& random, int ranks) {
  constexpr int kDraws = 32;
  Fixed loss = 0;
  for (int i = 0; i < kDraws; ++i) loss += to_fixed(model.loss(sample(settings.seed, kSamples + random() % kSamples)));
  return sum(communicator, loss) / (kDraws * ranks);
}

int train(MPI_Comm communicator, const Settings& settings, int rank, int ranks) {
  Model model(settings.width);
  ShardedAdam optimizer(communicator, model, settings.seed);
  optimizer.publish(model);
  std::mt19937_64 random(hash(settings.seed + 3, static_cast<std::uint64_t>(rank)));
  const State state{model, optimizer, random};

  Checkpoints checkpoints(communicator, settings.root, run_of(settings), settings.every);
  std::uint64_t step = checkpoints.resume(state);
  const auto say = [&](const char* what, const char* more) {
    if (rank == 0) std::printf("%s step %" PRIu64 "%s\n", what, step, more);
  };
  say(step == 0 ? "starting at" : "resuming at", (" on " + std::to_string(ranks) + " ranks").c_str());

  const auto tell_finished = [&](Checkpoints::Ask ask) {
    const auto saved = checkpoints.finished(ask);
    if (saved && rank == 0) std::printf("saved step %" PRIu64 "\n", *saved);
  };

  // The place in a batch at which the part of rank `r` begins.
  const auto part = [&](int r) { return settings.batch * static_cast<unsigned>(r) / static_cast<unsigned>(ranks); };
  std::vector<Fixed> gradient(model.weights.size());
  while (step < settings.steps) {
    std::fill(gradient.begin(), gradient.end(), 0);
    Fixed loss = 0;
    for (std::uint64_t i = part(rank); i < part(rank + 1); ++i) {
      const std::uint64_t number = sample_at(settings.seed, step * settings.batch + i);
      loss += to_fixed(model.learn(sample(settings.seed, number), gradient));
    }
    optimizer.update(model, gradient, settings.batch, ++step);

    if (step % settings.log == 0 || step == settings.steps) {
      const double trained = sum(communicator, loss) / static_cast<double>(settings.batch);
      const double validated = validate(communicator, settings, model, random, ranks);
      if (rank == 0) std::printf("step %" PRIu64 ": loss %.9f, validation %.9f\n", step, trained, validated);
    }
    const cairn::Due due = checkpoints.due(step);
    const bool is_last = due.stop || step == settings.steps;
    tell_finished(Checkpoints::Ask::kNow);
    if (due.save || is_last) {
      tell_finished(Checkpoints::Ask::kWait);
      checkpoints.save(step, state);
    }
    if (is_last) tell_finished(Checkpoints::Ask::kWait);
    if (due.stop && step < settings.steps) {
      say("stopped at", (" (" + due.why + ")").c_str());
      return kExitStopped;
    }
  }
  const std::uint64_t digest = optimizer.digest(model);
  if (rank == 0) std::printf("complete at step %" PRIu64 ", digest %016" PRIx64 "\n", step, digest);
  return 0;
}

}  // namespace
}  // namespace trainer

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // every line is written at once, even to a pipe
  int thread_level = 0, rank = 0, ranks = 1;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &thread_level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int status = 0;
  try {
    status = trainer::train(MPI_COMM_WORLD, trainer::parse(argc, argv), rank, ranks);
  } catch (const std::invalid_argument& error) {  // the same on all ranks, like cairn::Error
    if (rank == 0) std::fprintf(stderr, "trainer: %s\n", error.what());
    status = 2;
  } catch (const cairn::Error& error) {
    if (rank == 0) std::fprintf(stderr, "trainer: %s\n", error.what());
    status = 1;
  } catch (const std::exception& error) {  // on one rank only, such as lack of memory: the others would wait
    std::fprintf(stderr, "trainer: rank %d: %s\n", rank, error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return status;
}
