"""Tensors of every kind, in and out; and dtypes by all their names."""

from __future__ import annotations

from typing import Any

import fuseline
import numpy as np
import pytest
from fuseline.dlpack import view_of
from fuseline.tensors import host_tensor


class Exporter:
    """Speaks DLPack and nothing else."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, stream: Any = None) -> Any:
        return self._array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "i64", "i32", "i16", "i8", "u8"])
def test_dlpack_tensors_are_taken_without_numpys_help(dtype: str) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(fuseline.DType.of(dtype).numpy)
    for given in (array, array[:, ::2], array.transpose(2, 0, 1), array[1:1]):
        tensor = host_tensor(Exporter(given))
        assert tensor.dtype is fuseline.DType.of(dtype)
        assert tensor.array.tobytes() == given.tobytes() and tensor.shape == given.shape


def test_dense_arrays_are_not_copied() -> None:
    array = np.ones((3, 4), np.float32)
    assert view_of(Exporter(array)).pointer == array.ctypes.data == view_of(array).pointer
    assert host_tensor(array).array is array
    assert np.shares_memory(host_tensor(Exporter(array)).array, array)


class GpuExporter(Exporter):
    """A stand-in for a CUDA tensor; notes the stream that it was asked for."""

    asked: Any = None

    def __dlpack__(self, stream: Any = None) -> Any:
        self.asked = stream
        return self._array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


def test_producers_on_a_gpu_are_told_the_stream() -> None:
    exporter = GpuExporter(np.ones(2))
    view_of(exporter)
    assert exporter.asked == 1
    view_of(exporter, 4096)
    assert exporter.asked == 4096


def test_views_tell_strides_in_elements() -> None:
    array = np.ones((3, 4), np.float32)
    assert view_of(array).strides is None
    assert view_of(array.T).strides == (1, 4)
    assert view_of(Exporter(array.T)).strides == (1, 4)


class OnGpu:
    """A stand-in for a CUDA array."""

    __cuda_array_interface__ = {  # noqa: RUF012
        "version": 3, "typestr": "<f4", "shape": (2, 3), "strides": (4, 8), "data": (4096, False)
    }  # fmt: skip


def test_cuda_arrays_are_seen_but_not_sent() -> None:
    view = view_of(OnGpu())
    assert (view.pointer, view.cuda_device, view.strides) == (4096, 0, (1, 2))
    with pytest.raises(TypeError, match="on CUDA device 0"):
        host_tensor(OnGpu())


@pytest.mark.parametrize(
    "wrong", ["text", object(), np.array(["a"]), np.ones(2, np.complex64), np.ones(2, ">f4"), None]
)
def test_what_is_no_tensor_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError):
        host_tensor(wrong)


def test_numbers_and_lists_take_the_inputs_dtype(client: fuseline.Client) -> None:
    text = "graph (x: f32[], y: i32[2]) { %t = neg(x) %u = neg(y) return %t, %u }"
    outputs = client.execute(text, [1.5, [1, 2]]).outputs
    assert outputs["out0"] == -1.5 and outputs["out1"].tolist() == [-1, -2]


NAMES = [
    ("f32", ["f32", "float32", np.float32, np.dtype("float32"), fuseline.DType.F32]),
    ("f64", [float, "float64", np.float64]),
    ("i64", [int, "int64", np.int64]),
    ("bool", [bool, "bool", np.bool_]),
    ("bf16", ["bf16", "bfloat16"]),
    ("f8e4m3", ["float8_e4m3fn"]),
]


@pytest.mark.parametrize(("name", "spellings"), NAMES)
def test_dtypes_are_known_by_all_their_names(name: str, spellings: list[Any]) -> None:
    for spelling in spellings:
        assert fuseline.DType.of(spelling).value == name


@pytest.mark.parametrize("wrong", ["f31", "complex64", np.complex64, object(), [1], None.__class__])
def test_unknown_dtypes_are_refused(wrong: Any) -> None:
    with pytest.raises(TypeError):
        fuseline.DType.of(wrong)


def test_every_dtype_has_the_protocols_number() -> None:
    from fuseline import protocol

    enum = protocol._pool()[0].FindEnumTypeByName("fuseline.v1.DataType")
    for dtype in fuseline.DType:
        assert enum.values_by_number[dtype.number].name == "DATA_TYPE_" + dtype.name
    assert len(enum.values) == len(fuseline.DType) + 1
