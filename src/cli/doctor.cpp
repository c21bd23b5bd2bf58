// Runs the checks and prints what they found.
#include "cli/doctor.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "cli/exit_code.hpp"
#include "cli/json_output.hpp"
#include "cli/table.hpp"
#include "comm/agree.hpp"

namespace cairn::cli {
namespace {

constexpr const char* kSharedMemory = "/dev/shm";

std::vector<Check> all_checks(const Context& context, const DoctorOptions& options) {
  std::vector<Check> checks = {check_mpi_io(),
                               check_mpi_io_of_others(options.user_mpi_io),
                               check_semaphores(kSharedMemory),
                               check_launcher(context.communicator.size()),
                               check_io_uring(),
                               check_cuda()};
  if (!options.path.empty()) {
    for (Check& check : check_file_system(options.path)) checks.push_back(std::move(check));
  }
  return checks;
}

void print_text(Output& output, const std::vector<Check>& checks, std::size_t dangers) {
  Table table({{"check"}, {"verdict"}, {"finding"}});
  for (const Check& check : checks) {
    table.add({check.name, name_of(check.level), one_line(check.finding)});
    if (!check.remedy.empty()) table.add({"", "", "-> " + one_line(check.remedy)});
  }
  output.line(table.text());
  output.line(dangers == 0 ? "nothing dangerous found"
                           : fmt::format("dangerous: {} of {} checks", dangers, checks.size()));
}

void print_document(Output& output, const std::vector<Check>& checks, std::size_t dangers) {
  base::Json document = json_document("doctor");
  document["dangerous"] = dangers != 0;
  document["checks"] = base::Json::array();
  for (const Check& check : checks) {
    document["checks"].push_back({{"name", check.name},
                                  {"verdict", name_of(check.level)},
                                  {"finding", check.finding},
                                  {"remedy", check.remedy}});
  }
  print_json(output, document);
}

}  // namespace

const char* name_of(Level level) {
  switch (level) {
    case Level::kGood: return "good";
    case Level::kNote: return "note";
    case Level::kWarning: return "warning";
    case Level::kDanger: return "danger";
  }
  return "unknown";
}

int run_doctor(Context& context, const DoctorOptions& options) {
  std::uint64_t dangers = 0;
  comm::agree_on_root(context.communicator, "doctor", 0, [&] {
    const std::vector<Check> checks = all_checks(context, options);
    dangers = static_cast<std::uint64_t>(
        std::count_if(checks.begin(), checks.end(), [](const Check& check) { return check.level == Level::kDanger; }));
    if (options.json) {
      print_document(context.output, checks, dangers);
    } else {
      print_text(context.output, checks, dangers);
    }
  });
  return context.communicator.max(dangers) == 0 ? kExitGood : kExitFailed;
}

}  // namespace cairn::cli
