"""Operations on files for benchmarks: make them durable, take them out of the page cache, count their bytes."""

import ctypes
import mmap
import os
import pathlib
import shutil

MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs")


def fsync_path(path):
    """Syncs a file or a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def files_below(directory):
    return sorted(path for path in pathlib.Path(directory).rglob("*") if path.is_file())


def size_below(directory):
    return sum(path.stat().st_size for path in files_below(directory))


def file_system_of(directory):
    """(type, source) of the mount that holds the directory."""
    wanted, best = os.path.realpath(directory), ("", "unknown", "unknown")
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        for line in mounts:
            source, target, kind = line.split()[:3]
            target = target.encode().decode("unicode_escape")
            inside = target == "/" or wanted == target or wanted.startswith(target + "/")
            if inside and len(target) >= len(best[0]):
                best = (target, kind, source)
    return best[1:]


def resident_bytes(path):
    """Number of bytes of a file in the page cache (mincore)."""
    size = path.stat().st_size
    if size == 0:
        return 0
    pages = -(-size // mmap.PAGESIZE)
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), size) as mapped:
        vector = (ctypes.c_ubyte * pages)()
        start = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        if ctypes.CDLL(None, use_errno=True).mincore(ctypes.c_void_p(start), ctypes.c_size_t(size), vector) != 0:
            raise OSError(ctypes.get_errno(), f"mincore {path}")
        return sum(page & 1 for page in vector) * mmap.PAGESIZE


def drop_from_cache(directory):
    """Takes every file below the directory out of the page cache and returns the bytes that stayed in it. Needs no
    root, and leaves the rest of the machine's cache alone. The files must have been synced, since dirty pages stay; only
    Cairn's log never is."""
    for path in files_below(directory):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            if path.name == "cairn.log.jsonl":
                os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    return sum(resident_bytes(path) for path in files_below(directory))


def remove(directory):
    shutil.rmtree(directory, ignore_errors=True)
