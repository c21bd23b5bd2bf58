// Shows nearly every call of the interface, on any number of ranks: tour [ROOT]. Exit code 0 when all checks hold.
//
// The state is a grid of 96 x 64 doubles, divided among the ranks by rows, and a bias that is equal on all ranks. Each
// part of the grid has a frame of ghost cells.
#include <cairn/checkpoint.hpp>
#include <cairn/log.hpp>
#include <cairn/staging.hpp>
#include <cairn/state.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr std::uint64_t kRows = 96;
constexpr std::uint64_t kColumns = 64;
constexpr double kGhost = -1;

/// This rank's rows of the grid, framed by ghost cells.
struct Part {
  Part(int rank, int ranks)
      : first(kRows * static_cast<std::uint64_t>(rank) / static_cast<std::uint64_t>(ranks)),
        rows(kRows * static_cast<std::uint64_t>(rank + 1) / static_cast<std::uint64_t>(ranks) - first),
        cells((rows + 2) * (kColumns + 2), kGhost) {}

  double& at(std::uint64_t row, std::uint64_t column) { return cells[(row + 1) * (kColumns + 2) + column + 1]; }
  void fill() {
    for (std::uint64_t r = 0; r < rows; ++r) {
      for (std::uint64_t c = 0; c < kColumns; ++c) at(r, c) = static_cast<double>((first + r) * kColumns + c);
    }
  }
  /// Describes this rank's box of the grid, and its place in `cells`: where it begins, and the length of a row.
  void add_to(cairn::State& state) {
    state.add("model", "grid", {kRows, kColumns}, {{first, 0}, {rows, kColumns}}, cells).placements = {
        {kColumns + 3, {kColumns + 2, 1}}};
  }

  std::uint64_t first;
  std::uint64_t rows;
  std::vector<double> cells;
};

/// Two fields whose sizes change with the step. Every rank has some rows of each.
struct Particles {
  std::vector<double> positions;     ///< three numbers a particle
  std::vector<std::uint32_t> bonds;  ///< two particles a bond

  /// Makes room for this rank's rows of fields with so many rows, and describes them.
  cairn::State allocate(std::uint64_t particles, std::uint64_t all_bonds, int rank, int ranks) {
    cairn::State state;
    const auto add = [&](const char* name, std::uint64_t rows, std::uint64_t columns, auto& memory) {
      const std::uint64_t first = rows * static_cast<std::uint64_t>(rank) / static_cast<std::uint64_t>(ranks);
      const std::uint64_t end = rows * static_cast<std::uint64_t>(rank + 1) / static_cast<std::uint64_t>(ranks);
      memory.resize((end - first) * columns);
      state.add("particles", name, {rows, columns}, {{first, 0}, {end - first, columns}}, memory);
    };
    add("position", particles, 3, positions);
    add("bond", all_bonds, 2, bonds);
    return state;
  }
  friend bool operator==(const Particles&, const Particles&) = default;
};

std::uint64_t rows_of(std::string_view name, std::span<const cairn::TensorInfo> stored) {
  const auto tensor = std::ranges::find(stored, name, &cairn::TensorInfo::name);
  return tensor == stored.end() ? 0 : tensor->shape.at(0);  // without the tensor, load() names it in its error
}

bool all_hold = true;

/// Collective: prints whether `what` holds on all ranks.
void check(bool holds, const char* what) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Allreduce(MPI_IN_PLACE, &holds, 1, MPI_CXX_BOOL, MPI_LAND, MPI_COMM_WORLD);
  if (rank == 0) std::printf("%-3s %s\n", holds ? "ok" : "NO", what);
  all_hold = all_hold && holds;
}

