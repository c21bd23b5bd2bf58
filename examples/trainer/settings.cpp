#include "settings.hpp"

#include <charconv>
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

}  // namespace trainer
