"""Small file systems for a test, in a mount namespace that ends with it."""

import os
import pathlib
import subprocess
import sys

ERRNO = {"EIO": 5, "ENOSPC": 28}


def enter_namespace():
    """Starts this program again in a mount namespace, so that no mount outlives it. Where that is forbidden,
    mounting is impossible as well, and the tests say so."""
    if "CAIRN_OWN_MOUNTS" in os.environ:
        return
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0:
        os.environ["CAIRN_OWN_MOUNTS"] = "1"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, *sys.argv])


def run(*command):
    """The command's error output, or None on success."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    try:
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False, env={**os.environ, "PATH": path})
    except FileNotFoundError as error:
        return str(error)
    return None if done.returncode == 0 else " ".join(done.stdout.split())


class Mount:
    def __init__(self, test, path):
        self.test, self.path, self.is_mounted = test, path, False
        path.mkdir()
        test.addCleanup(self.unmount, "--lazy")

    def mount(self, what, *command):
        problem = run(*command, self.path)
        if problem:
            self.test.skipTest(f"{what} cannot be mounted here: {problem}")
        self.is_mounted = True

    def unmount(self, *how):
        if self.is_mounted:
            self.is_mounted = False
            self.test.assertIsNone(run("umount", *how, self.path))


class Tmpfs(Mount):
    def __init__(self, test, path, **options):
        super().__init__(test, path)
        options = ",".join(f"{name}={value}" for name, value in options.items())
        self.mount("a tmpfs", "mount", "-t", "tmpfs", "-o", options, "cairn-test")

    def resize(self, name, value):
        """Sets size (in bytes) or nr_inodes; 0: no limit."""
        self.test.assertIsNone(run("mount", "-o", f"remount,{name}={value}", self.path))

    def leave(self, free_bytes):
        found = os.statvfs(self.path)
        self.resize("size", (found.f_blocks - found.f_bfree) * found.f_frsize + free_bytes)

    def leave_inodes(self, free):
        found = os.statvfs(self.path)
        self.resize("nr_inodes", found.f_files - found.f_ffree + free)


class Ext4(Mount):
    """ext4 in an image with holes, which take space once they are written."""

    def __init__(self, test, path, image, size_bytes):
        super().__init__(test, path)
        self.image = image
        with open(image, "wb") as file:
            file.truncate(size_bytes)
        # Journal and tables have their space already.
        problem = run("mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", image)
        if problem:
            test.skipTest(f"an ext4 image cannot be made and mounted here: {problem}")
        self.mount_again()

    def mount_again(self):
        self.mount("an ext4 image cannot be made and mounted here, it", "mount", "-o", "loop", self.image)


class Xfs(Mount):
    """XFS in an image with holes. mkfs.xfs makes none below 300 MiB."""

    def __init__(self, test, path, image, size_bytes):
        super().__init__(test, path)
        with open(image, "wb") as file:
            file.truncate(size_bytes)
        problem = run("mkfs.xfs", "-q", "-m", "reflink=1", image)
        if problem:
            test.skipTest(f"an XFS image cannot be made and mounted here: {problem}")
        self.mount("an XFS image cannot be made and mounted here, it", "mount", "-o", "loop", image)


class FaultFs(Mount):
    """fault_fs.cpp, in front of `folder`."""

    def __init__(self, test, path, program, folder, mode):
        super().__init__(test, path)
        if not pathlib.Path("/dev/fuse").exists():
            test.skipTest("a FUSE file system cannot be mounted here: there is no /dev/fuse")
        self.process = subprocess.Popen([program, folder, path, mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        test.addCleanup(self.end)
        if self.process.stdout.readline() != "ready\n":
            problem = " ".join(self.process.stderr.read().split())
            test.skipTest(f"a FUSE file system cannot be mounted here: {problem}")

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def set(self, call, action, value=0, after=0, times=1, part=""):
        self.test.assertEqual(self.ask(f"set {call} {action} {value} {after} {times} {part}"), "ok")

    def hits(self):
        return int(self.ask("hits").split()[1])

    def clear(self):
        """How often the rule has applied."""
        return int(self.ask("clear").split()[1])

    def end(self):
        self.process.stdin.close()
        self.process.wait(timeout=300)
        self.process.stdout.close()
        self.process.stderr.close()
