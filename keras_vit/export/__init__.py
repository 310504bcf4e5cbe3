"""SavedModels for TF Serving; files for ONNX, LiteRT and OpenVINO."""

from keras_vit.export.formats import export_litert, export_onnx, export_openvino
from keras_vit.export.precision import compare, in_precision
from keras_vit.export.savedmodel import RequestOptions, export_savedmodel

__all__ = [
    "RequestOptions",
    "compare",
    "export_litert",
    "export_onnx",
    "export_openvino",
    "export_savedmodel",
    "in_precision",
]
