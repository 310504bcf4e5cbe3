"""Writes an ONNX file of a PyTorch program.

Keras traces the model with a single image, which fixes the batch size.
"""

import warnings


def write(model, path: str) -> None:
    """Writes a model of any number of images.

    Args:
        model: The model, on PyTorch.
        path: The file.
    """
    import torch

    class Inference(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, images):
            return self.model(images, training=False)

    images = torch.zeros(2, *model.input_shape[1:])
    batch = ({0: torch.export.Dim("batch")},)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of PyTorch about its own parts
        program = torch.export.export(
            Inference().eval(), (images,), dynamic_shapes=batch
        )
        _drop_idle_squeezes(program.graph)
        torch.onnx.export(
            program,
            (images,),
            path,
            dynamo=True,
            external_data=False,
            verbose=False,
            input_names=[model.inputs[0].name],
            output_names=["logits"],
            dynamic_shapes=batch,
        )


def _drop_idle_squeezes(graph):
    """Drops squeezes of axes that are longer than 1.

    PyTorch ignores them, and Keras' `take` has one, but ONNX refuses them.
    """
    import torch

    for node in list(graph.nodes):
        if node.target is torch.ops.aten.squeeze.dim:
            source, axis = node.args
            if source.meta["val"].shape[axis] != 1:
                node.replace_all_uses_with(source)
                graph.erase_node(node)
