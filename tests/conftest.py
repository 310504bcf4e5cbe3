"""What every test starts from."""

import importlib.metadata

import keras
import pytest

BACKEND = keras.backend.backend()

# Goldens are compared at the highest precision of matrix products.
if BACKEND == "jax":
    import jax

    jax.config.update("jax_default_matmul_precision", "highest")
elif BACKEND == "tensorflow":
    import tensorflow as tf

    tf.config.experimental.enable_tensor_float_32_execution(False)
else:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def pytest_addoption(parser):
    parser.addoption(
        "--update-goldens",
        action="store_true",
        help="write tests/goldens anew, to be reviewed as a diff",
    )


def pytest_report_header():
    version = importlib.metadata.version
    return f"backend: {BACKEND} on keras {version('keras')}"


def pytest_collection_modifyitems(config, items):
    for item in items:
        mark = item.get_closest_marker("backend")
        if mark and BACKEND not in mark.args:
            item.add_marker(
                pytest.mark.skip(reason=f"only on {', '.join(mark.args)}")
            )
        if "network" in item.keywords and config.option.markexpr != "network":
            item.add_marker(pytest.mark.skip(reason="needs -m network"))


@pytest.fixture
def update_goldens(request):
    return request.config.getoption("--update-goldens")


@pytest.fixture(autouse=True)
def seed():
    keras.utils.set_random_seed(0)
