"""Images of other sizes and channels, from where people hold them."""

import keras
import numpy as np
import pytest
from small_runs import small_vit

import keras_vit

pytestmark = pytest.mark.backend("torch")


def make_model(shape, **arguments):
    return small_vit(input_shape=shape, **dict(classes=3) | arguments)


def make_images(shape, count=6):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, *shape)).astype("uint8")
    return images, np.arange(count) % 3


class Batches(keras.utils.PyDataset):
    def __init__(self, images, labels):
        super().__init__()
        self.arrays = images, labels

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return tuple(x[3 * index : 3 * index + 3] for x in self.arrays)


def as_arrays(images, labels):
    return dict(x=images, y=labels, batch_size=3)


def as_py_dataset(images, labels):
    return dict(x=Batches(images, labels))


def as_generator(images, labels):
    batches = Batches(images, labels)
    return dict(x=(batches[i % 2] for i in range(4)), steps_per_epoch=2)


def as_tf_data(images, labels):
    tf = pytest.importorskip("tensorflow")
    return dict(x=tf.data.Dataset.from_tensor_slices((images, labels)).batch(3))


def as_data_loader(images, labels):
    data = pytest.importorskip("torch.utils.data")
    torch = pytest.importorskip("torch")
    pairs = data.TensorDataset(torch.tensor(images), torch.tensor(labels))
    return dict(x=data.DataLoader(pairs, batch_size=3))


@pytest.mark.parametrize(
    "feed",
    [as_arrays, as_py_dataset, as_generator, as_tf_data, as_data_loader],
)
def test_every_way_of_feeding_trains_alike(feed):
    images, labels = make_images((8, 8, 3))
    keras.utils.set_random_seed(0)
    model = make_model((8, 8, 3))
    model.compile(
        keras.optimizers.SGD(0.1),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    model.fit(**feed(images, labels), epochs=1, shuffle=False, verbose=0)
    # Two steps by hand, on the arrays.
    keras.utils.set_random_seed(0)
    again = make_model((8, 8, 3))
    again.compile(model.optimizer.__class__(0.1), model.loss)
    for i in range(2):
        again.train_on_batch(*Batches(images, labels)[i])
    np.testing.assert_allclose(
        model.predict(images, verbose=0),
        again.predict(images, verbose=0),
        atol=1e-5,
    )


@pytest.mark.parametrize(
    "shape",
    [(8, 8, 1), (8, 8, 13), (4, 64, 3)],
)
def test_any_channels_and_sizes_train(shape):
    images, labels = make_images(shape)
    model = make_model(shape)
    model.compile(
        "adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    history = model.fit(images, labels, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    assert model.predict(images, verbose=0).shape == (6, 3)


@pytest.mark.parametrize("channels", [1, 13])
def test_weights_of_three_channels_fold_to_others(channels, tmp_path):
    path = tmp_path / "rgb.keras"
    make_model((8, 8, 3)).save(path)
    model = keras_vit.ViT(
        weights=str(path),
        input_shape=(8, 8, channels),
        classes=2,
        **(dict(pixel_mean=127.5, pixel_std=127.5)),
    )
    images, _ = make_images((8, 8, channels))
    assert np.isfinite(model.predict(images, verbose=0)).all()


def test_scaled_images_are_noticed_on_the_way_in():
    images, labels = make_images((8, 8, 3))
    with pytest.warns(UserWarning, match="scaled already"):
        keras_vit.data.check_pixels(images / 255)
    loader = as_data_loader(images / 255.0, labels)["x"]
    with pytest.warns(UserWarning, match="scaled already"):
        keras_vit.data.check_pixels(loader)
