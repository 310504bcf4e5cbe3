"""The TPU planner, started as `tools.plan_tpu`; see `command_line`.

`slices` describes the generations of TPUs, `compiler` compiles a step, `hlo`
reads the communication of the compiled program, `largest_batch` searches for
the largest batch, `planner` makes the plan, `report` prints it.
"""

from tools.plan_tpu.command_line import DEFAULT_CONFIG, main
