#include "checkpoint/check_options.hpp"

#include <fmt/core.h>

#include <cmath>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "codes/elided.hpp"
#include "interop/form.hpp"
#include "io/engine.hpp"
#include "os/process.hpp"
#include "planning/save_limits.hpp"
#include "quant/codec.hpp"
#include "shard/name_pattern.hpp"

namespace cairn::checkpoint {
namespace {

void check_quantisation(const Quantisation& options) {
  for (const auto& [section, codec] : options.codecs) {
    if (codec != "off") (void)quant::find_codec(codec);
  }
  codes::check_elided(options);
  if (std::isfinite(options.max_update_error) && options.max_update_error >= 0) return;
  throw Error(ErrorKind::kUsage,
              fmt::format("Options::quantisation.max_update_error is {}; give a positive number, or 0 for no limit",
                          options.max_update_error));
}

}  // namespace

void check_options(const Options& options) {
  if (options.engine.name != "auto") io::check_engine_name(options.engine.name);
  planning::check_file_options(options.files);
  planning::check_run_id(options.run_id);
  check_quantisation(options.quantisation);
  interop::form_of_save(options.files.form).check_options(options.quantisation, 0);
  for (const Selection& selection : options.frozen) const shard::Selector selector(selection);
  if (!options.async.cores.empty()) (void)os::cores_of(options.async.cores);
}

}  // namespace cairn::checkpoint
