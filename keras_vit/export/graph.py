"""The graph of a SavedModel: the model and its signatures."""

import contextlib
import os

import keras

from keras_vit.data.optional_imports import tensorflow
from keras_vit.export import signatures, task_signatures
from keras_vit.heads import TaskModel
from keras_vit.models import ImageModel, attention
from keras_vit.models.image_model import vector


def write(
    model: keras.Model,
    directory: str | os.PathLike,
    decoding_budget: float,
    **arguments,
) -> None:
    """Write a model with its signatures as the graph of a SavedModel.

    Args:
        model: A classifier of this package, or one that contains a model of
            it, with a symbolic input and output; or a model with a head.
        directory: The empty directory to write to.
        decoding_budget: Of `signatures.signatures`, for a model of images.
        arguments: Those of `signatures.Answers`, or of
            `task_signatures.TaskAnswers`, besides the function.
    """
    tf = tensorflow()
    is_task = isinstance(model, TaskModel)
    run = task_signatures.outputs_of if is_task else _with_features
    both = run(model)
    attend = None if is_task else _attend(model)
    images = tf.TensorSpec((None, *model.input_shape[1:]), "float32")

    def serve(forward, attend):
        if is_task:
            return task_signatures.task_signatures(
                task_signatures.TaskAnswers(model, forward, **arguments),
                decoding_budget,
            )
        answers = signatures.Answers(forward, **arguments)
        *frames, height, width, channels = model.input_shape[1:]
        plan = (answers, *frames, (height, width), channels, attend)
        if frames:
            return signatures.video_signatures(*plan)
        return signatures.signatures(  # type: ignore[call-arg]
            *plan, decoding_budget
        )

    if keras.backend.backend() == "jax":
        with _without_paths():
            _write_from_jax(both, attend, images, directory, serve)
        return

    # Keras' ExportArchive would save each variable twice on TensorFlow.
    @tf.function(input_signature=[images], autograph=False)
    def forward(images):
        return both(images, training=False)

    module = tf.Module()
    module.weights_of_the_model = [v.value for v in both.variables]
    module.functions = serve(
        lambda images, number: forward(images),
        attend and (lambda images, number: attend(images)),
    )
    tf.saved_model.save(module, directory, signatures=module.functions)


def _attend(model):
    """Return a function from images to rollout and layer maps, or None."""
    inner = ImageModel.find(model)
    if not attention.attending(inner):
        return None

    def attend(images):
        images = attention.reaching(inner, model, images)
        found = attention.attentions(inner, images)
        return [
            attention.rollout(inner, found),
            *attention.by_head(inner, found),
        ]

    return attend


def _with_features(model):
    """Return a model that returns features and scores."""
    inner = ImageModel.find(model)
    if getattr(inner, "input", None) is getattr(model, "input", None):
        return keras.Model(model.input, [inner.representation, model.output])
    return _Watching(model, inner)


class _Watching(keras.Model):
    """Returns what an inner model's head reads, and the outer model's output.

    Of an inner model without a head, its output.
    """

    def __init__(self, model, inner):
        super().__init__(name="with_features")
        self.model, self.inner = model, inner
        self.built = True

    def call(self, images, training=None):
        has_head = self.inner.head is not None
        last = self.inner.get_layer("metadata") if has_head else None
        with self.inner.watched(last) as seen:
            scores = self.model(images, training=False)
        features = seen[-1][1]
        return [vector(features) if has_head else features, scores]


@contextlib.contextmanager
def _without_paths():
    """Remove the paths of local source files from JAX programs."""
    import jax

    values = dict(
        jax_hlo_source_file_canonicalization_regex=".*",
        jax_include_full_tracebacks_in_locations=False,
    )
    before = {name: getattr(jax.config, name) for name in values}
    try:
        for name, value in values.items():
            jax.config.update(name, value)
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


def check_jax() -> None:
    """Refuse a TensorFlow that does not run the programs of this JAX.

    Raises:
        ValueError: With both versions, and what to do.
    """
    import jax
    from jax.experimental import jax2tf

    tf = tensorflow()
    anything = jax2tf.convert(
        lambda x: x + 1, polymorphic_shapes=["n"], with_gradient=False
    )
    signature = [tf.TensorSpec([None])]
    try:
        tf.function(anything, signature, autograph=False)(tf.zeros(2))
    except tf.errors.InvalidArgumentError as error:
        raise ValueError(
            f"TensorFlow {tf.__version__} does not run the programs that JAX "
            f"{jax.__version__} writes. Save the model as .keras and export it "
            "with KERAS_BACKEND=tensorflow."
        ) from error


def _write_from_jax(model, attend, images, directory, serve):
    archive = keras.export.ExportArchive()
    archive.track(model)

    def add(name, function):
        of_some = archive.add_endpoint(
            name,
            function,
            input_signature=[images],
            # Exported on one platform, served on another.
            jax2tf_kwargs={
                "with_gradient": False,
                "native_serialization_platforms": ("cpu", "cuda"),
            },
        )
        return _of_any_number(of_some, images)

    forward = add("forward", model.__call__)
    maps = attend and add("forward_attention", attend)
    for name, function in serve(forward, maps).items():
        archive.add_endpoint(name, function)
    archive.write_out(directory, verbose=False)


def _of_any_number(of_some, images):
    """Return a function of images and of the request's number of images.

    XLA compiles anew for each number of images. To limit these, the batch is
    padded to a power of two, or to the number in the request if that is less.
    """
    tf = tensorflow()
    outputs = tf.nest.flatten(
        of_some.get_concrete_function(images).structured_outputs
    )

    def function(images, number):
        found = tf.shape(images)[0]
        powers = tf.constant([2**i for i in range(31)])
        batch = tf.reduce_min(powers[powers >= found])
        rest = tf.minimum(batch, number) - found

        def run():
            padding = [[0, rest], *[[0, 0]] * (len(images.shape) - 1)]
            outputs = tf.nest.flatten(of_some(tf.pad(images, padding)))
            return [x[:found] for x in outputs]

        def nothing():
            return [tf.zeros((0, *x.shape[1:]), x.dtype) for x in outputs]

        return tf.cond(found > 0, run, nothing)

    return function
