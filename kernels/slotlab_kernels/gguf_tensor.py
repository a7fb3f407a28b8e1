"""Reads one tensor of a GGUF file, dequantised by the `gguf` package: all of its formats."""

import gguf
import numpy as np
import numpy.typing as npt

from slotlab_kernels.gguf_header import GGUFHeader
from slotlab_kernels.shape import ModelFileError


def read_tensor(header: GGUFHeader, name: str, expected: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """The tensor in fp32; ModelFileError if it is missing, of another shape than expected, truncated or in no known format."""
    if name not in header.tensors:
        raise ModelFileError(f"{header.path}: has no tensor {name}")
    tensor = header.tensors[name]
    path = tensor.path
    if tensor.shape != expected:
        raise ModelFileError(f"{path}: tensor {name} has shape {list(tensor.shape)}, expected {list(expected)}")
    try:
        kind = gguf.GGMLQuantizationType(tensor.kind)
        rows = gguf.quant_shape_to_byte_shape(tensor.shape, kind)
        if tensor.offset + int(np.prod(rows)) > path.stat().st_size:
            raise ModelFileError(f"{path}: is truncated within tensor {name}")
        raw = np.memmap(path, np.uint8, "r", tensor.offset, rows)
        return np.require(gguf.dequantize(np.asarray(raw), kind), np.float32, "W")
    except ModelFileError:
        raise
    except (ValueError, NotImplementedError) as error:
        raise ModelFileError(f"{path}: tensor {name} cannot be dequantised ({error})") from None
