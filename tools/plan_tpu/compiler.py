"""Compiles the training step of a Keras model for absent devices.

No array is created: variables are shapes, and the step is compiled but not run.
Needs the JAX backend; call `slices.prepare` first.
"""

import dataclasses
import math
import re
import time
from collections.abc import Callable

from tools.plan_tpu import hlo, slices


class DoesNotFit(Exception):
    """The step needs more memory than a device has.

    Attributes:
        needs: Bytes that the compiler would need, after its optimizations; 0 if
            unknown.
        available: Bytes that it may use; 0 if unknown.
    """

    def __init__(self, needs: int, available: int):
        super().__init__(f"needs {needs} of {available} bytes")
        self.needs = needs
        self.available = available


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """A compiled step; all sizes are those of one device.

    Attributes:
        arguments: Bytes of variables and of the batch.
        temporaries: Bytes of intermediate values.
        code: Bytes of the program itself, which is in the same memory.
        flops: Operations.
        bytes: Bytes read and written.
        compiler_seconds: The compiler's estimate of the time of a step, without
            waiting for other devices; 0 if it has none.
        cycles: See `hlo.cycles`.
        parameters: Number of trained values.
    """

    arguments: int
    temporaries: int
    code: int
    flops: float
    bytes: float
    compiler_seconds: float
    cycles: int
    collectives: list[hlo.Collective]
    parameters: int
    compile_seconds: float

    @property
    def hbm(self) -> int:
        """Bytes of memory in use."""
        return self.arguments + self.temporaries + self.code


class Step:
    """The training step of one model on one slice.

    Args:
        build: A function without arguments that returns the compiled model of
            the recipe.
        distribution: The keras.distribution.Distribution to build it under,
            with the devices of `slices.devices`.
        tpu: The slice.
        repeats: Parts of a batch that the step computes one after the other.
        batch: Returns the inputs and the targets of the model, symbolic; None
            for those of a functional model with targets of its output's shape.
    """

    def __init__(
        self,
        build: Callable,
        distribution,
        tpu: slices.Slice,
        repeats: int = 1,
        batch: Callable | None = None,
    ):
        import jax

        self._specify = batch
        self.distribution = distribution
        self.tpu = tpu
        self.repeats = repeats
        models: list = []
        # Variables created while JAX traces have a shape, a type and a layout,
        # but no value: a step only reads values that are passed to it.
        with distribution.scope():
            jax.eval_shape(lambda: models.append(self._make(build)))
        (self.model,) = models

    def _make(self, build):
        import keras

        model = build()
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)

        # Metrics create their variables at their first use.
        def zeros(x):
            return keras.ops.zeros([n or 1 for n in x.shape], x.dtype)

        x, y = keras.tree.map_structure(zeros, self._specs(model))
        if hasattr(model, "output"):
            found = keras.tree.map_structure(zeros, model.output)
        else:
            found = model(x)
        model.compute_loss(x, y, found, training=False)
        model.compute_metrics(x, y, found)
        return model

    def _specs(self, model):
        """Return the inputs and the targets of a model, symbolic."""
        import keras

        if self._specify is not None:
            return self._specify(model)
        return model.input, keras.Input(model.output.shape[1:])

    @property
    def num_replicas(self) -> int:
        """Number of parts into which a batch is divided among devices."""
        mesh = self.distribution.device_mesh
        axis = mesh.axis_names.index(self.distribution.batch_dim_name)
        return mesh.shape[axis]

    @property
    def state_bytes(self) -> int:
        """Bytes of all variables on one device, with their layout."""
        return sum(
            math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize
            for group in self._state()
            for x in group
        )

    @property
    def least_bytes_per_image(self) -> int:
        """A lower bound of the bytes of an image: the outputs of the layers."""
        import keras

        # Layers of a model that is not functional may have none.
        outputs = [getattr(x, "output", ()) for x in _layers(self.model)]
        outputs = keras.tree.flatten(outputs)
        return 2 * sum(math.prod(n or 1 for n in x.shape[1:]) for x in outputs)

    def compile(self, batch_size: int) -> Program:
        """Compile the step for a batch of all devices.

        Raises:
            DoesNotFit: If it does not fit the memory of a device.
        """
        import jax

        from keras_vit.distribution import tpu_compiler

        state = self._state()
        shardings = jax.tree.map(lambda spec: spec.sharding, state)
        # As in `make_train_function` of Keras' JAX trainer.
        options: dict = dict(donate_argnums=0, out_shardings=(None, shardings))
        step = jax.jit(self.model.train_step, **options)
        start = time.monotonic()
        with self.distribution.scope():
            lowered = step.lower(state, self._batch(batch_size))
        options = tpu_compiler.options(self.tpu.generation)
        compiled = compile_lowered(lowered, options)
        return self._read(compiled, time.monotonic() - start)

    def _state(self):
        """Return the state as Keras' trainers hold it, without values."""
        import jax

        def spec(variable):
            layout = self.distribution.get_variable_layout(variable)
            return jax.ShapeDtypeStruct(
                variable.shape, variable.dtype, sharding=layout.backend_layout
            )

        return tuple(list(map(spec, group)) for group in self._groups())

    def _groups(self):
        model = self.model
        state = model.trainable_variables, model.non_trainable_variables
        return *state, model.optimizer.variables, model.metrics_variables

    def _batch(self, batch_size):
        """Return the inputs and the targets of a batch, without values."""
        import jax
        import keras

        def spec(x):
            shape = (batch_size, *x.shape[1:])
            layout = self.distribution.get_data_layout(shape)
            # Pixels are float32 too, after cropping.
            return jax.ShapeDtypeStruct(
                shape, x.dtype, sharding=layout.backend_layout
            )

        return keras.tree.map_structure(spec, self._specs(self.model))

    def _read(self, compiled, seconds):
        trained = self.model.trainable_variables
        return read(
            compiled,
            self.tpu,
            parameters=sum(math.prod(v.shape) for v in trained),
            state_bytes=self.state_bytes,
            loops=self.repeats > 1,
            compile_seconds=seconds,
        )


