"""Compiled programs that are saved for the next run."""

import pytest

from recipes import compilation_cache

pytestmark = pytest.mark.backend("jax")


@pytest.fixture
def config(monkeypatch, tmp_path):
    import jax

    names = (
        "jax_enable_compilation_cache",
        "jax_compilation_cache_dir",
        "jax_compilation_cache_max_size",
        "jax_persistent_cache_min_compile_time_secs",
        "jax_persistent_cache_enable_xla_caches",
    )
    before = {name: getattr(jax.config, name) for name in names}
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    yield jax.config
    for name, value in before.items():
        jax.config.update(name, value)


def test_it_is_on_in_the_users_cache_and_bounded(config, tmp_path):
    pytest.importorskip("filelock")
    config.update("jax_compilation_cache_dir", None)
    directory = compilation_cache.enable()
    assert directory.startswith(str(tmp_path))
    assert config.jax_compilation_cache_dir == directory
    assert 0 < config.jax_compilation_cache_max_size <= 2 * 2**30


def test_settings_of_jax_take_precedence(config, tmp_path):
    pytest.importorskip("filelock")
    config.update("jax_compilation_cache_dir", str(tmp_path / "mine"))
    assert compilation_cache.enable() == str(tmp_path / "mine")
    config.update("jax_enable_compilation_cache", False)
    assert compilation_cache.enable() is None
