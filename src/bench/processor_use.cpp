#include "bench/processor_use.hpp"

#include <array>
#include <fstream>
#include <sstream>
#include <string>

namespace cairn::bench {

ProcessorTicks parse_processor_ticks(std::string_view line) {
  std::istringstream in{std::string(line)};
  std::string name;
  in >> name;
  if (name != "cpu") return {};
  // user nice system idle iowait irq softirq steal; guests are in user already (proc(5)).
  std::array<double, 8> ticks{};
  for (double& value : ticks) in >> value;
  ProcessorTicks out;
  for (const double value : ticks) out.all += value;
  out.busy = out.all - ticks[3] - ticks[4];
  return out;
}

ProcessorTicks processor_ticks() {
  std::ifstream in("/proc/stat");
  std::string line;
  std::getline(in, line);
  return parse_processor_ticks(line);
}

double busy_share(const ProcessorTicks& begin, const ProcessorTicks& end) {
  return end.all > begin.all ? (end.busy - begin.busy) / (end.all - begin.all) : 0;
}

}  // namespace cairn::bench
