// The rule that no rank leaves a collective alone.
//
// Rank-local work inside a collective step goes through agree(): what it throws on some ranks is collected, and the
// same Error is thrown on all. What all ranks should have been given alike is compared by agree_on_values().
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

/// An Error that all ranks of the communicator throw at the same place: who catches it may go on collectively.
class AgreedError : public Error {
 public:
  using Error::Error;
};

/// Refers to what is called inside the call that it is given to. Making one allocates nothing, as a std::function may:
/// what fails before agree() begins cannot be agreed on.
class Work {
 public:
  template <class F>
  requires(!std::same_as<std::remove_cvref_t<F>, Work> && std::is_object_v<std::remove_reference_t<F>>) Work(F&& work)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(work)))), call_([](const Work& self) {
          static_cast<void>((*static_cast<std::remove_reference_t<F>*>(self.object_))());
        }) {}
  Work(void (&work)()) : function_(&work), call_([](const Work& self) { self.function_(); }) {}

  void operator()() const { call_(*this); }

 private:
  union {
    void* object_;
    void (*function_)();
  };
  void (*call_)(const Work& self);
};

/// Collective. Runs `work` on this rank; when it threw on any rank, throws on all ranks one AgreedError whose kind,
/// text and details are those of the lowest failing rank, which it names, with " (rank 3)", " (ranks 3, 5 and 2 more)" or,
/// where there are several hosts, " (rank 3 on node07)" appended when the group has more than one rank, and `step` named in front when `work` threw something else than Error. Requires: `work` does
/// not communicate on `communicator`.
void agree(Communicator& communicator, std::string_view step, Work work);

/// Collective. As agree(), where only `root` works; its result is shared by the caller.
void agree_on_root(Communicator& communicator, std::string_view step, int root, Work work);

/// What every rank was given, in words.
struct NamedValue {
  std::string name;
  std::string value;
};

namespace internal {
void agree_on_values(Communicator& communicator, std::string_view what, std::vector<NamedValue>& values, Work put);
}

/// Collective. Throws AgreedError(kUsage) on all ranks when a value is not the same on all: "option 'block_bytes'
/// differs between the ranks: ...". `what` is "option" or the like. `put` runs in an agreed step, and puts the same
/// names in the same order everywhere into the vector that it is given. One reduction when all is well.
template <std::invocable<std::vector<NamedValue>&> Put>
void agree_on_values(Communicator& communicator, std::string_view what, Put&& put) {
  std::vector<NamedValue> values;
  internal::agree_on_values(communicator, what, values, [&] { put(values); });
}

}  // namespace cairn::comm
