"""What the benchmark asks of every system it measures, and what all of them are given."""

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
    """One call. `seconds`: the slowest rank, from a barrier to the end, durable when it saves."""
    seconds: float
    equal: bool = None  # every byte compared with the truth, outside of the clock; None: by a call that comes later
    details: dict = dataclasses.field(default_factory=dict)
    also: dict = dataclasses.field(default_factory=dict)  # {operation: Measured} of the same call


def asynchronous(stall, durable, busy, steps, step, busy_step):
    """Measured, of an asynchronous save: seconds until the call gives the state back to the program, and until the save
    is durable; then of another save, during which the program makes `steps` steps: until that is durable, and of a step
    without and with a save under way."""
    return Measured(stall, also={
        "until durable": Measured(durable, details={"with_steps_seconds": busy}),
        "lost": Measured(busy - steps * step),
        "slow-down": Measured(busy_step / step, details={"steps": steps, "step_seconds": step,
                                                         "busy_step_seconds": busy_step})})


class System:
    """One column of the comparison. A setting is a dictionary that is also what the report says of it; where there are
    several, each is tried once and the fastest is measured."""

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
        """Whether what save left has every byte of the truth, read by means of its own; None when only load can
        tell."""
        return None

    def load(self, workload, directory, layout, setting):
        """Measured, with `equal`."""
        raise NotImplementedError

    def unusable(self, directory):
        """Why this system cannot be measured in this directory; None when it can."""
        return None
