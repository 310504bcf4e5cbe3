"""Learning from an average of itself: DINO, and DINOv2 (with masked patches).

A student predicts what its teacher sees in other crops of the same image. The
teacher is an average over time of the student. Everything that changes is a
variable: a checkpoint of the model and its optimizer has all of it.
"""

import dataclasses
import math
from typing import Any, Literal

import keras
from keras import ops

from keras_vit._arguments import (
    Count,
    Natural,
    NotNegative,
    Portion,
    Positive,
    checked,
)
from keras_vit.layers.keras_layers import check_float
from keras_vit.models import ImageModel
from keras_vit.models.other_size import at_size, rebuild
from keras_vit.ops import replicas
from keras_vit.training import averages, dino_loss, masked_patch, task_loss
from keras_vit.training.projection_head import ProjectionHead


@checked
@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class DINO:
    """The settings of a `SelfDistillation`; the defaults are those of DINO.

    Attributes:
        total_steps: Steps of training, at whose end the teacher stands still.
        num_prototypes: Outputs K of a projection head.
        hidden_size: Width of its two hidden layers.
        bottleneck_size: Width before the prototypes.
        student_temperature: Divisor of the student's logits.
        teacher_temperatures: Divisor of the teacher's, at first and after
            `temperature_steps`, between which it rises linearly.
        temperature_steps: Steps of this rise.
        momentum: Share of itself that the teacher keeps in the first step; it
            rises to 1 on a cosine.
        centring: "mean" subtracts the running mean of the teacher's outputs,
            "sinkhorn" gives each prototype as many images of a batch.
        frozen_steps: Steps in which the prototypes stay as they are.
        patch_weight: Weight of iBOT's loss of masked patches, which has a head
            of its own; 0 is none, 1 in DINOv2.
        koleo_weight: Weight of the loss that spreads features; 0 is none, 0.1
            in DINOv2.

    Reference:
        Caron et al. 2021 (2104.14294), section 3 and appendix A.
    """

    total_steps: Count
    num_prototypes: Count = 65_536
    hidden_size: Count = 2048
    bottleneck_size: Count = 256
    student_temperature: Positive = 0.1
    teacher_temperatures: tuple[Positive, Positive] = (0.04, 0.07)
    temperature_steps: Natural = 0
    momentum: Portion = 0.996
    centring: Literal["mean", "sinkhorn"] = "mean"
    frozen_steps: Natural = 0
    patch_weight: NotNegative = 0.0
    koleo_weight: NotNegative = 0.0


