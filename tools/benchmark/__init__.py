"""The comparison of speed with other libraries; see `command_line`.

`implementations` makes the functions that are timed, `measure` times them in
turns, `tables` summarises the times.
"""

from tools.benchmark.command_line import main
