"""Cairn itself, as a user runs it: `cairn demo save` and `cairn demo load`, which report the seconds of the call
alone."""

import final_files
import workload as work
from system import SAVE_LAYOUT, Measured, System


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
