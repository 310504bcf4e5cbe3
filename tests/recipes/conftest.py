"""A run of the recipe that takes seconds, shared by the tests."""

import catalogue
import pytest
import realistic
from small_runs import small_config

import keras_vit
from keras_vit.inspection import figures
from recipes import contrastive, finetune, tasks


@pytest.fixture(scope="session", autouse=True)
def few_shown():
    """Draws 4 examples of a run instead of 12; a video is 16 axes."""
    with pytest.MonkeyPatch.context() as patch:
        for recipe in (contrastive, finetune, tasks):
            patch.setattr(recipe, "NUM_SHOWN", 4)
        yield


@pytest.fixture(scope="session")
def make_config():
    return small_config


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory):
    """(config, workdir, results, what was printed)"""
    import contextlib
    import io

    workdir = tmp_path_factory.mktemp("digits")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        results = finetune.run(small_config(), str(workdir))
    return small_config(), workdir, results, printed.getvalue()


@pytest.fixture
def no_pictures(monkeypatch):
    """Leaves out a run's last pictures, most of the time of a short one."""
    monkeypatch.setattr(finetune, "_draw", lambda *arguments: ([], False))
    monkeypatch.setattr(tasks, "_draw", lambda *arguments: [])
    monkeypatch.setattr(figures, "plot_curves", lambda *arguments: None)


@pytest.fixture(scope="session")
def page_models(tmp_path_factory):
    """A folder with vit.keras, its SavedModel vit/1, and mixer.keras."""
    folder = tmp_path_factory.mktemp("models")
    names = ("ant", "bee", "<b>cat</b>", "dog", "elk")
    vit = realistic.fill(catalogue.make_model("token", class_names=names))
    vit.save(folder / "vit.keras")
    # Scores are logits; the page shows probabilities.
    keras_vit.export_savedmodel(vit, folder / "vit" / "1", activation="none")
    realistic.fill(catalogue.make_model("mixer")).save(folder / "mixer.keras")
    return folder
