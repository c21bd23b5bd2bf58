"""Cairn itself, as a user runs it: `cairn demo save` and `cairn demo load`, which report the seconds of the call alone,
and `cairn bench --async`."""

import final_files
import workload as work
from system import SAVE_LAYOUT, Measured, System, asynchronous


class Cairn(System):
    name = "cairn"
    title = "Cairn"

    def __init__(self, launcher, engine):
        self.launcher = launcher
        self.options = ["--engine", engine] if engine else []

    def _run(self, operation, directory, layout, *arguments):
        arguments = ["demo", operation, "--dir", directory, "--layout", layout, "--json", *self.options, *arguments]
        document = self.launcher.document(work.Layout.parse(layout).ranks, "cairn", *arguments)
        details = {"engine": document["engine"],
                   "phases": [{"name": phase["name"], "seconds": phase["seconds_max"]} for phase in document["phases"]]}
        return document, Measured(document["seconds_max"], details=details)

    def save(self, workload, directory, setting):
        return self._run("save", directory, SAVE_LAYOUT, "--model", f"@{workload.config_path}", "--max-file-size",
                         workload.max_file_bytes)[1]

    def is_saved_right(self, workload, directory):
        return final_files.are_right(directory / "checkpoint-100", workload.config, final_files.places_in_sections)

    def load(self, workload, directory, layout, setting):
        document, measured = self._run("load", directory, layout)
        measured.equal = document["equal"] and document["size_bytes_compared"] >= workload.size_bytes
        return measured


class CairnAsync(System):
    name = "cairn-async"
    title = "Cairn, save_async"
    save_operation = "stall"
    loads = False

    def __init__(self, launcher, engine):
        self.launcher, self.engine = launcher, engine
        self.options = ["--engine", engine] if engine else []

    def unusable(self, directory):
        return "with this engine Cairn saves synchronously" if self.engine == "mpiio" else None

    def save(self, workload, directory, setting):
        """The first save of the process allocates memory and does not count; the last one is loaded and compared."""
        document = self.launcher.document(
            work.Layout.parse(SAVE_LAYOUT).ranks, "cairn", "bench", "--async", "--dir", directory, "--model",
            f"@{workload.config_path}", "--layout", SAVE_LAYOUT, "--max-file-size", workload.max_file_bytes,
            "--warm-up", 0, "--repeats", 1, "--json", *self.options)
        found = {key: figure["values"][0] for key, figure in document["seconds_max"].items()}
        measured = asynchronous(stall=found["stall"], durable=found["behind"], busy=found["busy"],
                                steps=document["steps"]["values"][0], step=found["step"], busy_step=found["busy_step"])
        measured.details = {"engine": document["engine"], "memcpy_seconds": found["memcpy"],
                            "save_seconds": found["save"], "first_stall_seconds": document["first_stall_seconds"]}
        measured.equal = document["verified_bytes"] >= workload.size_bytes
        return measured
