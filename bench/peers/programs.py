"""Programs under mpirun: the launcher, and the peers of cairn_peer_program (parallel HDF5, the raw pattern)."""

import json
import os
import subprocess

import workload as work
from storage import MEMORY_FILE_SYSTEMS, file_system_of
from system import SAVE_LAYOUT, Measured, System

LIMIT_S = 1800
# More ranks than cores, ranks not bound, idle ranks yield their core; mpirun wants both variables to run as root.
ENVIRONMENT = {"OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1",
               "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_ALLOW_RUN_AS_ROOT": "1",
               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def end(process):
    """Ends mpirun by SIGTERM, on which it ends its ranks, and by SIGKILL if that fails."""
    process.terminate()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Launcher:
    """mpirun of the MPI that the programs in `bin_folder` were built with."""

    def __init__(self, mpirun, bin_folder):
        self.mpirun, self.bin_folder = mpirun, bin_folder

    def document(self, ranks, program, *arguments, **environment):
        """The JSON document that a program prints."""
        command = [self.mpirun, "-n", str(ranks), str(self.bin_folder / program), *map(str, arguments)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              stdin=subprocess.DEVNULL, env={**os.environ, **ENVIRONMENT, **environment}) as process:
            try:
                printed, errors = process.communicate(timeout=LIMIT_S)
            except BaseException:
                end(process)
                raise
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}\n{printed}{errors}")
        return json.loads(printed)


class Hdf5(System):
    name = "hdf5"
    title = "parallel HDF5, a dataset per tensor"

    def __init__(self, launcher):
        self.launcher = launcher
        self.version = launcher.document(1, "cairn_peer_program", "versions")["hdf5"]

    def unusable(self, directory):
        return None if self.version else "cairn_peer_program was built without parallel HDF5"

    def save_settings(self):
        return [{"transfer": "independent", "mpi_io": "romio321"}, {"transfer": "independent", "mpi_io": "ompio"},
                {"transfer": "collective", "mpi_io": "romio321"}]

    load_settings = save_settings

    def _run(self, operation, workload, directory, layout, setting):
        arguments = ["hdf5", operation, "--dir", directory, "--config", workload.config_path, "--layout", layout]
        if setting["transfer"] == "collective":
            arguments.append("--collective")
        return self.launcher.document(work.Layout.parse(layout).ranks, "cairn_peer_program", *arguments,
                                      OMPI_MCA_io=setting["mpi_io"])

    def save(self, workload, directory, setting):
        return Measured(self._run("save", workload, directory, SAVE_LAYOUT, setting)["seconds_max"])

    def load(self, workload, directory, layout, setting):
        document = self._run("load", workload, directory, layout, setting)
        return Measured(document["seconds_max"], equal=document["equal"])


class Raw(System):
    """The bytes of a checkpoint in the best pattern for storage, without a checkpoint."""

    def __init__(self, launcher, is_direct):
        self.launcher = launcher
        self.arguments = ["--direct"] if is_direct else []
        self.name = "raw-direct" if is_direct else "raw-buffered"
        self.title = f"raw, a contiguous share per rank, {'O_DIRECT' if is_direct else 'buffered'} + fsync"
        self.is_direct = is_direct

    def unusable(self, directory):
        kind = file_system_of(directory)[0]
        return f"O_DIRECT means nothing on {kind}" if self.is_direct and kind in MEMORY_FILE_SYSTEMS else None

    def _run(self, operation, workload, directory, ranks):
        return self.launcher.document(ranks, "cairn_peer_program", "raw", operation, "--dir", directory, "--size",
                                      workload.size_bytes, *self.arguments)

    def save(self, workload, directory, setting):
        return Measured(self._run("save", workload, directory, work.Layout.parse(SAVE_LAYOUT).ranks)["seconds_max"])

    def load(self, workload, directory, layout, setting):
        document = self._run("load", workload, directory, work.Layout.parse(layout).ranks)
        return Measured(document["seconds_max"], equal=document["equal"])
