"""Masked patch prediction: corrupted patches, their targets, learning."""

import keras
import numpy as np
import pytest
import realistic
import tensorflow as tf
from catalogue import make_model
from keras import ops

from keras_vit.training import masked_patch

pytestmark = pytest.mark.backend("torch")

# Of make_model: images of 16x8 pixels, patches of 4.
GRID, PATCHES = (4, 2), 8
OWN = np.arange(PATCHES, dtype="int32")


def images_of(count, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, 16, 8, 3)).astype("uint8")


def batches_of(
    images,
    size,
    start_step=0,
    shard_index=0,
    num_shards=1,
    weights=None,
    **kwargs,
):
    """What `data.train_batches` does, without shuffling."""
    shard_size = size // num_shards
    elements = {"images": images}
    if weights is not None:
        elements["weights"] = np.asarray(weights, "float32")
    ours = tf.data.Dataset.from_tensor_slices(elements).batch(shard_size)
    ours = ours.batch(1).map(lambda x: {k: v[0] for k, v in x.items()})
    ours = ours.map(
        lambda x: {
            k: tf.ensure_shape(v, (shard_size, *v.shape[1:]))
            for k, v in x.items()
        }
    )
    ours = ours.enumerate().filter(lambda i, _: i % num_shards == shard_index)
    return list(
        masked_patch.batches(
            ours.map(lambda _, x: x).skip(start_step),
            grid_size=GRID,
            start_step=start_step,
            shard_index=shard_index,
            num_shards=num_shards,
            **kwargs,
        ).as_numpy_iterator()
    )