class SelfDistillation(keras.Model):
    """A student of crops, and its teacher.

    Compile it without a loss; its own is that of the settings. `model` is the
    student. `SwapTeacher` gives it the weights of the teacher between epochs,
    in which it is evaluated and saved.

    The teacher follows the student at the beginning of the next step, so that
    it is one step behind when it is saved, where its momentum is nearly 1.

    Its metrics are "teacher_entropy", the mean entropy of the teacher's
    outputs, "mean_entropy", that of their mean, both in shares of log K, and
    "feature_spread", the standard deviation of the teacher's features (1 where
    they point everywhere). When one of them falls to 0 (or for the first, rises
    to 1), the teacher has collapsed.

    Args:
        model: A model of this package, without a head.
        settings: The settings.
        local_size: (height, width) of the small crops; None is without.

    Call arguments:
        inputs: What `keras_vit.data.crop_batches` gives: "global_crops",
            `[B, 2, H, W, C]`; "local_crops", `[B, L, h, w, C]`; with masked
            patches also "sources", `[B, N]`, the patches of the first crop as
            `masked_patch.MaskPatches` takes them, and of those that are masked
            "places", `[B, M]`, and "shares", `[B, M]`.

    Raises:
        ValueError: If the model takes videos or no images of `local_size`, is
            quantised, or if patches are to be masked of a model without.

    Reference:
        Caron et al. 2021; Zhou et al. 2022 (iBOT, 2111.07832); Oquab et al.
        2023 (DINOv2, 2304.07193).
    """

    @checked
    def __init__(
        self,
        model: ImageModel,
        settings: DINO,
        local_size: tuple[Count, Count] | None = None,
    ):
        # Of the global policy, by which Keras scales the loss of float16; its
        # inputs are not cast.
        super().__init__(name=model.name, autocast=False)
        _check(model)
        self.settings = settings
        self.student = model
        self.teacher = rebuild(model, model.image_shape)
        self.masks = bool(settings.patch_weight)
        self.student_tokens, self.teacher_tokens = model, self.teacher
        if self.masks:
            self.student_tokens = masked_patch.masked_encoder(
                model, representation=True
            )
            _, patches = masked_patch.patches_of(self.teacher)
            self.teacher_tokens = keras.Model(
                self.teacher.input, [self.teacher.representation, patches]
            )
        heads = ["class_head", "patch_head"] if self.masks else ["class_head"]
        width = model.output_shape[-1]
        self.student_heads = [_head(settings, width, name) for name in heads]
        self.teacher_heads = [_head(settings, width, name) for name in heads]
        self.centres = [self._state("centre", (settings.num_prototypes,))]
        if self.masks:
            self.centres += [
                self._state("patch_centre", (settings.num_prototypes,))
            ]
        self.step = self._state("step", (), "int32")
        names = ("teacher_entropy", "mean_entropy", "feature_spread")
        self.measured = [keras.metrics.Mean(name=name) for name in names]
        # As functions, since Keras would take what attributes hold for parts.
        pairs = self._start_teacher()
        self._pairs = lambda: pairs
        self._small: Any = None
        if local_size is not None:
            self._small = at_size(model, local_size)
        self.built = True
        task_loss.clear_all_gradients(self)

    def save(self, *args, **kwargs):
        self.get_config()  # before Keras makes the file

    def get_config(self):
        raise NotImplementedError(
            "A SelfDistillation has no configuration, with which Keras saves "
            "and clones models. Save its student, `model.student.save(path)`, "
            "or the state of its training, `model.save_weights(path)`."
        )

    def _state(self, name, shape, dtype="float32"):
        return self.add_weight(
            name=name,
            shape=shape,
            dtype=dtype,
            initializer="zeros",
            trainable=False,
        )

    def _start_teacher(self):
        """Make the teacher a copy; return pairs of its and the student's."""
        for part in (self.teacher, *self.teacher_heads):
            part.trainable = False
        pairs = []
        for student, teacher in (
            (self.student, self.teacher),
            *zip(self.student_heads, self.teacher_heads, strict=True),
        ):
            of_path = {v.path: v for v in teacher.weights}
            for v in student.weights:  # those that do not change, too
                if keras.backend.is_float_dtype(v.dtype):
                    # JAX would share the array, and give its memory to a
                    # result.
                    of_path[v.path].assign(ops.copy(v.value))
            # With the averages of a BatchNormalization.
            pairs += [
                (v, of_path[v.path])
                for v in student.weights
                if v.trainable or v.name.startswith("moving_")
            ]
        return pairs

    @property
    def pairs(self) -> list[tuple[keras.Variable, keras.Variable]]:
        """Each variable of the student that changes, and the teacher's."""
        return self._pairs()

    def _follow(self):
        """Move the teacher to the student, as it is after the last step."""
        settings, done = self.settings, self.step
        momentum = dino_loss.cosine(
            done - 1, settings.total_steps, settings.momentum, 1.0
        )
        momentum = ops.where(ops.equal(done, 0), 1.0, momentum)
        for student, teacher in self.pairs:
            new = ops.stop_gradient(ops.convert_to_tensor(student.value))
            old = ops.convert_to_tensor(teacher.value)
            share = ops.cast(momentum, old.dtype)
            teacher.assign(old * share + new * (1.0 - share))

    def call(self, inputs, training=False):
        if training:
            self._follow()
        crops = inputs["global_crops"]
        shape = ops.shape(crops)
        flat = ops.reshape(crops, (-1, *shape[2:]))
        features, patches = self._tokens(self.teacher_tokens, flat, None, False)
        features = ops.stop_gradient(ops.cast(features, "float32"))
        outputs = dict(
            teacher_features=_by_image(features, 2),
            teacher=_by_image(self.teacher_heads[0](features), 2),
        )
        sources = inputs.get("sources") if self.masks else None
        frozen = ops.less(self.step, self.settings.frozen_steps)
        seen, seen_patches = self._tokens(
            self.student_tokens, flat, sources, training
        )
        outputs["features"] = _by_image(seen, 2)
        views = [outputs["features"]]
        if self._small is not None:
            small = inputs["local_crops"]
            number = small.shape[1]
            flat = ops.reshape(small, (-1, *ops.shape(small)[2:]))
            views.append(_by_image(self._small(flat, training), number))
        views = ops.concatenate(views, axis=1)  # [B, V, D]
        outputs["student"] = self.student_heads[0](views, frozen=frozen)
        if self.masks:
            places = inputs["places"][:, :, None]

            def masked(x):  # [2 B, N, D], the first crop's
                return ops.take_along_axis(_by_image(x, 2)[:, 0], places, 1)

            outputs["teacher_patches"] = self.teacher_heads[1](masked(patches))
            outputs["student_patches"] = self.student_heads[1](
                masked(seen_patches), frozen=frozen
            )
        return {
            name: ops.stop_gradient(x) if name.startswith("teacher") else x
            for name, x in outputs.items()
        }

    def _tokens(self, model, crops, sources, training):
        """Return the features of crops, `[2 B, D]`, and their patches."""
        if not self.masks:
            return model(crops, training=training), None
        if sources is None:
            return model(crops, training=training)
        # The second crop of each image is seen whole.
        whole = ops.arange(sources.shape[1], dtype=sources.dtype)
        whole = ops.broadcast_to(whole[None], ops.shape(sources))
        sources = ops.stack([sources, whole], axis=1)
        sources = ops.reshape(sources, (-1, sources.shape[-1]))
        inputs = {"images": crops, "sources": sources}
        return model(inputs, training=training)

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """Return the loss; in training, move the centres and count the step."""
        settings, outputs = self.settings, y_pred
        weights = ops.ones_like(outputs["features"][:, 0, 0], dtype="float32")
        if sample_weight is not None:
            weights = ops.cast(sample_weight, "float32")
        teacher = ops.cast(outputs["teacher"], "float32")
        flat = ops.reshape(teacher, (-1, teacher.shape[-1]))
        counted = ops.cast(weights > 0, "float32")
        of_crops = ops.repeat(counted, 2)
        wanted = self._targets(0, flat, of_crops, training)
        loss = dino_loss.crop_loss(
            outputs["student"],
            _by_image(wanted, 2),
            settings.student_temperature,
            weights,
        )
        for i in range(2 if settings.koleo_weight else 0):
            loss += settings.koleo_weight * dino_loss.koleo_loss(
                outputs["features"][:, i], weights
            )
        if self.masks:
            loss += settings.patch_weight * self._patch_loss(
                outputs, x["shares"], weights, training
            )
        self._measure(wanted, outputs["teacher_features"], of_crops)
        if training:
            self.step.assign(self.step + 1)
        return replicas.of_part(loss)

    def _patch_loss(self, outputs, shares, weights, training):
        patches = ops.cast(outputs["teacher_patches"], "float32")
        flat = ops.reshape(patches, (-1, patches.shape[-1]))
        shares = ops.cast(shares, "float32")
        counted = ops.cast(shares * weights[:, None] > 0, "float32")
        wanted = self._targets(1, flat, ops.reshape(counted, (-1,)), training)
        return dino_loss.patch_loss(
            outputs["student_patches"],
            ops.reshape(wanted, ops.shape(patches)),
            self.settings.student_temperature,
            shares * weights[:, None],
            num_crops=2,
        )

    def _targets(self, number, logits, weights, training):
        """Return the teacher's probabilities, and move their centre."""
        settings, centre = self.settings, self.centres[number]
        first, last = settings.teacher_temperatures
        share = ops.cast(self.step, "float32")
        share = ops.minimum(share / max(settings.temperature_steps, 1), 1.0)
        if not settings.temperature_steps:
            share = 1.0
        temperature = first + (last - first) * share
        if settings.centring == "sinkhorn":
            return dino_loss.sinkhorn(logits, temperature, weights)
        found = dino_loss.centred(logits, centre, temperature)
        if training:
            centre.assign(dino_loss.moved_centre(centre, logits, weights))
        return found

    def _measure(self, probabilities, features, weights):
        features = ops.reshape(features, (-1, features.shape[-1]))
        each, mean = dino_loss.entropy(probabilities, weights)
        most = math.log(self.settings.num_prototypes)
        spread = dino_loss.spread(features, weights)
        values = (each / most, mean / most, spread)
        for metric, value in zip(self.measured, values, strict=True):
            metric.update_state(ops.stop_gradient(value))


