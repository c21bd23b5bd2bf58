// Makes all ranks leave a collective step in the same way.
//
// Rank-local work inside a collective step runs in agree(): if the work throws on some ranks, the same Error is thrown
// on all. agree_on_values() compares values that must be the same on all ranks.
#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "cairn/error.hpp"
#include "comm/communicator.hpp"

namespace cairn::comm {

/// An Error that all ranks of a communicator throw at the same place, so a handler can make collective calls.
class AgreedError : public Error {
 public:
  using Error::Error;
};

/// A non-owning reference to a callable, valid during the call to which it is passed. Unlike a std::function it never
/// allocates: the ranks could not agree on a failed allocation before agree() begins.
class Work {
 public:
  template <class F>
  requires(!std::same_as<std::remove_cvref_t<F>, Work>) Work(F&& work)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(work)))),
        call_([](void* object) { static_cast<void>((*static_cast<std::remove_reference_t<F>*>(object))()); }) {}

  void operator()() const { call_(object_); }

 private:
  void* object_;
  void (*call_)(void* object);
};

/// Collective. Runs `work` on this rank. If `work` threw on any rank, throws an AgreedError on all ranks, with the
/// kind, message and details of the lowest failing rank. In a group of several ranks, the message ends in "(rank 3)",
/// "(ranks 3, 5 and 2 more)" or, with several hosts, "(rank 3 on node07)". The message begins with `step` if `work`
/// threw anything but an Error. `work` must not communicate on `communicator`.
void agree(Communicator& communicator, std::string_view step, Work work);

/// Collective. As agree(), with work on `root` only; the caller distributes the result of the work.
void agree_on_root(Communicator& communicator, std::string_view step, int root, Work work);

/// A value of this rank, as a string.
struct NamedValue {
  std::string name;
  std::string value;
};

namespace internal {
void agree_on_values(Communicator& communicator, std::string_view what, std::vector<NamedValue>& values, Work put);
}

/// Collective. Throws AgreedError(kUsage) on all ranks when a value differs between ranks: "option 'block_bytes'
/// differs between the ranks: ...". `what` is "option" or a similar noun. `put` runs in an agreed step and must append
/// the same names in the same order on all ranks. Takes two reductions if all values agree.
template <std::invocable<std::vector<NamedValue>&> Put>
void agree_on_values(Communicator& communicator, std::string_view what, Put&& put) {
  std::vector<NamedValue> values;
  internal::agree_on_values(communicator, what, values, [&] { put(values); });
}

}  // namespace cairn::comm