def assert_same(ours, theirs):
    for a, b in zip(
        tf.nest.flatten(ours), tf.nest.flatten(theirs), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def compiled(target, **kwargs):
    kwargs = {"num_layers": 1, "include_top": False} | kwargs
    vit = make_model("token", **kwargs)
    predictor = masked_patch.predictor(vit, target)
    predictor.compile(
        keras.optimizers.SGD(1.0),
        masked_patch.loss(target),
        weighted_metrics=masked_patch.metrics(target),
    )
    return vit, predictor


class TestTargets:
    def test_mean_colour_is_a_number_of_base_8(self):
        # Two rows of three patches of 2x2 pixels.
        colours = [
            [(255, 0, 32), (0, 0, 0), (31, 31, 31)],
            [(255, 255, 255), (64, 95, 96), (0, 128, 0)],
        ]
        image = np.array(colours, "uint8").repeat(2, axis=0).repeat(2, axis=1)
        found = masked_patch.targets(tf.constant(image[None]), (2, 3))
        assert found.numpy().tolist() == [
            [0o701, 0o000, 0o000, 0o777, 0o223, 0o040]
        ]

    def test_the_mean_is_taken_before_the_rounding(self):
        grey = np.full((4, 8), 255, "float32")
        grey[:, :4] = [[132], [0], [0], [0]]
        grey[3, 7] = 254
        found = masked_patch.targets(tf.constant(grey[None, ..., None]), (1, 2))
        # 33 is level 1; each pixel's own level would be 4 or 0.
        assert found.numpy().tolist() == [[1, 7]]

    def test_downsized_holds_the_parts_in_raster_order(self):
        # Two patches of 8x8 pixels: a part is 2x2 of them.
        levels = np.arange(32).reshape(4, 8) % 8
        image = (levels * 32 + 5).astype("uint8").repeat(2, 0).repeat(2, 1)
        image = np.stack([image, 255 - image], axis=-1)
        found = masked_patch.targets(
            tf.constant(image[None]), (1, 2), "downsized"
        )
        left, right = levels[:, :4].ravel(), levels[:, 4:].ravel()
        assert found.numpy()[0].tolist() == [
            (left * 8 + 7 - left).tolist(),
            (right * 8 + 7 - right).tolist(),
        ]

    def test_pixels_are_those_of_each_patch_as_the_embedding_cuts_them(self):
        image = images_of(2)
        found = masked_patch.targets(tf.constant(image), GRID, "pixels")
        assert found.shape == (2, PATCHES, 4 * 4 * 3)
        third = image[:, 4:8, 4:8].reshape(2, -1)  # second row, second column
        np.testing.assert_allclose(
            found.numpy()[:, 3], third / 127.5 - 1, atol=1e-6
        )


class TestCorruption:
    def test_shares_are_those_of_the_paper(self):
        rows, count = 6000, 4
        sources, corrupted = (
            x.numpy() for x in masked_patch.draw((rows, PATCHES), count, (1, 2))
        )
        assert (corrupted.sum(axis=1) == count).all()
        np.testing.assert_array_equal(
            sources[~corrupted], np.broadcast_to(OWN, sources.shape)[~corrupted]
        )
        own = np.broadcast_to(OWN, sources.shape)[corrupted]
        chosen = sources[corrupted]
        masked, kept = chosen == PATCHES, chosen == own
        assert masked.mean() == pytest.approx(0.8, abs=0.01)
        assert kept.mean() == pytest.approx(0.1, abs=0.01)
        # Every patch equally often, and every other one in its place.
        np.testing.assert_allclose(corrupted.mean(axis=0), 0.5, atol=0.03)
        other = ~masked & ~kept
        distance = (chosen[other] - own[other]) % PATCHES
        found = np.bincount(distance, minlength=PATCHES) / other.sum()
        assert found[0] == 0
        np.testing.assert_allclose(found[1:], 1 / 7, atol=0.03)

    @pytest.mark.parametrize(
        ("fraction", "count"), [(0.25, 2), (0.45, 4), (1.0, 8)]
    )
    def test_the_rate_is_an_argument_and_the_weights_are_1_on_average(
        self, fraction, count
    ):
        [batch] = batches_of(images_of(6), 6, fraction=fraction)
        weights = batch["weights"]
        assert ((weights > 0).sum(axis=1) == count).all()
        assert weights.mean() == pytest.approx(1)
        changed = batch["images"]["sources"] != OWN
        assert (weights[changed] > 0).all()

    def test_a_run_can_start_at_any_step(self):
        images = images_of(12)
        whole = batches_of(images, 3, seed=5)
        assert_same(whole[2:], batches_of(images, 3, seed=5, start_step=2))
        draws = [x["images"]["sources"] for x in whole]
        assert not any((draws[0] == x).all() for x in draws[1:])
        other = batches_of(images, 3, seed=6)
        assert not (draws[0] == other[0]["images"]["sources"]).all()

    def test_processes_and_parts_share_the_batch_that_one_would_have(self):
        images = images_of(16)
        whole = batches_of(images, 8, target="downsized")
        shards = [
            batches_of(
                images,
                8,
                target="downsized",
                shard_index=i,
                num_shards=2,
                num_replicas=2,
            )
            for i in range(2)
        ]
        for step, batch in enumerate(whole):
            pieces = [x for s in shards for x in s[2 * step : 2 * step + 2]]
            joined = tf.nest.map_structure(
                lambda *x: np.concatenate(x), *pieces
            )
            assert_same(batch, joined)

    def test_padding_of_a_batch_has_no_weight(self):
        [batch] = batches_of(images_of(3), 3, weights=[1.5, 1.5, 0])
        assert (batch["weights"] > 0).sum(axis=1).tolist() == [4, 4, 0]
        assert batch["weights"].mean() == pytest.approx(1)

    @pytest.mark.parametrize("fraction", [0.0, 1.1])
    def test_a_wrong_rate_is_refused(self, fraction):
        with pytest.raises(ValueError, match=f"fraction={fraction}"):
            batches_of(images_of(2), 2, fraction=fraction)


class TestMaskPatches:
    def test_each_place_gets_the_embedding_of_its_source(self):
        layer = masked_patch.MaskPatches()
        x = np.arange(12, dtype="float32").reshape(2, 3, 2)
        sources = np.array([[0, 3, 0], [2, 1, 3]], "int32")
        layer(x, sources)
        layer.mask_embedding.assign([[[-1.0, -2.0]]])
        np.testing.assert_array_equal(
            ops.convert_to_numpy(layer(x, sources)),
            [[[0, 1], [-1, -2], [0, 1]], [[10, 11], [8, 9], [-1, -2]]],
        )


class TestPredictor:
    @pytest.mark.parametrize(
        ("target", "shape", "loss"),
        [
            ("mean_colour", (PATCHES, 512), np.log(512)),
            ("downsized", (PATCHES, 16, 512), np.log(512)),
            ("pixels", (PATCHES, 48), None),
        ],
    )
    def test_loss_counts_corrupted_patches_alone(self, target, shape, loss):
        _, predictor = compiled(target)
        assert predictor.output_shape == (None, *shape)
        [batch] = batches_of(images_of(4), 4, target=target)
        x, y, weights = batch["images"], batch["labels"], batch["weights"]

        def loss_of(y):
            return predictor.evaluate(x, y, 4, 0, weights, return_dict=True)[
                "loss"
            ]

        if loss is None:  # the head starts at zero
            loss = np.mean(np.square(y), axis=-1)[weights > 0].mean()
        assert loss_of(y) == pytest.approx(loss, rel=1e-5)
        realistic.fill(predictor)
        before = loss_of(y)
        counts = weights > 0
        if target == "pixels":
            counts = np.repeat(counts[..., None], y.shape[-1], axis=-1)
        assert loss_of(np.where(counts, y, 0)) == pytest.approx(before)
        assert loss_of(np.where(counts, 0, y)) != pytest.approx(before)

    @pytest.mark.parametrize("pooling", ["token", "gap"])
    def test_uncorrupted_tokens_are_those_of_the_model(self, pooling):
        vit, predictor = compiled("mean_colour", pooling=pooling)
        realistic.fill(predictor)
        images = images_of(2).astype("float32")
        sources = np.broadcast_to(OWN, (2, PATCHES))
        found = predictor({"images": images, "sources": sources})
        norm = vit.get_layer("encoder_norm")
        tokens = keras.Model(vit.input, norm.output)(images)[:, -PATCHES:]
        expected = predictor.get_layer("patch_head")(tokens)
        np.testing.assert_allclose(
            ops.convert_to_numpy(found),
            ops.convert_to_numpy(expected),
            rtol=1e-4,
            atol=1e-5,
        )

    def test_every_variable_moves_and_the_backbone_is_the_models(self):
        vit, predictor = compiled("mean_colour")
        realistic.fill(predictor)
        before = [np.copy(w) for w in predictor.get_weights()]
        [batch] = batches_of(images_of(4), 4)
        predictor.train_on_batch(*(batch[k] for k in batch))
        still = [
            w.path
            for w, old in zip(predictor.weights, before, strict=True)
            if np.array_equal(ops.convert_to_numpy(w), old)
        ]
        assert still == []
        own = {id(w) for w in vit.weights}
        assert [w.path for w in predictor.weights if id(w) not in own] == [
            "mask/mask_embedding",
            "patch_head/kernel",
            "patch_head/bias",
        ]

    @pytest.mark.backend("tensorflow", "jax", "torch")
    @pytest.mark.thorough("tensorflow", "jax")
    def test_it_learns_a_patch_from_the_others(self):
        # Each image has one shade: what a patch hides, the others show.
        shades = np.random.default_rng(0).integers(0, 2, (64, 1, 1, 1))
        images = np.tile(shades * 200 + 20, (1, 16, 8, 1)).astype("uint8")
        vit = make_model(
            "gap", include_top=False, input_shape=(16, 8, 1), num_layers=1
        )
        predictor = masked_patch.predictor(vit)
        predictor.compile(
            keras.optimizers.Adam(0.01),
            masked_patch.loss(),
            weighted_metrics=masked_patch.metrics(),
        )
        train = batches_of(np.tile(images, (20, 1, 1, 1)), 64, seed=1)
        for batch in train:
            predictor.train_on_batch(*(batch[k] for k in batch))
        [batch] = batches_of(images, 64, seed=2)
        x, y, weights = (batch[k] for k in batch)
        found = predictor.evaluate(x, y, 64, 0, weights, return_dict=True)
        assert found["accuracy"] > 0.9

    def test_it_saves_and_loads(self, tmp_path):
        _, predictor = compiled("downsized")
        realistic.fill(predictor)
        predictor.save(tmp_path / "model.keras")
        again = keras.saving.load_model(tmp_path / "model.keras")
        [batch] = batches_of(images_of(2), 2)
        np.testing.assert_array_equal(
            predictor.predict(batch["images"], verbose=0),
            again.predict(batch["images"], verbose=0),
        )


def test_unknown_targets_are_refused():
    vit = make_model("features", include_top=False)
    for refused in (
        lambda: masked_patch.predictor(vit, "colour"),
        lambda: masked_patch.loss("colour"),
        lambda: masked_patch.metrics("colour"),
        lambda: batches_of(images_of(1), 1, target="colour"),
    ):
        with pytest.raises(ValueError, match="one of .*pixels.*'colour'"):
            refused()


def test_a_model_without_normalised_patches_is_refused():
    vit = make_model("gap", pooling="gap_norm", include_top=False)
    with pytest.raises(ValueError, match="gap_norm"):
        masked_patch.predictor(vit)
