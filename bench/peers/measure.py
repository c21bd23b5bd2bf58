"""The measurements: every system in turn, round after round, each in a folder of its own that is removed
before the next.

One visit to a system:

1. save,
2. check the saved files,
3. for each number of loading ranks take the files out of the page cache, load, compare.

The order of the systems rotates by one from round to round.
"""

import dataclasses
import sys

import storage
from system import LOAD_LAYOUTS


def load_operation(ranks):
    return f"load 4 to {ranks}"


def say(text):
    print(text, file=sys.stderr, flush=True)


@dataclasses.dataclass
class Series:
    """One operation of one system in one directory. The "seconds" of a slow-down are factors."""
    system: str
    operation: str
    setting: dict
    seconds: list = dataclasses.field(default_factory=list)
    details: list = dataclasses.field(default_factory=list)
    verified: bool = True
    resident_bytes_after_drop: int = 0

    def add(self, measured, verified):
        unit = "" if self.operation == "slow-down" else " s"
        say(f"  {self.system} {self.operation}: {measured.seconds:.3f}{unit}{'' if verified else ', WRONG BYTES'}")
        self.seconds.append(measured.seconds)
        self.details.append(measured.details)
        self.verified = self.verified and verified


class Bench:
    """The measurements in one directory."""

    def __init__(self, directory, systems, workload):
        self.directory, self.workload = directory, workload
        self.is_memory = storage.file_system_of(directory)[0] in storage.MEMORY_FILE_SYSTEMS
        self.unusable = {system.name: reason for system in systems if (reason := system.unusable(directory))}
        self.systems = [system for system in systems if system.name not in self.unusable]
        self.save_settings = {system.name: system.save_settings()[0] for system in self.systems}
        self.load_settings = {system.name: system.load_settings()[0] for system in self.systems}
        self.tried = []  # system, operation, setting and seconds of every setting that was tried
        self.series = {}

    def try_settings(self, attempts):
        """Runs every setting by itself, outside the measurements, and keeps the fastest. Loads choose on the smallest
        number of ranks."""
        for system in self.systems:
            saves, loads = system.save_settings(), system.load_settings()
            if len(saves) > 1:
                self.save_settings[system.name] = self._fastest(system, system.save_operation, saves,
                                                                [self._try_save] * attempts)
            if system.loads and len(loads) > 1:
                self.load_settings[system.name] = self._fastest(system, "load", loads, [self._try_load] * attempts)

    def _fastest(self, system, operation, settings, attempts):
        seconds = []
        for setting in settings:
            seconds.append(min(attempt(system, setting) for attempt in attempts))
            say(f"  tried {system.name} {operation} {setting}: {seconds[-1]:.3f} s")
            self.tried.append({"system": system.name, "operation": operation, "setting": setting,
                               "seconds": seconds[-1]})
        return settings[seconds.index(min(seconds))]

    def _try_save(self, system, setting):
        return self._in_folder(system, lambda folder: system.save(self.workload, folder, setting)).seconds

    def _try_load(self, system, setting):
        def visit(folder):
            system.save(self.workload, folder, self.save_settings[system.name])
            self._drop(folder)
            return system.load(self.workload, folder, LOAD_LAYOUTS[min(LOAD_LAYOUTS)], setting)
        return self._in_folder(system, visit).seconds

    def round(self, number):
        count = len(self.systems)
        for at in range(count):
            system = self.systems[(at + number) % count]
            self._in_folder(system, lambda folder, system=system: self._visit(system, folder))

    def _visit(self, system, folder):
        saved = system.save(self.workload, folder, self.save_settings[system.name])
        checks = [saved.equal, system.is_saved_right(self.workload, folder)]
        for ranks, layout in LOAD_LAYOUTS.items() if system.loads else ():
            resident = self._drop(folder)
            loaded = system.load(self.workload, folder, layout, self.load_settings[system.name])
            series = self._series(system, load_operation(ranks), self.load_settings)
            series.resident_bytes_after_drop = max(series.resident_bytes_after_drop, resident)
            series.add(loaded, loaded.equal is True)
            checks.append(loaded.equal is True)
        # None stands for a check that only the loads can make. A save without any check is not verified.
        verdicts = [check for check in checks if check is not None]
        for operation, measured in {system.save_operation: saved, **saved.also}.items():
            self._series(system, operation, self.save_settings).add(measured, bool(verdicts) and all(verdicts))

    def _series(self, system, operation, settings):
        key = (system.name, operation)
        return self.series.setdefault(key, Series(system.name, operation, settings[system.name]))

    def _drop(self, folder):
        return 0 if self.is_memory else storage.drop_from_cache(folder)

    def _in_folder(self, system, work):
        folder = self.directory / system.name
        folder.mkdir()
        try:
            return work(folder)
        finally:
            storage.remove(folder)