class SwapTeacher(averages.SwapAverages):
    """Gives the student the weights of its teacher between two epochs.

    Other callbacks then evaluate and save the teacher, in the model that the
    student is. The loss of evaluation is that of both.
    """

    def __init__(self):
        super().__init__(swap_on_epoch=True)

    def on_train_begin(self, logs=None):
        self._restore()  # the student, whose teacher an earlier `fit` left

    def on_test_begin(self, logs=None):
        pass

    def on_test_end(self, logs=None):
        pass

    def _variables(self):
        return [student for student, _ in self.model.pairs]

    def _assign_averages(self):
        for student, teacher in self.model.pairs:
            # Of its own: JAX' `predict` gives up the arrays that it reads.
            student.assign(ops.copy(teacher.value))


def _check(model):
    if model.head is not None or model.num_frames is not None:
        raise ValueError(
            "`model` must take images and have no head (include_top=False). "
            f"Received: {model.name!r} of inputs {model.input_shape}"
        )
    check_float(model, "model")


def _head(settings, width, name):
    head = ProjectionHead(
        settings.num_prototypes,
        settings.hidden_size,
        settings.bottleneck_size,
        name=name,
    )
    head.build((None, width))
    return head


def _by_image(x, crops):
    """Return `[B, crops, ...]` of the crops of images, `[B * crops, ...]`."""
    return ops.reshape(x, (-1, crops, *ops.shape(x)[1:]))
