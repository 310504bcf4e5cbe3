"""The communication of a compiled program, read from its HLO text."""

import dataclasses
import math
import re

KINDS = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
)
_COMPUTATION = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\{$")
_COLLECTIVE = re.compile(
    rf"= (?P<result>.+?) (?P<kind>{'|'.join(KINDS)})(?P<start>-start)?\("
)
_CALLEES = re.compile(
    r"(?:calls|to_apply|body|condition|true_computation|false_computation)"
    r"=%?([\w.\-]+)"
)
_WHILE = re.compile(r" while\(.*condition=%?([\w.\-]+), body=%?([\w.\-]+)")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_TRIPS = re.compile(r"known_trip_count\D+(\d+)")
_SHAPE = re.compile(r"\b(pred|[a-z]+\d+\w*)\[([\d,]*)\]")


@dataclasses.dataclass(frozen=True, slots=True)
class Collective:
    """The collectives of a program, equal operations together.

    Attributes:
        kind: One of `KINDS`.
        group: Devices in each group.
        count: Executions in a step.
        values: Numbers summed, gathered or sent in a step, over all executions;
            counted where they are complete: before a reduce-scatter, after an
            all-gather.
        bytes: Size of these numbers.
        of_scalars: Whether they are sums of scalars, for metrics and norms.
    """

    kind: str
    group: int
    count: int
    values: int
    bytes: int
    of_scalars: bool = False

    def seconds(self, bandwidth: float) -> float:
        """Return a lower bound of its time, for a device's bytes per second."""
        others = (self.group - 1) / max(1, self.group)
        if self.kind == "all-reduce":
            others *= 2  # a reduce-scatter, then an all-gather
        elif self.kind == "collective-permute":
            others = 1
        return others * self.bytes / bandwidth


def collectives(text: str, num_devices: int) -> list[Collective]:
    """Return the communication of one step.

    Communication in a loop is counted for each iteration, if their number is
    known from the text.
    """
    lines, entry = _computations(text)
    times = _times(lines, entry)
    found = {}
    # An asynchronous operation is divided among several computations, and
    # appears in each of them with the same channel.
    seen = set()
    for computation, body in lines.items():
        for line in body:
            match = _COLLECTIVE.search(line)
            if not match or not times.get(computation):
                continue
            channel = re.search(r"channel_id=(\d+)", line)
            key = channel[1] if channel else line.split("=")[0].strip()
            if key in seen:
                continue
            seen.add(key)
            kind, group = match["kind"], _group(line, num_devices)
            # (element type, number of elements) of each array
            shapes = [
                (name, math.prod(map(int, filter(None, sizes.split(",")))))
                for name, sizes in _SHAPE.findall(match["result"])
            ]
            if match["start"] and kind != "all-reduce":
                # Operands, results, and the context of an asynchronous
                # operation.
                shapes = [s for s in shapes if s[0] not in ("u32", "s32")]
                shapes = shapes[len(shapes) // 2 :]
            if kind == "all-reduce" and "all-reduce-scatter" in computation:
                # The TPU compiler's form of it: an all-reduce and a slice.
                kind = "reduce-scatter"
            elif kind == "reduce-scatter":
                shapes = [(name, size * group) for name, size in shapes]
            scalar = all(size == 1 for _, size in shapes)
            group_key = (kind, group, scalar)
            count, values, size = found.get(group_key, (0, 0, 0))
            n = times[computation]
            found[group_key] = (
                count + n,
                values + n * sum(number for _, number in shapes),
                size + n * sum(map(_bytes, shapes)),
            )
    return [
        Collective(kind, group, *sums, of_scalars=scalar)
        for (kind, group, scalar), sums in found.items()
    ]


def cycles(text: str) -> int:
    """Return the cycles of a step as the compiler estimates them, or 0.

    It is the sum over all operations, as if none overlapped.
    """
    lines, entry = _computations(text)

    def count(computation):
        total = 0
        for line in lines.get(computation, ()):
            if loop := _WHILE.search(line):
                total += _trips(line, lines, loop[1]) * count(loop[2])
            elif estimate := _CYCLES.search(line):
                total += int(estimate[1])
        return total

    return count(entry)


def trip_counts(text: str) -> list[int]:
    """Return the number of iterations of each loop; 1 if unknown."""
    lines, _ = _computations(text)
    return [
        _trips(line, lines, loop[1])
        for body in lines.values()
        for line in body
        if (loop := _WHILE.search(line))
    ]


def _computations(text):
    """Return the lines of each computation, and the name of the entry."""
    lines, entry, name = {}, None, None
    for line in text.splitlines():
        match = None if line.startswith(" ") else _COMPUTATION.match(line)
        if match:
            name = match[2]
            lines[name] = []
            entry = name if match[1] else entry
        elif name is not None:
            lines[name].append(line)
    return lines, entry


def _times(lines, entry):
    """Return how often each computation runs in a step."""
    times = {}
    # Callees precede callers.
    for name in reversed(lines):
        if name == entry:
            times[name] = 1
        for line in lines[name] if name in times else ():
            loop = _WHILE.search(line)
            trips = _trips(line, lines, loop[1]) if loop else 1
            for callee in set(_CALLEES.findall(line)):
                times[callee] = max(times.get(callee, 0), times[name] * trips)
    return times


def _trips(line, lines, condition):
    """Return the number of iterations of a loop; 1 if unknown."""
    known = _TRIPS.search(line)
    if known:
        return int(known[1])
    limits = [
        int(number)
        for line in lines.get(condition, ())
        for number in re.findall(r"s32\[\]\S* constant\((\d+)\)", line)
    ]
    return limits[0] if len(limits) == 1 else 1


def _group(line, num_devices):
    """Return the number of devices in a group."""
    mesh = re.search(r"replica_groups=mesh\[(.*?)\] \{(.*?)\}", line)
    if mesh:
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", mesh[1]))
        names = re.findall(r"'(\w+)'", mesh[2])
        return math.prod(int(sizes[name]) for name in names)
    iota = re.search(r"replica_groups=\[(\d+),(\d+)\]<=", line)
    if iota:
        return int(iota[2])
    listed = re.search(r"replica_groups=\{\{([\d,]+)\}", line)
    if listed:
        return len(listed[1].split(","))
    return num_devices


def _bytes(shape):
    """Return the bytes of (element type, number of elements)."""
    element_type, size = shape
    bits = re.search(r"\d+", element_type)
    return size * (max(1, int(bits[0]) // 8) if bits else 1)
