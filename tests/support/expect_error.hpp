// Expected errors of calls: one line that names the fault.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "cairn/error.hpp"

namespace cairn::test {

inline void expect_one_line(const std::string& message, std::initializer_list<std::string_view> parts) {
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_LT(message.size(), 2000u) << message;
  for (const std::string_view part : parts) EXPECT_THAT(message, testing::HasSubstr(std::string(part)));
}

/// Fails unless `action` throws an Error of `kind` whose message contains all `parts`.
template <class Action>
void expect_error(ErrorKind kind, Action action, std::initializer_list<std::string_view> parts) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    expect_one_line(error.what(), parts);
    return;
  }
  ADD_FAILURE() << "nothing was thrown; expected a message with '" << (parts.size() == 0 ? "" : *parts.begin()) << "'";
}

/// Fails unless `action` throws an Error of `kind`; returns the message of that Error.
template <class Action>
std::string message_of_error(ErrorKind kind, Action action) {
  std::string message;
  expect_error(kind,
               [&] {
                 try {
                   action();
                 } catch (const Error& error) {
                   message = error.what();
                   throw;
                 }
               },
               {});
  return message;
}

}  // namespace cairn::test
