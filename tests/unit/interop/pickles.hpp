// Pickles of protocol 4 for tests, piece by piece: each function returns the code that pushes a value.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cairn::interop::test::pickle {

using Entries = std::vector<std::pair<std::string, std::string>>;  ///< keys as plain strings, values as pickle code

std::string text(const std::string& value);
std::string integer(std::uint32_t value);
std::string list(const std::vector<std::string>& values);
std::string tuple(const std::vector<std::string>& values);
std::string dict(const Entries& entries);
/// An object of class `module`.`name` with this state.
std::string object(const std::string& module, const std::string& name, const std::string& state);

/// A numpy array; `type` is numpy's name, such as "u2" or ">f4".
std::string array(const std::string& type, const std::vector<std::uint64_t>& shape, const std::string& bytes);
/// An array whose bytes count up from `first`, or, with `step` 0, are all equal.
std::string counting(const std::string& type, const std::vector<std::uint64_t>& shape, unsigned first,
                     unsigned step = 1);
/// A tensor as paddle.save pickles it.
std::string tensor(const std::string& name, const std::string& array);

/// A complete pickle file that holds one value.
std::string file(const std::string& value);

}  // namespace cairn::interop::test::pickle
