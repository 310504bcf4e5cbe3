"""The training step of plain Keras, without the recipe or this package's setup.

A model under `keras.distribution.DataParallel` with Keras' own AdamW, loss and
metric, as `model.fit` runs it.
"""

from tools.plan_tpu import compiler, slices


def compile_step(
    built, config, tpu: slices.Slice, batch_size: int
) -> compiler.Program:
    """Compile it for the model of a recipe's step; may raise DoesNotFit."""
    import keras

    described = type(built.model), built.model.get_config()

    def build():
        model = described[0].from_config(described[1])
        model.compile(
            keras.optimizers.AdamW(
                built.schedule,
                weight_decay=config.optim.weight_decay,
                global_clipnorm=config.optim.clip_norm or None,
            ),
            built.trainer.loss,
            metrics=["accuracy"],
        )
        return model

    devices = slices.devices(tpu)
    mesh = keras.distribution.DeviceMesh((len(devices),), ["batch"], devices)
    layout = keras.distribution.DataParallel(device_mesh=mesh)
    return compiler.Step(build, layout, tpu).compile(batch_size)