void tour(const std::string& root, int rank, int ranks) {
  cairn::set_log_sink([](cairn::LogLevel, std::string_view line) {  // to the program's own log
    std::fprintf(stderr, "tour: %.*s\n", static_cast<int>(line.size()), line.data());
  });
  std::uint64_t bytes_written = 0;
  cairn::Options options;
  options.overwrite = true;
  options.limits.memory_budget_bytes = 64 << 20;
  options.files.mode = 0660;  // readable and writable for the group
  options.progress = [&](const cairn::Progress& progress) {
    if (progress.phase == "writing") bytes_written = progress.bytes_done;
  };
  std::atomic<std::uint64_t> ended = 0;  // the callback is called on a thread of Cairn
  options.async.on_done = [&](const cairn::SaveEnd& end) { ended = end.step; };

  Part part(rank, ranks);
  part.fill();
  std::vector<float> bias = {1, 2, 3};
  cairn::State described;
  part.add_to(described);
  described.add("model", "bias", {3}, bias);  // the whole tensor: all ranks have it
  const std::vector<cairn::Source> state = described.sources();

  cairn::Checkpointer checkpointer(MPI_COMM_WORLD, root, options);
  cairn::Extras extras;
  extras.metadata = {{"learning_rate", "0.1"}};
  extras.carry_texts = {{"config.json", "{}"}};
  extras.rank_blob.assign(static_cast<std::size_t>(rank) + 1, std::byte{7});  // a different size on each rank
  checkpointer.save(100, state, extras);
  check(bytes_written > 0, "save, and its progress");
  extras.rank_blob.assign(1000, std::byte{8});
  check(checkpointer.save(200, state, extras).plan_reused, "save again by the plan of the first, with larger blobs");
  check(checkpointer.latest() == 200U, "latest");

  checkpointer.prepare_async(state);
  std::vector<float> changing = bias;
  std::vector<cairn::Source> changing_state = state;
  changing_state[1].data = changing.data();
  cairn::SaveTicket ticket = checkpointer.save_async(300, changing_state, extras);
  changing = {9, 9, 9};  // the program continues
  const auto stall = ticket.wait().stall;
  check(ticket.test() && stall && stall->copy_seconds <= stall->seconds, "save behind the program");
  check(ended == 300U, "a callback when such a save has ended");
  ticket = checkpointer.save_async(400, state);
  const bool is_saved = !ticket.cancel();  // cancel() may come too late
  check((checkpointer.latest() == 400U) == is_saved, "cancel");

  const auto steps = checkpointer.steps();
  check(steps.size() == (is_saved ? 4 : 3) && std::ranges::all_of(steps, &cairn::StepInfo::complete), "steps");
  const auto tensors = checkpointer.tensors(200, {.sections = {"model"}, .names = {"b*"}});
  check(tensors.size() == 1 && tensors[0].name == "bias", "tensors, by a pattern");

  Part loaded(rank, ranks);
  std::vector<double> wide(3), absent(3);
  cairn::State to_load;
  loaded.add_to(to_load);
  to_load.add("model", "bias", {3}, wide);
  to_load.add("model", "new_bias", {3}, absent).optional = true;
  const std::vector<cairn::Target>& targets = to_load.targets();
  cairn::LoadOptions how;
  how.cast_floats = true;
  how.list_not_loaded = true;
  const cairn::Report report = checkpointer.load(200, targets, how);
  check(loaded.cells == part.cells, "load into memory with ghost cells, which stay as they are");
  check(std::ranges::equal(wide, bias), "load F32 into F64");
  check(report.missing.size() == 1 && report.missing[0].name == "new_bias", "an optional target that is not stored");
  check(report.not_loaded.empty(), "nothing is stored that was not loaded");
  how.select.names = {"grid"};
  const auto only_grid = checkpointer.load(200, targets, how);
  check(only_grid.missing.empty() && (rank != 0 || only_grid.not_loaded.empty()), "load what a pattern selects");

  const cairn::Report resumed = checkpointer.load_latest(targets, how);
  check(checkpointer.latest() == resumed.step && resumed.skipped.empty(),
        "load_latest, of a root in which nothing is damaged");

  {  // fields whose sizes change with the step: memory is allocated for the step that is loaded
    cairn::Checkpointer growing(MPI_COMM_WORLD, root + "/growing", options);
    Particles particles;
    for (const std::uint64_t step : {1, 2}) {
      const cairn::State fields = particles.allocate(10 * step, 7 * step * step, rank, ranks);
      std::ranges::fill(particles.positions, static_cast<double>(step));
      std::ranges::fill(particles.bonds, static_cast<std::uint32_t>(step));
      growing.save(step, fields.sources());
    }
    Particles resumed_particles;  // the newest step that is whole: the function is called for each step that is tried
    const auto newest = growing.load_latest([&](std::uint64_t, std::span<const cairn::TensorInfo> stored) {
      return resumed_particles.allocate(rows_of("position", stored), rows_of("bond", stored), rank, ranks).targets();
    });
    check(newest.step == 2 && resumed_particles == particles, "load_latest, with targets that are made for the step");

    Particles chosen;  // a step that the program names
    const std::uint64_t step = growing.latest().value();
    const auto stored = growing.tensors(step, {.sections = {"particles"}, .names = {}});
    const cairn::State fields = chosen.allocate(rows_of("position", stored), rows_of("bond", stored), rank, ranks);
    growing.load(step, fields.targets());
    check(chosen == particles, "latest, tensors, memory for them, load");
  }

  const auto with_it = checkpointer.load_extras(200);
  check(with_it.metadata.at("learning_rate") == "0.1" && with_it.rank_blob.size() == 1000, "load_extras");
  check(checkpointer.load_rank_blob(100, with_it.rank_blobs - 1).size() == with_it.rank_blobs, "load_rank_blob");
  const auto all_blobs = checkpointer.load_extras(200, cairn::BlobMapping::all_to_rank_0()).blobs;
  check(all_blobs.size() == (rank == 0 ? static_cast<std::size_t>(ranks) : 0), "the blobs of all ranks on one");
  std::string config;
  checkpointer.load_carried(200, "config.json", [&](std::span<const std::byte> piece) {
    config.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  });
  check(config == "{}", "load_carried");

  try {
    checkpointer.load(500, targets);
    check(false, "an error");
  } catch (const cairn::Error& error) {  // the same on all ranks
    check(error.missing() == cairn::Missing::kStep, "an error, which says what is missing");
  }
  checkpointer.release_memory();
  check(!checkpointer.save(200, state).plan_reused, "release_memory");

  options.files.form = "paddlenlp";  // for PaddleNLP's trainer; the tensors must have PaddleNLP's names
  {
    cairn::State norm;
    norm.add("model", "llama.norm.weight", {3}, bias);
    for (const char* name : {"moment1_0", "moment2_0", "beta1_pow_acc_0", "beta2_pow_acc_0"}) {
      norm.add("optimizer", std::string("llama.norm.weight/") + name, {3}, bias);
    }
    extras.metadata["scheduler"] = R"({"last_epoch": 100, "last_lr": 0.1})";
    cairn::Checkpointer handing_over(MPI_COMM_WORLD, root + "/paddlenlp", options);
    handing_over.save(100, norm.sources(), extras);
    check(handing_over.load_extras(100).carried.contains("scheduler.pdparams"), "save in another system's form");
  }
  options.files.form.clear();

  try {
    const std::string file = root + "/state.h5";
    cairn::stage(MPI_COMM_WORLD, file, state, options);
    Part staged(rank, ranks);
    cairn::State grid;
    staged.add_to(grid);
    cairn::load_from(MPI_COMM_WORLD, file, grid.targets());
    check(staged.cells == part.cells, "stage and load_from");
  } catch (const cairn::Error& error) {
    if (error.kind() != cairn::ErrorKind::kUsage) throw;
    if (rank == 0) std::printf("--  %s\n", error.what());  // this build has no HDF5
  }
  cairn::set_log_sink({});
}

}  // namespace

int main(int argc, char** argv) {
  int thread_level = 0, rank = 0, ranks = 1;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &thread_level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  try {
    tour(argc > 1 ? argv[1] : "tour-run", rank, ranks);
  } catch (const cairn::Error& error) {
    if (rank == 0) std::fprintf(stderr, "%s\n", error.what());
    all_hold = false;
  }
  MPI_Finalize();
  return all_hold ? 0 : 1;
}
