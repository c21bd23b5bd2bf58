"""Errors of a codec, measured in NumPy from the files: the saved state against the state that came back.

Raises Unfaithful unless the codec keeps its promises: weights and all tensors that it leaves alone come back to the
bit; moments that it codes change, and by no more than src/quant/README.md states.
"""

import hashlib
import pathlib

import numpy
from safetensors.numpy import load_file

FIRST, SECOND = ".exp_avg", ".exp_avg_sq"
EPS = 1e-8
# Largest RMS error of the updates and of sqrt(v), over all coded moments. PaddlePaddle's codecs promise nothing.
BOUNDS = {"q8": (0.005, 0.006), "q4": (0.07, 0.08)}


class Unfaithful(Exception):
    pass


def read_state(directory):
    """{section: {name: array}}"""
    return {section: load_file(pathlib.Path(directory) / f"{section}.safetensors")
            for section in ("model", "optimizer")}


def digests_of(tensors):
    return {name: hashlib.sha256(numpy.ascontiguousarray(array).tobytes()).hexdigest()
            for name, array in tensors.items()}


def is_coded(codec, shape):
    """Whether a codec codes moments of this shape, which has at most two dimensions."""
    if codec in ("q8", "q4"):
        return len(shape) >= 2 and numpy.prod(shape) >= 1024
    if codec == "paddle-o1":
        return len(shape) in (1, 2)
    if codec == "paddle-o2":
        return len(shape) == 2 and shape[0] % 32 == 0
    return False


def _same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _errors_of(saved, resumed):
    """Sums of squares of one parameter: (update errors, updates, relative errors of sqrt(v), elements with v > 0)."""
    (first, second), (first_now, second_now) = ([array.astype(numpy.float64) for array in pair]
                                                for pair in (saved, resumed))
    root, root_now = numpy.sqrt(second), numpy.sqrt(second_now)
    update = first / (root + EPS)
    update_error = first_now / (root_now + EPS) - update
    positive = second > 0
    relative = (root_now[positive] - root[positive]) / root[positive]
    return numpy.array([(update_error**2).sum(), (update**2).sum(), (relative**2).sum(), positive.sum()])


def _shares(sums):
    return float(numpy.sqrt(sums[0] / sums[1])), float(numpy.sqrt(sums[2] / sums[3]))


def compare(codec, saved, resumed, reported):
    """Errors of a round trip of a state; both states are as from read_state(). `reported`, the errors that convert
    reported, must equal those found here. Codec None: nothing may differ."""
    for section in saved:
        if saved[section].keys() != resumed[section].keys():
            differing = sorted(saved[section].keys() ^ resumed[section].keys())
            raise Unfaithful(f"{section}: other tensors came back: {differing}")
    for name, array in saved["model"].items():
        if not _same_bits(array, resumed["model"][name]):
            raise Unfaithful(f"weight {name} came back with other bits")
    old, new = saved["optimizer"], resumed["optimizer"]
    coded = {name.removesuffix(FIRST) for name in old
             if name.endswith(FIRST) and is_coded(codec, old[name].shape)}
    changed, elements, per_parameter = 0, 0, {}
    for name, array in old.items():
        if name.removesuffix(FIRST).removesuffix(SECOND) not in coded:
            if not _same_bits(array, new[name]):
                raise Unfaithful(f"{name} is left alone by {codec or 'a save without codec'} and has other bits")
        elif new[name].dtype != numpy.float32 or new[name].shape != array.shape or _same_bits(array, new[name]):
            bits = "the same" if _same_bits(array, new[name]) else "other"
            raise Unfaithful(f"{name} should have been coded by {codec}, and is {new[name].dtype} {new[name].shape} "
                             f"with {bits} bits")
        else:
            changed += int((array != new[name]).sum())
            elements += array.size
    for name in sorted(coded):
        per_parameter[name] = _errors_of(*([state[name + FIRST], state[name + SECOND]] for state in (old, new)))
    _check_report(per_parameter, reported)
    largest = {f"reported_{key}": max(row[key] for row in reported) for key in ("update_max", "root_max") if reported}
    return {**_summary(codec, per_parameter, changed, elements), **largest}


def _check_report(per_parameter, reported):
    if sorted(row["name"] for row in reported) != [name + FIRST for name in sorted(per_parameter)]:
        names = [row["name"] for row in reported]
        raise Unfaithful(f"convert reports errors of {names}, coded are {sorted(per_parameter)}")
    for row in reported:
        found = _shares(per_parameter[row["name"].removesuffix(FIRST)])
        for key, value in zip(("update_rms", "root_rms"), found):
            if not numpy.isclose(row[key], value, rtol=1e-4, atol=1e-9):
                raise Unfaithful(f"{row['name']}: convert reports {key} {row[key]}, found {value}")


def _summary(codec, per_parameter, changed, elements):
    if codec is None:
        return {"coded_parameters": 0}
    if not per_parameter:
        raise Unfaithful(f"{codec} coded nothing")
    update, root = _shares(sum(per_parameter.values()))
    worst = max(per_parameter, key=lambda name: _shares(per_parameter[name])[0])
    if codec in BOUNDS and (update > BOUNDS[codec][0] or root > BOUNDS[codec][1]):
        raise Unfaithful(f"{codec}: RMS errors {update:.4%} of updates and {root:.4%} of sqrt(v), allowed are "
                         f"{BOUNDS[codec][0]:.2%} and {BOUNDS[codec][1]:.2%}")
    return {"coded_parameters": len(per_parameter), "coded_elements": elements, "changed_elements": changed,
            "update_rms": update, "root_rms": root, "worst_parameter": worst,
            "worst_update_rms": _shares(per_parameter[worst])[0], "worst_root_rms": _shares(per_parameter[worst])[1]}
