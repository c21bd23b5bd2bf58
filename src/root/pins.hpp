// Pins of checkpoints: `.cairn/pin-<step>` in a root, an empty file for each pinned step.
//
// One file per pin, made by exclusive creation, needs no lease: a person pins while a run saves, and two persons at a
// time. A pruning that has renamed a checkpoint looks for its pin once more before it goes on (prune.hpp). add_pin()
// looks for the checkpoint after the pin is made; so either the pin holds, or add_pin() says that it came too late.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>

namespace cairn::root {

/// Rank-local. The pinned steps, whether or not there are checkpoints.
std::set<std::uint64_t> read_pins(const std::filesystem::path& root);
bool is_pinned(const std::filesystem::path& root, std::uint64_t step);

/// Rank-local, durable. Throws kNotFound (Missing::kStep) if there is no checkpoint of the step. Pinning a pinned step
/// does nothing.
void add_pin(const std::filesystem::path& root, std::uint64_t step);
/// Rank-local, durable. Throws kNotFound if the step is not pinned.
void remove_pin(const std::filesystem::path& root, std::uint64_t step);

/// Rank-local. Waits for a second while the checkpoint is moved aside, for its replacement or for a look whether it may
/// go. Returns whether it has its name.
bool wait_for_name(const std::filesystem::path& checkpoint);

}  // namespace cairn::root
