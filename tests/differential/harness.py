"""Runs checks and counts results. A check returns a remark, or raises Skip or AssertionError."""

import contextlib
import subprocess
import tempfile
import traceback

import numpy as np


class Skip(Exception):
    pass


class Harness:
    def __init__(self, binary, scratch):
        self.binary = binary
        self.scratch = scratch
        self.counts = {"passed": 0, "failed": 0, "skipped": 0}

    def octavo(self, *arguments):
        command = [str(self.binary), *map(str, arguments)]
        result = subprocess.run(command, capture_output=True, text=True)
        assert (
            result.returncode == 0
        ), f"{' '.join(command)}: exit {result.returncode}\n{result.stderr}"
        return result.stdout

    def built(self, name):
        """A program of tests/support, built with this binary."""
        for directory in self.binary.parents:
            program = directory / "tests" / name
            if program.exists():
                return program
        raise Skip(f"{name} is not built beside this binary")

    @contextlib.contextmanager
    def directory(self):
        """A scratch directory that is gone when the check ends."""
        with tempfile.TemporaryDirectory(dir=self.scratch) as path:
            yield path

    def check(self, name, function, *arguments):
        try:
            remark = function(self, *arguments)
            outcome = "passed"
        except Skip as skip:
            remark, outcome = skip, "skipped"
        except Exception as error:
            remark = error if isinstance(error, AssertionError) else traceback.format_exc()
            outcome = "failed"
        self.counts[outcome] += 1
        print(f"{outcome}: {name}" + (f": {remark}" if remark else ""), flush=True)

    def summary(self):
        return ", ".join(f"{count} {outcome}" for outcome, count in self.counts.items())


def assert_same_bits(what, actual, expected):
    assert (
        actual.shape == expected.shape
    ), f"{what}: shape {actual.shape}, expected {expected.shape}"
    assert actual.dtype == expected.dtype, f"{what}: {actual.dtype}, expected {expected.dtype}"
    bits = np.dtype(f"u{actual.dtype.itemsize}")
    different = np.argwhere(actual.view(bits) != expected.view(bits))
    if len(different):
        first = tuple(int(i) for i in different[0])
        raise AssertionError(
            f"{what}: {len(different)} of {actual.size} differ, first at {first}: "
            f"{actual[first]!r}, expected {expected[first]!r}"
        )
