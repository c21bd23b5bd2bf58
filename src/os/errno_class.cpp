#include "os/errno_class.hpp"

#include <algorithm>
#include <cerrno>
#include <iterator>

namespace cairn::os {
namespace {

constexpr int kShortages[] = {
    ENOMEM,  // of the process, its cgroup, or the kernel
    EMFILE,  // RLIMIT_NOFILE
    ENFILE,  // whole machine
};

constexpr int kPassing[] = {
    // Permissions: the file is there; its owner can change them.
    EACCES,
    EPERM,
    ENOKEY,       // encrypted, and its key is not loaded
    EKEYEXPIRED,  // Kerberos: the ticket of a long job has run out
    EKEYREVOKED,
    EKEYREJECTED,
    // The moment: a signal, a busy device or server.
    EINTR,
    EAGAIN,
    EBUSY,
    ETIMEDOUT,
    ETIME,
    ENOLCK,
    EDEADLK,
    // A network file system whose server, or the way to it, is gone. ESTALE: the server came back with other handles,
    // or the file was replaced; ESHUTDOWN: Lustre after the client was evicted.
    ESTALE,
    ESHUTDOWN,
    ENOTCONN,
    ECONNREFUSED,
    ECONNRESET,
    ECONNABORTED,
    EPIPE,
    EHOSTDOWN,
    EHOSTUNREACH,
    ENETDOWN,
    ENETUNREACH,
    ENETRESET,
    ENOLINK,
    EREMOTEIO,
    EPROTO,
    ECOMM,
    // A missing device: unplugged, or not yet attached.
    ENODEV,
    ENXIO,
    ENOMEDIUM,
    // Space: for whatever the file system had to write in order to read.
    ENOSPC,
    EDQUOT,
    EROFS,
};

// Not listed on purpose: EIO, ENODATA, EUCLEAN (EFSCORRUPTED) and EBADMSG (EFSBADCRC) come from unreadable sectors and
// broken metadata, every time. A soft-mounted NFS gives EIO for a silent server, too; a load that then goes back to an
// older checkpoint says so in its report and in the log.

template <std::size_t N>
bool contains(const int (&list)[N], int error) {
  return std::find(std::begin(list), std::end(list), error) != std::end(list);
}

}  // namespace

ErrnoClass class_of(int error) {
  if (contains(kShortages, error)) return ErrnoClass::kShortage;
  return contains(kPassing, error) ? ErrnoClass::kMayPass : ErrnoClass::kOfFile;
}

}  // namespace cairn::os
