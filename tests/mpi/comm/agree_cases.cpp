#include <gtest/gtest.h>

#include <cerrno>
#include <new>
#include <set>
#include <stdexcept>
#include <string>

#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "comm_cases.hpp"

namespace cairn::test {
namespace {

using comm::Communicator;

/// The error of agree() on this rank: kind, message and details. The error must be the same on all ranks.
struct Outcome {
  bool failed = false;
  ErrorKind kind = ErrorKind::kInternal;
  std::string text;
  ErrorDetails details;
};

Outcome outcome_of_agree(Communicator& communicator, const std::function<void()>& work) {
  Outcome outcome;
  try {
    comm::agree(communicator, "a step", work);
  } catch (const Error& error) {
    outcome = {true, error.kind(), error.what(), error.details()};
  }
  const std::string line = std::to_string(static_cast<int>(outcome.kind)) + (outcome.failed ? "!" : "-") +
                           outcome.text + "|" + std::to_string(outcome.details.system_error) + "|" +
                           outcome.details.path + "|" + std::to_string(outcome.details.rank) + "|" +
                           std::to_string(static_cast<int>(outcome.details.missing));
  const auto mine = base::as_bytes(line);
  const auto lines = communicator.all_gather(mine);
  EXPECT_EQ(lines.size(), static_cast<std::size_t>(communicator.size()));
  for (const base::Bytes& other : lines) EXPECT_EQ(other, base::Bytes(mine.begin(), mine.end()));
  return outcome;
}

std::string ranks_text(const std::string& message, const std::string& ranks, int size) {
  return size == 1 ? message : message + " (" + ranks + ")";
}

void nobody_fails(Communicator& communicator) {
  int runs = 0;
  EXPECT_FALSE(outcome_of_agree(communicator, [&] { ++runs; }).failed);
  EXPECT_EQ(runs, 1);
}

void each_rank_alone(Communicator& communicator) {
  for (int failing = 0; failing < communicator.size(); ++failing) {
    const Outcome outcome = outcome_of_agree(communicator, [&] {
      if (communicator.rank() == failing)
        throw Error(ErrorKind::kIntegrity, "block 7 is broken", {ENOSPC, "/a b/c", 99, Missing::kTensor});
    });
    EXPECT_EQ(outcome.details.missing, Missing::kTensor);
    EXPECT_EQ(outcome.details.system_error, ENOSPC);
    EXPECT_EQ(outcome.details.path, "/a b/c");
    EXPECT_EQ(outcome.details.rank, failing);
    EXPECT_TRUE(outcome.failed);
    EXPECT_EQ(outcome.kind, ErrorKind::kIntegrity);
    EXPECT_EQ(outcome.text, ranks_text("block 7 is broken", "rank " + std::to_string(failing), communicator.size()));
  }
}

void several_ranks(Communicator& communicator) {
  const int ranks = communicator.size();
  // The last `count` ranks fail, each with a different message: the error comes from the lowest failing rank.
  for (int count = 1; count <= ranks; ++count) {
    const int lowest = ranks - count;
    const Outcome outcome = outcome_of_agree(communicator, [&] {
      if (communicator.rank() < lowest) return;
      const ErrorKind kind = communicator.rank() == lowest ? ErrorKind::kNotFound : ErrorKind::kIo;
      throw Error(kind, "failure of " + std::to_string(communicator.rank()));
    });
    std::string names = (count == 1 ? "rank " : "ranks ") + std::to_string(lowest);
    if (count > 1) names += ", " + std::to_string(lowest + 1);
    if (count > 2) names += " and " + std::to_string(count - 2) + " more";
    EXPECT_EQ(outcome.kind, ErrorKind::kNotFound);
    EXPECT_EQ(outcome.details.rank, lowest);
    EXPECT_EQ(outcome.details.path, "");
    EXPECT_EQ(outcome.details.missing, Missing::kUnspecified);
    EXPECT_EQ(outcome.text, ranks_text("failure of " + std::to_string(lowest), names, ranks));
  }
}

void foreign_exceptions(Communicator& communicator) {
  const int last = communicator.size() - 1;
  const std::string rank = "rank " + std::to_string(last);
  const auto text_of = [&](const std::function<void()>& fail) {
    const Outcome outcome = outcome_of_agree(communicator, [&] {
      if (communicator.rank() == last) fail();
    });
    EXPECT_TRUE(outcome.failed);
    EXPECT_EQ(outcome.kind, ErrorKind::kInternal);
    return outcome.text;
  };
  const std::string memory = text_of([] { throw std::bad_alloc(); });
  EXPECT_TRUE(memory.starts_with("a step: out of memory (std::bad_alloc); this process holds ")) << memory;
  EXPECT_TRUE(memory.ends_with(ranks_text("a smaller memory budget (--memory)", rank, communicator.size()))) << memory;
  EXPECT_EQ(text_of([] { throw std::runtime_error("two\nlines"); }),
            ranks_text("a step: two\\x0alines", rank, communicator.size()));
  EXPECT_EQ(text_of([] { throw 42; }), ranks_text("a step: exception of unknown type", rank, communicator.size()));
}

void empty_and_long_texts(Communicator& communicator) {
  for (const std::size_t length : {std::size_t{0}, std::size_t{300}}) {
    const Outcome outcome = outcome_of_agree(communicator, [&] {
      if (communicator.rank() == 0) throw Error(ErrorKind::kUsage, std::string(length, 'e'));
    });
    EXPECT_EQ(outcome.text, ranks_text(std::string(length, 'e'), "rank 0", communicator.size()));
  }
}

void only_the_root_works(Communicator& communicator) {
  for (int root = 0; root < communicator.size(); ++root) {
    int runs = 0;
    comm::agree_on_root(communicator, "a step", root, [&] { ++runs; });
    EXPECT_EQ(runs, communicator.rank() == root ? 1 : 0);
    EXPECT_THROW(comm::agree_on_root(communicator, "a step", root, [] { throw Error(ErrorKind::kIo, "no"); }), Error);
  }
}

void values_that_differ(Communicator& communicator) {
  const auto compare = [&](const std::string& name, const std::string& step) {
    comm::agree_on_values(communicator, "argument", [&](std::vector<comm::NamedValue>& values) {
      values = {{"name", name}, {"step", step}};
    });
  };
  compare("a", "1");
  compare("", "");
  for (int other = 0; other < communicator.size() && communicator.size() > 1; ++other) {
    std::string text;
    try {
      compare("a", communicator.rank() == other ? "2" : "1");
    } catch (const comm::AgreedError& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      EXPECT_EQ(error.rank(), -1) << "the values of two ranks differ";
      text = error.what();
    }
    const std::string values =
        other == 0 ? "'2' on rank 0, '1' on rank 1" : "'1' on rank 0, '2' on rank " + std::to_string(other);
    EXPECT_EQ(text, "argument 'step' differs between the ranks: " + values + "; give all ranks the same");
  }
}

}  // namespace

std::vector<CommCase> agree_cases() {
  return {{"NobodyFails", nobody_fails},
          {"EachRankAlone", each_rank_alone},
          {"SeveralRanks", several_ranks},
          {"ForeignExceptions", foreign_exceptions},
          {"EmptyAndLongTexts", empty_and_long_texts},
          {"OnlyTheRootWorks", only_the_root_works},
          {"ValuesThatDiffer", values_that_differ}};
}

}  // namespace cairn::test
