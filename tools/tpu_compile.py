"""The training step of a Keras model, compiled for devices that are not there.

No array is ever made: variables are shapes, and the step is compiled and not
run. JAX backend; `tpu_slices.prepare` comes first.
"""

import dataclasses
import math
import re
import time
from collections.abc import Callable

from tools import tpu_hlo, tpu_slices


class DoesNotFit(Exception):
    """The step needs more memory than a device has.

    Attributes:
        needs: Bytes that the compiler would need, after it has tried to save;
            0 if it is not specified.
        available: Bytes that it may use; 0 if it is not specified.
    """

    def __init__(self, needs: int, available: int):
        super().__init__(f"needs {needs} of {available} bytes")
        self.needs = needs
        self.available = available


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """What the compiler says of one step; all of one device.

    Attributes:
        arguments: Bytes of variables and of the batch.
        temporaries: Bytes of everything between.
        code: Bytes of the program itself, which lies in the same memory.
        flops: Operations.
        bytes: Read and written.
        compiler_seconds: Its own estimate of the step, without waiting for
            other devices; 0 where it has none.
        collectives: The communication.
        parameters: Number of trained values.
        compile_seconds: What compiling took.
    """

    arguments: int
    temporaries: int
    code: int
    flops: float
    bytes: float
    compiler_seconds: float
    collectives: list[tpu_hlo.Collective]
    parameters: int
    compile_seconds: float

    @property
    def hbm(self) -> int:
        """Bytes of memory in use."""
        return self.arguments + self.temporaries + self.code


class Step:
    """The training step of one model on one slice.

    Args:
        build: A function without arguments that returns a compiled model,
            the recipe's own.
        distribution: The keras.distribution.Distribution to build it under,
            of the devices of `tpu_slices.devices`.
        tpu: The slice.
        repeats: Parts of a batch that the step runs one after the other.
    """

    def __init__(
        self,
        build: Callable,
        distribution,
        tpu: tpu_slices.Slice,
        repeats: int = 1,
    ):
        import jax
        import keras

        self.distribution = distribution
        self.tpu = tpu
        self.repeats = repeats
        models = []

        def trace():
            model = build()
            if not model.optimizer.built:
                model.optimizer.build(model.trainable_variables)
            # Metrics make their variables when they are first used.
            x, y = (
                keras.ops.zeros((1, *shape[1:]))
                for shape in (model.input_shape, model.output_shape)
            )
            model.compute_loss(x, y, y, training=False)
            model.compute_metrics(x, y, y)
            models.append(model)

        # Variables made while JAX traces have shape, type and layout, and no
        # value: a step reads none that it is not given.
        with distribution.scope():
            jax.eval_shape(trace)
        self.model = models[0]

    @property
    def num_replicas(self) -> int:
        """Parts into which the devices cut a batch."""
        mesh = self.distribution.device_mesh
        axis = mesh.axis_names.index(self.distribution.batch_dim_name)
        return mesh.shape[axis]

    @property
    def state_bytes(self) -> int:
        """Bytes of all variables on one device, as laid out there."""
        return sum(
            math.prod(spec.sharding.shard_shape(spec.shape))
            * spec.dtype.itemsize
            for specs in self._state()
            for spec in specs
        )

    @property
    def least_bytes_per_image(self) -> int:
        """Bytes less than which no image takes: the layers' own outputs."""
        shapes = [layer.output.shape[1:] for layer in self.model.layers]
        return 2 * sum(math.prod(shape) for shape in shapes)

    def compile(self, batch_size: int) -> Program:
        """Compiles the step.

        Args:
            batch_size: Images of all devices.

        Raises:
            DoesNotFit: If it does not fit the memory of a device.
        """
        import jax

        state = self._state()
        shardings = jax.tree.map(lambda spec: spec.sharding, state)
        # As in `make_train_function` of Keras' JAX trainer.
        step = jax.jit(
            self.model.train_step,
            donate_argnums=0,
            out_shardings=(None, shardings),
        )
        start = time.monotonic()
        with self.distribution.scope():
            lowered = step.lower(state, self._batch(batch_size))
        return self._read(_compile(lowered), time.monotonic() - start)

    def _state(self):
        """Returns the state as Keras' trainers hold it, without values."""
        import jax

        return tuple(
            [
                jax.ShapeDtypeStruct(
                    variable.shape,
                    variable.dtype,
                    sharding=self.distribution.get_variable_layout(
                        variable
                    ).backend_layout,
                )
                for variable in variables
            ]
            for variables in self._groups()
        )

    def _groups(self):
        model = self.model
        return (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
            model.metrics_variables,
        )

    def _batch(self, batch_size):
        """Returns (images, one-hot labels), without values."""
        import jax

        return tuple(
            jax.ShapeDtypeStruct(
                (batch_size, *shape[1:]),
                # Of pixels too: cropping makes them so.
                "float32",
                sharding=self.distribution.get_data_layout(
                    (batch_size, *shape[1:])
                ).backend_layout,
            )
            for shape in (self.model.input_shape, self.model.output_shape)
        )

    def _read(self, compiled, seconds):
        memory = compiled.memory_analysis()
        cost = compiled.cost_analysis()
        text = compiled.as_text()
        # XLA counts a loop's body once. What is outside this loop reads and
        # writes the state once more and computes next to nothing.
        repeats = 1
        if self.repeats > 1:
            repeats = max(tpu_hlo.trip_counts(text), default=1)
        outside = min(cost["bytes accessed"], 2 * self.state_bytes)
        flops = cost["flops"] * repeats
        estimate = cost.get("optimal_seconds", 0.0)
        if repeats > 1:
            rest = min(estimate, outside / self.tpu.hbm_bandwidth)
            estimate = (estimate - rest) * repeats + rest
        # On some generations it is negative, or below what the operations
        # alone take at the chip's peak.
        if estimate < flops / self.tpu.flops:
            estimate = 0.0
        return Program(
            arguments=memory.argument_size_in_bytes
            + memory.output_size_in_bytes
            - memory.alias_size_in_bytes,
            temporaries=memory.temp_size_in_bytes,
            code=memory.generated_code_size_in_bytes,
            flops=flops,
            bytes=(cost["bytes accessed"] - outside) * repeats + outside,
            compiler_seconds=estimate,
            collectives=tpu_hlo.collectives(text, self.tpu.num_devices),
            parameters=sum(
                math.prod(v.shape) for v in self.model.trainable_variables
            ),
            compile_seconds=seconds,
        )


