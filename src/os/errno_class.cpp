#include "os/errno_class.hpp"

#include <algorithm>
#include <cerrno>
#include <iterator>

namespace cairn::os {
namespace {

constexpr int kShortages[] = {
    ENOMEM,  // memory of the process, its cgroup, or the kernel
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
    // Temporary: a signal, a busy device or server.
    EINTR,
    EAGAIN,
    EBUSY,
    ETIMEDOUT,
    ETIME,
    ENOLCK,
    EDEADLK,
    // A network file system whose server, or the connection to it, is gone. ESTALE: the server came back with different
    // handles, or the file was replaced; ESHUTDOWN: Lustre after the client was evicted.
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
    // Refused writes that the file system makes in order to read.
    ENOSPC,
    EDQUOT,
    EROFS,
};

// Deliberately not listed: EIO, ENODATA, EUCLEAN (EFSCORRUPTED) and EBADMSG (EFSBADCRC) come from unreadable sectors
// and broken metadata, which do not recover. A soft-mounted NFS also gives EIO for a silent server; if a load then goes
// back to an older checkpoint, its report and the log say so.

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
