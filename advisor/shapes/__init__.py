"""Model shapes: a config.json to layers, parameters, KV bytes and weight bytes. Pure."""

from advisor.shapes.build import describe_bounds, shape_from_config
from advisor.shapes.errors import ShapeError
from advisor.shapes.model import LayerShape, ModelShape, human_count
from advisor.shapes.parse import MAX_CONFIG_BYTES, parse_config_text, read_config
from advisor.shapes.quant import DTYPE_BITS, QUANT_NAMES, QuantScheme

__all__ = [
    "DTYPE_BITS",
    "MAX_CONFIG_BYTES",
    "QUANT_NAMES",
    "LayerShape",
    "ModelShape",
    "QuantScheme",
    "ShapeError",
    "describe_bounds",
    "human_count",
    "parse_config_text",
    "read_config",
    "shape_from_config",
]
