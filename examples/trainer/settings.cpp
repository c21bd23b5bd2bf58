#include "settings.hpp"

#include <charconv>
#include <csignal>
#include <stdexcept>

#include "data.hpp"

namespace trainer {
namespace {

constexpr std::uint64_t kMost = 1'000'000'000;

struct Option {
  const char* name;
  std::uint64_t least, most;
  std::uint64_t Settings::*member;
};
constexpr Option kOptions[] = {
    {"--steps", 1, kMost, &Settings::steps},    {"--every", 0, kMost, &Settings::every},
    {"--log", 1, kMost, &Settings::log},        {"--width", 1, 4096, &Settings::width},
    {"--batch", 1, kSamples, &Settings::batch}, {"--seed", 0, kMost, &Settings::seed},
};

void set(Settings& settings, const std::string& name, const std::string& value) {
  for (const Option& option : kOptions) {
    if (name != option.name) continue;
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || *end != '\0' || number < option.least || number > option.most) {
      throw std::invalid_argument(name + " is '" + value + "'; it must be a whole number from " +
                                  std::to_string(option.least) + " to " + std::to_string(option.most));
    }
    settings.*option.member = number;
    return;
  }
  throw std::invalid_argument("there is no option " + name + "; README.md has all of them");
}

volatile std::sig_atomic_t save_asked = 0;
volatile std::sig_atomic_t stop_asked = 0;

}  // namespace

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) throw std::invalid_argument(name + " has no value");
    if (name == "--root") {
      settings.root = argv[i + 1];
    } else {
      set(settings, name, argv[i + 1]);
    }
  }
  return settings;
}

std::string run_of(const Settings& settings) {
  return "batch " + std::to_string(settings.batch) + ", width " + std::to_string(settings.width) + ", seed " +
         std::to_string(settings.seed);
}

void catch_signals() {
  struct sigaction action = {};
  action.sa_flags = SA_RESTART;  // does not interrupt reads and writes of a save
  action.sa_handler = [](int) { save_asked = 1; };
  sigaction(SIGUSR1, &action, nullptr);
  action.sa_handler = [](int) { stop_asked = 1; };
  sigaction(SIGTERM, &action, nullptr);
}

Request requested(MPI_Comm communicator) {
  int most = kNothing;
  if (save_asked != 0) {
    save_asked = 0;  // a signal that arrives now requests another save
    most = kSave;
  }
  if (stop_asked != 0) most = kSaveAndStop;
  MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_INT, MPI_MAX, communicator);
  return static_cast<Request>(most);
}

}  // namespace trainer