class Inference(Step):
    """The forward pass of one model on one slice.

    Args:
        build: A function without arguments that returns a model.
        distribution, tpu: See `Step`.
    """

    def __init__(self, build: Callable, distribution, tpu: tpu_slices.Slice):
        import jax

        self.distribution = distribution
        self.tpu = tpu
        self.repeats = 1
        models = []
        with distribution.scope():
            jax.eval_shape(lambda: models.append(build()))
        self.model = models[0]

    def compile(self, batch_size: int) -> Program:
        """Compiles it; see `Step.compile`."""
        import jax

        def forward(state, images):
            outputs, _ = self.model.stateless_call(
                *state, images, training=False
            )
            return outputs

        start = time.monotonic()
        images, _ = self._batch(batch_size)
        with self.distribution.scope():
            lowered = jax.jit(forward).lower(self._state(), images)
        return self._read(_compile(lowered), time.monotonic() - start)

    def _groups(self):
        return (
            self.model.trainable_variables,
            self.model.non_trainable_variables,
        )


def _compile(lowered):
    import jax

    try:
        return lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        _raise_if_memory(str(error))
        raise


def roofline(program: Program, tpu: tpu_slices.Slice) -> dict[str, float]:
    """Returns the seconds that each part of a step takes at the chip's peak.

    Computation and memory access overlap, so that the longer counts;
    communication is added, as if nothing of it were hidden behind them.
    """
    seconds = dict(
        compute=program.flops / tpu.flops,
        memory=program.bytes / tpu.hbm_bandwidth,
        communication=sum(
            c.seconds(tpu.ici_bandwidth) for c in program.collectives
        ),
    )
    seconds["step"] = (
        max(seconds["compute"], seconds["memory"]) + seconds["communication"]
    )
    return seconds


def _raise_if_memory(message):
    if "RESOURCE_EXHAUSTED" not in message or "hbm" not in message.lower():
        return
    sizes = re.search(
        r"\(([\d.]+)([BKMGT]?)\) exceeds available HBM \(([\d.]+)([BKMGT]?)\)",
        message,
    ) or re.search(r"Used ([\d.]+)([KMGT]) of ([\d.]+)([KMGT]) hbm", message)
    if not sizes:
        raise DoesNotFit(0, 0) from None
    needs, unit, available, available_unit = sizes.groups()
    raise DoesNotFit(
        _bytes(needs, unit), _bytes(available, available_unit)
    ) from None


def _bytes(number, unit):
    return int(float(number) * 1024 ** "BKMGT".index(unit or "B"))
