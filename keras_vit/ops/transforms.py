"""Whether PyTorch does more with a program than to run it."""

import functools

from keras_vit._keras import say_once


def is_compiled() -> bool:
    """Return whether PyTorch makes a graph of its own kind of a program."""
    import torch

    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def is_transformed(*tensors) -> bool:
    """Return whether PyTorch needs operations for which it has all rules.

    torch.func, derivatives in forward mode, recorders such as make_fx and
    FlopCounterMode, and subclasses of tensors know PyTorch's public operations.
    Those of a library or of a device they reject, drop or record as they are.

    Args:
        tensors: What an operation takes; None is ignored.
    """
    import torch

    unpack = torch.autograd.forward_ad.unpack_dual
    return any(is_active() for is_active in probes()) or any(
        type(x) not in (torch.Tensor, torch.nn.Parameter)
        or unpack(x).tangent is not None
        for x in tensors
        if x is not None
    )


@functools.cache
def probes() -> tuple:
    """Return functions that say whether the process transforms operations."""
    import torch

    try:
        return (
            torch._C._are_functorch_transforms_active,
            torch._C._len_torch_dispatch_stack,
        )
    except AttributeError as error:  # without them one cannot know
        say_once(str(error))
        return (lambda: True,)