def _layers(model):
    """Yield the layers of a model, in place of models those of each."""
    for layer in model.layers:
        if hasattr(layer, "layers"):
            yield from _layers(layer)
        else:
            yield layer


class Inference(Step):
    """The forward pass of one model, which `build` returns, on one slice."""

    def _make(self, build):
        return build()

    def compile(self, batch_size: int) -> Program:
        """Compile it; see `Step.compile`."""
        import jax

        def forward(state, images):
            return self.model.stateless_call(*state, images, training=False)[0]

        start = time.monotonic()
        images, _ = self._batch(batch_size)
        with self.distribution.scope():
            lowered = jax.jit(forward).lower(self._state(), images)
        return self._read(compile_lowered(lowered), time.monotonic() - start)

    def _groups(self):
        model = self.model
        return model.trainable_variables, model.non_trainable_variables


def compile_lowered(lowered, options: dict[str, str] | None = None):
    """Compile what `jax.jit(function).lower` returns; may raise DoesNotFit."""
    import jax

    try:
        return lowered.compile(options)
    except jax.errors.JaxRuntimeError as error:
        _raise_if_memory(str(error))
        raise


def read(
    compiled,
    tpu: slices.Slice,
    *,
    parameters: int,
    state_bytes: int,
    loops: bool = False,
    compile_seconds: float = 0.0,
) -> Program:
    """Return what a compiled step, a jax.stages.Compiled, needs.

    `state_bytes` are those of all variables on one device; `loops` says whether
    the step computes its batch in a loop over parts.
    """
    memory = compiled.memory_analysis()
    cost = compiled.cost_analysis()
    text = compiled.as_text()
    # XLA counts the body of a loop once. The rest of the program reads and
    # writes the state once and computes almost nothing.
    repeats = max(hlo.trip_counts(text), default=1) if loops else 1
    outside = min(cost["bytes accessed"], 2 * state_bytes)
    flops = cost["flops"] * repeats
    estimate = cost.get("optimal_seconds", 0.0)
    if repeats > 1:
        rest = min(estimate, outside / tpu.hbm_bandwidth)
        estimate = (estimate - rest) * repeats + rest
    # On some generations it is negative, or less than the time of the
    # operations at the chip's peak.
    if estimate < flops / tpu.flops:
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
        cycles=hlo.cycles(text),
        collectives=hlo.collectives(text, tpu.num_devices),
        parameters=parameters,
        compile_seconds=compile_seconds,
    )


def roofline(program: Program, tpu: slices.Slice) -> dict[str, float]:
    """Return the seconds that each part of a step takes at the chip's peak.

    Computation and memory access overlap, so that the longer one counts;
    communication is added, as if it did not overlap.
    """
    communication = [c.seconds(tpu.ici_bandwidth) for c in program.collectives]
    seconds = dict(
        compute=program.flops / tpu.flops,
        memory=program.bytes / tpu.hbm_bandwidth,
        communication=sum(communication),
    )
    longer = max(seconds["compute"], seconds["memory"])
    seconds["step"] = longer + seconds["communication"]
    return seconds


def step_time(program: Program, tpu: slices.Slice) -> tuple[float, str]:
    """Return seconds, and whether "compiler" or "roofline" estimates them."""
    if program.compiler_seconds:
        return program.compiler_seconds, "compiler"
    return roofline(program, tpu)["step"], "roofline"


def in_bfloat16(kind, build: Callable, tpu: slices.Slice, most=None) -> Step:
    """Return a step in bfloat16, with float32 variables and data parallelism.

    Args:
        kind: `Step` or `Inference`.
        build: See `Step`.
        tpu: The slice.
        most: How many of its devices; None for all.
    """
    import keras

    from keras_vit.distribution import layouts

    layout = layouts.distribution("data", slices.devices(tpu)[:most])
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        return kind(build, layout, tpu)
    finally:
        keras.config.set_dtype_policy(policy)


def _raise_if_memory(message):
    if "RESOURCE_EXHAUSTED" not in message or "hbm" not in message.lower():
        return
    size = r"([\d.]+)([BKMGT]?)"
    sizes = re.search(
        rf"\({size}\) exceeds available HBM \({size}\)", message
    ) or re.search(rf"Used {size} of {size} hbm", message)
    if not sizes:
        raise DoesNotFit(0, 0) from None
    needs, available = (
        int(float(number) * 1024 ** "BKMGT".index(unit or "B"))
        for number, unit in (sizes.groups()[:2], sizes.groups()[2:])
    )
    raise DoesNotFit(needs, available) from None
