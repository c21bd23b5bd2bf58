// The time limit of the job that this process is part of.
#pragma once

#include <optional>
#include <string_view>

namespace cairn::life {

/// Rank-local. When the job of Slurm ends, in seconds since 1970: SLURM_JOB_END_TIME, otherwise, in a job, asked from
/// `scontrol show job`, at most ten seconds long. Nothing without a job or a limit; a warning in the log if a job's
/// limit cannot be found out.
std::optional<double> time_limit_of_job();

/// The end of the job in the output of `scontrol show job`, whose times are local; nothing if there is none.
std::optional<double> end_time_in(std::string_view scontrol);

}  // namespace cairn::life
