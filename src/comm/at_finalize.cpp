#include "comm/at_finalize.hpp"

#include <mpi.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/mpi_call.hpp"

namespace cairn::comm {

/// Never destroyed: MPI may be finalised after the static objects of this library are destroyed.
struct FinalizeList {
  std::recursive_mutex mutex;  ///< recursive, since work may destroy an AtFinalize
  std::vector<AtFinalize*> all;
  bool is_known_to_mpi = false;

  static FinalizeList& get() {
    static auto* const list = new FinalizeList;
    return *list;
  }

  void tell_mpi() {
    if (is_known_to_mpi) return;
    int key = MPI_KEYVAL_INVALID;
    internal::check_mpi(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, run, &key, nullptr), "MPI_Comm_create_keyval");
    internal::check_mpi(MPI_Comm_set_attr(MPI_COMM_SELF, key, this), "MPI_Comm_set_attr");
    MPI_Comm_free_keyval(&key);  // freed with the attribute
    is_known_to_mpi = true;
  }

  static int run(MPI_Comm /*self*/, int /*key*/, void* list, void* /*state*/) {
    auto& mine = *static_cast<FinalizeList*>(list);
    const std::lock_guard lock(mine.mutex);
    mine.is_known_to_mpi = false;
    while (!mine.all.empty()) {
      AtFinalize* const last = mine.all.back();
      mine.all.pop_back();
      last->work_();
    }
    return MPI_SUCCESS;
  }
};

AtFinalize::AtFinalize(std::function<void()> work) : work_(std::move(work)) {
  FinalizeList& list = FinalizeList::get();
  const std::lock_guard lock(list.mutex);
  list.all.push_back(this);
  try {
    list.tell_mpi();
  } catch (...) {
    list.all.pop_back();
    throw;
  }
}

AtFinalize::~AtFinalize() {
  FinalizeList& list = FinalizeList::get();
  const std::lock_guard lock(list.mutex);
  std::erase(list.all, this);
}

}  // namespace cairn::comm
