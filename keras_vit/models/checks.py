"""Checks of fields of an architecture that depend on one another."""


def check_heads(config) -> None:
    """Check that the heads of an architecture divide its width."""
    if config.hidden_size % config.num_heads:
        raise ValueError(
            "`hidden_size` must be a multiple of `num_heads`. Received: "
            f"hidden_size={config.hidden_size}, num_heads={config.num_heads}"
        )


def check_groups(num_kv_heads: int, num_heads: int, qkv_bias: str) -> None:
    """Check the number of heads of keys and values, 0 for `num_heads`."""
    shared = num_kv_heads not in (0, num_heads)
    if shared and (num_heads % num_kv_heads or qkv_bias == "qv"):
        raise ValueError(
            "`num_kv_heads` must divide `num_heads`, and needs "
            "qkv_bias='qkv' or 'none'. Received: num_kv_heads="
            f"{num_kv_heads}, num_heads={num_heads}, qkv_bias={qkv_bias!r}"
        )


def check_post_norm(post_norm: bool, parallel: bool) -> None:
    """Check that norms do not follow branches that share one."""
    if post_norm and parallel:
        raise ValueError(
            "`parallel` must be False with post_norm=True. Received: "
            "parallel=True"
        )


def check_levels(config, *names: str) -> None:
    """Check that an architecture has a value for each level of a pyramid.

    Args:
        config: The architecture.
        *names: Its fields of a value for each level, beside `depths`.
    """
    for name in names:
        values = getattr(config, name)
        if not values or len(values) != len(config.depths):
            raise ValueError(
                f"`{name}` must have a value for each level, as `depths`. "
                f"Received: {name}={values}, depths={config.depths}"
            )
