"""The interface of a measured system, and the workload that all systems are given."""

import dataclasses
import pathlib

SAVE_LAYOUT = "tp=2,pp=2"
LOAD_LAYOUTS = {3: "fsdp=3", 8: "tp=4,pp=2"}


@dataclasses.dataclass(frozen=True)
class Workload:
    config: dict
    config_path: pathlib.Path
    size_bytes: int
    max_file_bytes: int


@dataclasses.dataclass
class Measured:
    """One call. `seconds`: from a barrier to the end on the slowest rank; a save is then durable."""
    seconds: float
    equal: bool = None  # whether every byte equals the truth, compared outside the clock; None: a later call compares
    details: dict = dataclasses.field(default_factory=dict)
    also: dict = dataclasses.field(default_factory=dict)  # {operation: Measured} of further results of the call


def asynchronous(stall, durable, busy, steps, step, busy_step):
    """Measured for asynchronous saves. `stall` and `durable`: seconds until the call gives the state back to the
    program, and until the save is durable. `busy`: seconds until another save is durable, during which the program
    makes `steps` steps. `step` and `busy_step`: seconds of a step without and with a save under way."""
    return Measured(stall, also={
        "until durable": Measured(durable, details={"with_steps_seconds": busy}),
        "lost": Measured(busy - steps * step),
        "slow-down": Measured(busy_step / step, details={"steps": steps, "step_seconds": step,
                                                         "busy_step_seconds": busy_step})})


class System:
    """One system of the comparison. A setting is a dictionary, which the report prints. If there are several settings,
    each is tried and the fastest is measured."""

    name = ""
    title = ""
    loads = True
    save_operation = "save"

    def save_settings(self):
        return [{}]

    def load_settings(self):
        return [{}]

    def save(self, workload, directory, setting):
        """Measured. `directory` exists and is empty."""
        raise NotImplementedError

    def is_saved_right(self, workload, directory):
        """Whether the saved files have every byte of the truth, read by other means than load(); None when only load()
        can check."""
        return None

    def load(self, workload, directory, layout, setting):
        """Measured, with `equal`."""
        raise NotImplementedError

    def unusable(self, directory):
        """Why this system cannot be measured in this directory; None when it can."""
        return None
