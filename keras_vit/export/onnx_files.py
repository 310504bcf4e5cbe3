"""Writes ONNX files, as Keras does but for what its versions lack."""

import logging
import os
import warnings

import keras
import numpy as np


def write(model: keras.Model, path: str, precision: str) -> None:
    """Write a model of any number of images, quantised for "int8"."""
    backend = keras.backend.backend()
    if backend == "torch":
        _write_from_torch(model, path)
    else:
        if backend == "tensorflow":
            _prepare_tf2onnx()
        model.export(path, format="onnx", verbose=False)
    if precision == "int8":
        _quantize(path)


def _quantize(path):
    """Quantise dense layers alone, as `in_precision` does."""
    from onnxruntime.quantization import quantize_dynamic

    # It recommends a preparation that did not change the speed.
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        kinds = ["MatMul", "Gemm"]
        quantize_dynamic(
            path, path, op_types_to_quantize=kinds, per_channel=True
        )
    finally:
        logging.disable(disabled)


def _prepare_tf2onnx():
    """Add the operation in TensorFlow's exact GELU, erfc(x) = 1 - erf(x).

    It also stops tf2onnx from copying the graph, with all weights, before each
    of 36 optimizations, which took 60 % of the time, to continue without those
    that fail: a file that is wrong is found when it is run.
    """
    from tf2onnx.handler import tf_op

    os.environ.setdefault("TF2ONNX_CATCH_ERRORS", "FALSE")

    @tf_op("Erfc")
    class _:
        @classmethod
        def version_9(cls, ctx, node, **kwargs):
            [x], [y] = node.input, node.output
            shape, dtype = ctx.get_shape(y), ctx.get_dtype(y)
            ctx.remove_node(node.name)
            one = ctx.make_const(f"{node.name}/one", np.array(1, "float32"))
            erf = ctx.make_node("Erf", [x]).output[0]
            ctx.make_node(
                "Sub",
                [one.output[0], erf],
                outputs=[y],
                shapes=[shape],
                dtypes=[dtype],
            )


def _write_from_torch(model, path):
    """Do what Keras does, but not with one image, which fixes the batch."""
    import torch

    class Inference(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, images):
            return self.model(images, training=False)

    outputs = model.output
    device = model.variables[0].value.device
    dtype = getattr(torch, model.inputs[0].dtype)
    images = torch.zeros(2, *model.input_shape[1:], dtype=dtype, device=device)
    batch = ({0: torch.export.Dim("batch")},)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of PyTorch about its own parts
        program = torch.export.export(
            Inference().eval(), (images,), dynamic_shapes=batch
        )
        torch.onnx.export(
            program,
            (images,),
            path,
            dynamo=True,
            external_data=False,
            verbose=False,
            input_names=[model.inputs[0].name],
            output_names=list(outputs)
            if isinstance(outputs, dict)
            else ["logits"],
            dynamic_shapes=batch,
        )
